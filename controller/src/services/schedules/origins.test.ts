/** Whose a backup is that a part of a run has asked for, whatever was thought of its task by the time its node tells of it. */
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { BackupResult } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation_result';
import { resultFields } from '@virtkeep/shared/operation-result';
import type { ScheduledTaskRow } from '../../store/schema.ts';
import { BackupFiles } from '../backup-files/backup-files.ts';
import { BackupService } from '../backups/backups.ts';
import { NodeTasks } from '../tasks/node-tasks.ts';
import { Origins } from './origins.ts';
import { DUE } from './sample-files.ts';
import { ScheduleStore } from './store.ts';
import { OWNER, ScheduleWorld, SILENT } from './test-kit.ts';

const NODE = 'n1';
const entities = (file: string) => [
  { id: file, class: 'file' },
  { id: 'a', class: 'domain' },
];

let world: ScheduleWorld;
let scheduled: ScheduledTaskRow;
/** Of the backup that has begun. */
let taskId: string;
let nodeTasks: NodeTasks;

function connect(): void {
  const { disk: db, tasks, draining } = world;
  nodeTasks = new NodeTasks({
    tasks,
    links: {},
    inventory: {},
    clocks: { seen: async () => {} },
    log: SILENT,
    draining: draining.signal,
  } as never);
  const backupFiles = new BackupFiles(
    db,
    () => {},
    () => undefined,
  );
  new BackupService({
    nodeTasks,
    backupFiles,
    inventory: { pools: new Map() },
    library: { reread: async () => {}, get: (id: string) => backupFiles.get(id) },
    attempts: { wrote: () => {} },
    origins: new Origins({ store: world.store, clock: { now: () => new Date(world.now) } }),
    log: SILENT,
  } as never);
}

/** What the node tells of a backup's end. */
function told(file: string, states: number, id = taskId): Promise<void> {
  const value = BackupResult.fromPartial({
    file: {
      ...{ id: file, archiveId: file, poolId: 'p1', filename: file, path: `/${file}`, type: 'tar' },
      states: Array.from({ length: states }, (_, index) => ({ number: index + 1, name: `s${index}` })),
    },
  });
  return nodeTasks.apply(
    NODE,
    Operation.fromPartial({
      id,
      kind: 'backup',
      state: OperationState.SUCCEEDED,
      entities: [{ id: file, entityClass: EntityClass.FILE }],
      ...resultFields({ $case: 'backup', value }),
    }),
  );
}

const origins = async () => [...(await new ScheduleStore(world.disk).archivesOf(scheduled.id, 'a'))];

beforeEach(async () => {
  world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
  scheduled = await world.add({ start_date: DUE, all: false, entities: ['a'], retries: 1 });
  await world.tick(DUE);
  taskId = world.begun[0]!.taskId;
  await world.tasks.update(taskId, { nodeId: NODE, entities: entities('f') });
  connect();
});
afterEach(async () => {
  world.draining.abort();
  await world.close();
});

test('a new archive is the task’s before the task of its backup ends', async () => {
  let before: string[] = [];
  world.tasks.onEnd(async () => {
    before = await origins();
  });
  await told('f', 1);
  expect(before).toEqual(['f']);
});

test('an archive that was extended is whose it was', async () => {
  await told('f', 2);
  expect(await origins()).toEqual([]);
});

test('a backup by hand is nobody’s', async () => {
  const byHand = crypto.randomUUID();
  await world.tasks.create({
    ...{ id: byHand, name: 'domain_backup', verboseName: 'by hand', user: OWNER, nodeId: NODE },
    entities: entities('by-hand'),
  });
  await told('by-hand', 1, byHand);
  const rows = await world.disk.selectFrom('file_origins').selectAll().execute();
  expect(rows).toEqual([]);
});

describe('a backup that ends after its part was given up is the task’s all the same', () => {
  beforeEach(async () => {
    await world.tasks.markLost(NODE);
  });

  test('since its node had stayed away', async () => {
    await world.tick(world.now + 5_000);
    await world.tick(world.now + 1_800_000);
    expect(await world.parts(scheduled)).toEqual({ a: 'FAILED' });
    await told('f', 1);
    expect(await origins()).toEqual(['f']);
  });

  test('since somebody had released the locks of its task', async () => {
    await world.tasks.releaseLocks(taskId);
    await world.scheduler.settled();
    await told('f', 1);
    expect((await world.tasks.get(taskId)).row.status).toBe('FAILED');
    expect(await origins()).toEqual(['f']);
  });

  test('also when the controller dies while it takes the end, and is told of it again', async () => {
    world.mortality.writesLeft = 0;
    await told('f', 1).catch(() => {});
    expect(await origins()).toEqual([]);
    await world.restart();
    connect();
    await told('f', 1);
    expect(await origins()).toEqual(['f']);
  });
});
