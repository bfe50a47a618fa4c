import { describe, expect, test } from '@jest/globals';
import { definition, fileRow, NOW } from './sample-files.ts';
import { NotKnownYet, type OpenPart } from './steps/step.ts';
import { surroundingsOf } from './surroundings.ts';
import { OWNER, ScheduleWorld } from './test-kit.ts';

describe('the space step', () => {
  const GB = 1e9;
  const poolsOf = (nodes: Record<string, number>) => new Map([['p1', pool(nodes)]]);
  const pool = (nodes: Record<string, number>) => ({
    row: { id: 'p1' },
    views: new Map(
      Object.entries(nodes).map(([id, available]) => [
        id,
        { active: true, mounted: true, available: BigInt(available), isBase: true },
      ]),
    ),
  });

  /** @param freeNow what the node of the backup says when it is asked; default: what it has told last */
  async function surroundings(
    pools: ReturnType<typeof poolsOf>,
    nextOf: object | undefined,
    freeNow = async (id: string, nodeId: string): Promise<number | undefined> =>
      Number(pools.get(id)?.views.get(nodeId)?.available ?? 0),
  ) {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    await world.scheduler.runNow(await world.add({ start_date: '2026-04-01T00:00:00Z' }), OWNER, 'r');
    const disks = [{ usedSize: BigInt(100 * GB) }];
    const domain = { id: 'vm', name: 'vm', disks, savedStates: [] };
    const asked: number[] = [];
    const removed: string[] = [];
    const old = (id: string) => fileRow(id, id, 1, { size: 30 * GB });
    const inventory = {
      domains: new Map([['vm', { domain, nodeId: 'n1' }]]),
      nodes: new Map(),
      pools,
      basePool: () => 'p1',
    };
    const made = surroundingsOf({
      db: world.disk,
      store: world.store,
      tasks: world.tasks,
      clock: { now: () => new Date(NOW) },
      inventory,
      isReady: (id: string) => id === 'n1',
      keptFiles: {
        nextOf: async () => nextOf,
        nextOfTask: async () => nextOf,
        doomedForSpace: async (_pool: string, missing: number) => {
          asked.push(missing);
          const left = ['oldest', 'older', 'old'].filter(id => !removed.includes(id));
          if (missing > left.length * 30 * GB) return [];
          return left.map(id => ({ reason: 'space', file: old(id) }));
        },
      },
      backupFiles: { isDeletedFrom: async () => false },
      elapsedMs: () => 0,
      pools: { freeNow },
      fileActions: { remove: async (id: string) => void removed.push(id) },
    } as never);
    return { world, made, asked, removed };
  }

  const partOf = (more: object, estimate: number): OpenPart =>
    ({
      row: {
        run_id: 'r',
        position: 0,
        entity_id: 'vm',
        entity_class: 'domain',
        subject: null,
        pool_id: 'p1',
        node_id: 'n1',
        file_id: null,
        estimate,
      },
      run: { due_time: '2026-03-01T02:00:00.000Z', created: '2026-03-01T02:00:00.000Z' },
      definition: definition({ free_space_cleanup: true, ...more }),
    }) as unknown as OpenPart;

  test('believes no node that is away of how much is free: nothing is deleted for it', async () => {
    // n2 was switched off a year ago, when the shared pool was full; n1, which makes the backup, sees 5 TB free now
    const { world, made, asked } = await surroundings(poolsOf({ n1: 5000 * GB, n2: 0 }), undefined);
    const [, space] = made.steps.backup.find(([name]) => name === 'space')!;
    await space.plan(partOf({}, 100 * GB));
    await world.close();
    expect(asked).toEqual([]);
  });

  test('asks the node how much is free: what it has told last may be of before somebody filled the pool', async () => {
    const { world, made, asked } = await surroundings(
      poolsOf({ n1: 5000 * GB }),
      undefined,
      async () => 10 * GB,
    );
    const [, space] = made.steps.backup.find(([name]) => name === 'space')!;
    const part = partOf({}, 100 * GB);
    expect(await space.plan(part)).toMatchObject({ taskId: expect.any(String) });
    await world.close();
    expect(asked[0]).toBe(90 * GB);
  });

  test('deletes all that it has decided on, the oldest first, though its file system frees what is deleted only later', async () => {
    const { world, made, removed } = await surroundings(poolsOf({ n1: 10 * GB }), undefined);
    const [, space] = made.steps.backup.find(([name]) => name === 'space')!;
    const part = partOf({}, 100 * GB);
    for (let planned = await space.plan(part); planned !== null; planned = await space.plan(part)) {
      Object.assign(part.row, { subject: planned.subject, task_id: planned.taskId });
      await space.begin(part, OWNER, planned.taskId!);
      await space.ended(part, { status: 'SUCCESS', state: null, error: null });
    }
    await world.close();
    expect(removed).toEqual(['oldest', 'older', 'old']);
  });

  test('makes space for the full backup that the weekday asks for, and not for an increment', async () => {
    const file = fileRow('archive', 'archive', 1, { states: 3 });
    const { world, made } = await surroundings(poolsOf({ n1: 10 * GB }), file);
    const part = partOf({ options: { increment: true }, full_weekdays: ['sun'] }, 0);
    const { mode } = await made.decide(part);
    const { estimate } = await made.place(part);
    await world.close();
    expect({ mode, estimate }).toEqual({ mode: 'full', estimate: 100 * GB });
  });

  test('does not know what is in the way for a node that does not say what is free, and of nothing for one that is not there', async () => {
    const { world, made, asked } = await surroundings(
      poolsOf({ n1: 0, n2: 0 }),
      undefined,
      async (_, nodeId) => (nodeId === 'n1' ? undefined : 0),
    );
    const [, space] = made.steps.backup.find(([name]) => name === 'space')!;
    const part = partOf({}, 100 * GB);
    await expect(space.plan(part)).rejects.toThrow(NotKnownYet);
    part.row.node_id = 'n2';
    const planned = await space.plan(part);
    await world.close();
    expect(planned).toBeNull();
    expect(asked).toEqual([]);
  });

  test('asks each node that is there once for its pool, and only for parts that something is deleted for', async () => {
    const questions: string[] = [];
    const { world, made } = await surroundings(poolsOf({ n1: 0 }), undefined, async (id, nodeId) => {
      questions.push(`${id} ${nodeId}`);
      return 0;
    });
    const placed = (nodeId: string, free_space_cleanup: boolean) => ({
      definition: definition({ free_space_cleanup }),
      queued: { nodeId, poolId: 'p1' },
    });
    const isAsked = [
      await made.askFree([placed('n1', true), placed('n1', true), placed('n2', true)]),
      await made.askFree([placed('n1', false)]),
    ];
    await world.close();
    expect({ isAsked, questions }).toEqual({ isAsked: [true, false], questions: ['p1 n1'] });
  });

  test('looks at the pool that the increment goes to', async () => {
    const file = fileRow('archive', 'archive', 1, { pool_id: 'p2', states: 3 });
    const { world, made } = await surroundings(poolsOf({ n1: 10 * GB }), file);
    const part = partOf({ options: { increment: true } }, 0);
    const { poolId } = await made.place(part);
    await world.close();
    expect(poolId).toBe('p2');
  });
});
