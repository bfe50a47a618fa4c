/** Backups that have room made for them (`--free-space`): what is deleted for them, what waits for that, and what does not. */
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Actor } from '../../auth/principal.ts';
import type { FileRow } from '../../store/schema.ts';
import { detailsOf } from '../backup-files/record.ts';
import { ChangeFeed } from '../journal/changes.ts';
import { EventService } from '../journal/events.ts';
import { PoolService } from '../pools/pools.ts';
import { MultiTasks } from '../tasks/multi-tasks.ts';
import { KeptFiles } from './kept-files.ts';
import { DUE, fileRow } from './sample-files.ts';
import { Scheduler } from './scheduler.ts';
import { surroundingsOf } from './surroundings.ts';
import { ScheduleWorld, SILENT } from './test-kit.ts';

const GB = 1e9;
const FILES = Array.from({ length: 14 }, (_, age) =>
  fileRow(`f${age}`, `f${age}`, 14 - age, { size: 10 * GB }),
);
const TASK = { all: false, free_space_cleanup: true, start_date: DUE };

/** The nodes n1 and n2 share the pool p1, which holds old backups of 10 GB each; n2 has p2, too. */
class RoomWorld {
  readonly world: ScheduleWorld;
  readonly scheduler: Scheduler;
  /** All nodes tell what is free, as they do every half minute. */
  tell = () => {};
  /** Each VM's node and GB; they are backed up to p1, and those of n2 to p2. */
  readonly vms = new Map<string, { nodeId: string; gb: number }>();
  /** GB that are free on p1. */
  free = 5;
  /** Whether the nodes can use the pools. */
  mounted = true;
  readonly away = new Set<string>();
  /** Whether a node that is connected says what a pool holds; else it hangs. */
  says: (nodeId: string) => boolean = () => true;
  /** Resolves when the node answers the start of a backup. */
  answers: (nodeId: string) => Promise<void> = async () => {};
  /** GB without which a VM's node refuses its backup. */
  readonly needed = new Map<string, number>();
  readonly removed: string[] = [];
  /** GB of a deleted file that come back later. */
  late = 0;
  /** Resolves when the node has deleted the file. */
  deletes: (file: string) => Promise<void> = async () => {};
  /** The task that removes a file. */
  readonly #removing = new Map<string, string>();
  onRemoved = () => {};
  /** By how much the clock was put back, ms. */
  putBackMs = 0;
  /** VMs whose backups are being written. */
  readonly written: string[] = [];

  constructor(world: ScheduleWorld) {
    this.world = world;
    const { disk: db, store, tasks } = world;
    const clock = { now: () => new Date(world.now) };
    const elapsedMs = () => world.now + this.putBackMs;
    const inventory = this.#inventory();
    const isReady = (nodeId: string) => !this.away.has(nodeId);
    const pools = new PoolService({
      inventory,
      links: { isConnected: isReady, clients: (nodeId: string) => this.#clients(nodeId) },
      nodeTasks: { ends: { succeeded: () => {} } },
      log: SILENT,
    } as never);
    const backupFiles = {
      filesOf: async () =>
        FILES.filter(({ id }) => !this.removed.includes(id)).map(file => this.#present(file)),
      find: async (id: string) => FILES.find(file => file.id === id),
      readNow: async () => new Set(),
      isDeletedFrom: () => this.#isDeleted(),
    };
    const surroundings = surroundingsOf({
      db,
      store,
      tasks,
      clock,
      elapsedMs,
      inventory,
      tags: { borneBy: () => [] },
      pools,
      backupFiles,
      keptFiles: new KeptFiles({
        store,
        backupFiles,
        inventory,
        extensions: {},
        presence: async () => new Map(),
        isAbout: () => true,
        draining: new AbortController().signal,
      } as never),
      backups: {
        backup: ({ domain }: { domain: string }, user: Actor, id: string) => this.#backup(domain, user, id),
      },
      fileActions: { remove: (file: string, user: Actor, id: string) => this.#remove(file, user, id) },
      limits: () => ({ perNode: 0, perPool: 0 }),
      isReady,
      ended: async () => {},
      notRun: async () => {},
    } as never);
    this.scheduler = new Scheduler({
      store,
      clock,
      elapsedMs,
      tasks,
      surroundings,
      multiTasks: new MultiTasks(tasks, SILENT),
      events: new EventService(db, new ChangeFeed()),
      draining: new AbortController().signal,
      log: SILENT,
    });
  }

  #inventory() {
    const views = (id: string, nodes: string[]) => new Map(nodes.map(node => [node, this.#pool(id)]));
    const pools = new Map([
      ['p1', { row: { id: 'p1', verbose_name: 'p1' }, views: views('p1', ['n1', 'n2']) }],
      ['p2', { row: { id: 'p2', verbose_name: 'p2' }, views: views('p2', ['n2']) }],
    ]);
    this.tell = () => {
      for (const [id, { views }] of pools) for (const node of views.keys()) views.set(node, this.#pool(id));
    };
    const domain = (id: string, gb: number) => ({
      id,
      name: id,
      disks: [{ usedSize: BigInt(gb * GB) }],
      savedStates: [],
    });
    return {
      nodes: new Map(),
      pools,
      isOrphaned: () => false,
      basePool: (nodeId: string) => (nodeId === 'n1' ? 'p1' : 'p2'),
      poolChanged: async (nodeId: string, pool: { id: string }) =>
        void pools.get(pool.id)!.views.set(nodeId, pool as never),
      domains: {
        get: (id: string) => {
          const vm = this.vms.get(id);
          return vm && { id, name: id, domain: domain(id, vm.gb), nodeId: vm.nodeId };
        },
      },
    };
  }

  #pool(id: string) {
    const available = BigInt((id === 'p1' ? this.free : 5000) * GB);
    return { id, active: true, mounted: this.mounted, available, isBase: true };
  }

  #clients(nodeId: string) {
    if (this.away.has(nodeId)) throw new VirtkeepError('node_unreachable', { node: nodeId, reason: 'dead' });
    const get = async ({ id }: { id: string }, { signal }: { signal: AbortSignal }) => {
      if (this.says(nodeId)) return this.#pool(id);
      signal.throwIfAborted();
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    };
    return { pools: { get } };
  }

  async #backup(vm: string, user: Actor, id: string): Promise<void> {
    const { nodeId } = this.vms.get(vm)!;
    this.#clients(nodeId);
    await this.answers(nodeId);
    const needed = this.needed.get(vm) ?? 0;
    if (needed > this.free)
      throw new VirtkeepError('pool_no_space', {
        pool: 'p1',
        free_bytes: this.free * GB,
        needed_bytes: needed * GB,
      });
    await this.world.tasks.create({ id, name: 'domain_backup', verboseName: vm, user, entities: [], nodeId });
    this.written.push(vm);
  }

  async #remove(file: string, user: Actor, id: string): Promise<void> {
    if (this.#removing.has(file)) throw new VirtkeepError('file_not_found', { id: file });
    this.#removing.set(file, id);
    await this.world.tasks.create({ id, name: 'file_remove', verboseName: file, user, entities: [] });
    await this.deletes(file);
    this.removed.push(file);
    this.free += 10 - this.late;
    await this.world.tasks.finish(id, { status: 'SUCCESS' });
    this.onRemoved();
  }

  async #isDeleted(): Promise<boolean> {
    const ids = [...this.#removing.values()];
    const open = this.world.disk.selectFrom('tasks').select('id').where('status', '=', 'IN_PROGRESS');
    return (await open.execute()).some(({ id }) => ids.includes(id));
  }

  /** As its record is while it is being removed. */
  #present(file: FileRow): FileRow {
    const operation = this.#removing.get(file.id);
    if (operation === undefined) return file;
    const work = { operation, description: null, protected: null };
    return { ...file, status: 'DELETING', record_json: JSON.stringify({ ...detailsOf(file), work }) };
  }

  /** A task for these VMs, which has made the old backups. */
  async add(vms: string[], more: object = {}): Promise<void> {
    const { id: taskId } = await this.world.add({ ...TASK, entities: vms, ...more });
    for (const { id: archiveId } of FILES)
      await this.world.store.recordOrigin({ archiveId, taskId, domainId: 'vm', now: new Date() });
  }

  async tick(now: string): Promise<void> {
    this.world.now = Date.parse(now);
    await this.scheduler.tick();
    await this.scheduler.settled();
  }
}

let room: RoomWorld;
beforeEach(async () => {
  room = new RoomWorld(await ScheduleWorld.open('2026-03-01T00:00:00Z'));
});
afterEach(async () => {
  jest.restoreAllMocks();
  await room.scheduler.stop();
  await room.world.close();
});

test('nothing is deleted night after night for a node that is away: what it has told last stays as it was', async () => {
  room.vms.set('a', { nodeId: 'n1', gb: 20 });
  await room.add(['a'], { retries: 2, retry_delay_s: 60 });
  room.away.add('n1');
  for (const day of ['01', '02', '03'])
    for (const time of ['02:00', '02:31', '02:33', '02:36', '02:40'])
      await room.tick(`2026-03-${day}T${time}:00Z`);
  expect(room.removed).toEqual([]);
  const statuses = await room.world.disk.selectFrom('scheduled_runs').select('status').execute();
  expect(statuses.map(({ status }) => status)).toEqual(['FAILED', 'FAILED', 'FAILED']);
});

test('a node that goes away while room is made is waited for, and then the rest is made', async () => {
  room.vms.set('a', { nodeId: 'n1', gb: 30 });
  room.needed.set('a', 30);
  await room.add(['a']);
  room.onRemoved = () => room.away.add('n1');
  await room.tick(DUE);
  expect(room.removed).toEqual(['f0']);
  room.onRemoved = () => {};
  room.away.clear();
  await room.tick('2026-03-01T02:05:00Z');
  expect(room).toMatchObject({ removed: ['f0', 'f1', 'f2'], written: ['a'] });
});

test('the room that was made for a backup is not given to another, also when its node wanted more than was thought', async () => {
  room.vms.set('a', { nodeId: 'n1', gb: 1 }).set('b', { nodeId: 'n1', gb: 40 });
  room.needed.set('a', 50).set('b', 40);
  await room.add(['a', 'b']);
  await room.tick(DUE);
  room.tell();
  await room.tick('2026-03-01T02:00:30Z');
  expect({ written: room.written, free: room.free }).toEqual({ written: ['a'], free: 55 });
  expect(room.scheduler.queue()).toMatchObject([{ row: { entity_id: 'b' }, reason: 'space' }]);
});

test.each([
  ['comes after it', 'z', 0, 3],
  ['has begun to write', 'a', 0, 3],
  ['has written half', 'a', 50, 2],
  ['has ended', 'a', 100, 1],
])(
  'what is promised to a backup that %s is not given to one that its node refused',
  async (_, other, progress, files) => {
    room.vms.set('m', { nodeId: 'n1', gb: 1 }).set(other, { nodeId: 'n1', gb: 20 });
    room.free = 25;
    room.tell();
    room.needed.set('m', 30);
    await room.add(['m', other]);
    room.answers = async () => {
      const { tasks, disk } = room.world;
      if (other === 'z' || !room.written.includes('a')) return;
      const all = disk.selectFrom('tasks').select('id').where('verbose_name', '=', 'a');
      const { id } = await all.executeTakeFirstOrThrow();
      if (progress < 100) await tasks.update(id, { progress });
      else await tasks.finish(id, { status: 'SUCCESS' });
    };
    await room.tick(DUE);
    // one whose turn comes while room is made for the other waits, and is asked again
    if (room.written.length < 2) await room.tick('2026-03-01T02:00:30Z');
    expect(room.written.toSorted()).toEqual(['m', other].toSorted());
    expect(room.removed).toEqual(['f0', 'f1', 'f2'].slice(0, files));
  },
);

test.each(['SUCCESS', 'LOST'] as const)(
  'a backup whose task is %s, and whose part does not know it yet, counts for what it has still to write',
  async status => {
    room.vms.set('a', { nodeId: 'n1', gb: 20 }).set('m', { nodeId: 'n1', gb: 1 });
    room.free = 25;
    room.tell();
    room.needed.set('m', 30);
    await room.add(['a', 'm']);
    room.answers = async () => {
      const tasks = room.world.disk.updateTable('tasks').where('verbose_name', '=', 'a');
      await tasks.set({ status, progress: 89 }).execute();
    };
    await room.tick(DUE);
    // 30 GB are wanted, 25 are free, and 2 at most are still to be written
    expect(room).toMatchObject({ removed: ['f0'], written: ['a', 'm'] });
  },
);

test('what a node that is away would write is not made room for by the others', async () => {
  room.vms.set('a', { nodeId: 'n1', gb: 20 }).set('m', { nodeId: 'n2', gb: 1 });
  room.free = 25;
  room.tell();
  room.needed.set('a', 300).set('m', 30);
  await room.add(['a', 'm'], { options: { datapool: 'p1' } });
  const isAway = Promise.withResolvers<void>();
  room.answers = async nodeId => {
    if (nodeId === 'n1') return isAway.promise;
    room.away.add('n1');
    isAway.resolve();
  };
  await room.tick(DUE);
  expect(room.written).toEqual(['m']);
  // for both it had been three and more
  expect(room.removed).toEqual(['f0']);
});

describe('of several backups that need room at once', () => {
  test('one that meets a file being deleted takes no other instead', async () => {
    room.vms.set('a', { nodeId: 'n1', gb: 1 }).set('b', { nodeId: 'n2', gb: 1 });
    room.free = 4;
    room.tell();
    room.needed.set('a', 5).set('b', 5);
    await room.add(['a', 'b'], { options: { datapool: 'p1' } });
    const deleted = Promise.withResolvers<void>();
    const begins = Promise.withResolvers<void>();
    room.answers = async nodeId => (nodeId === 'n2' ? begins.promise : undefined);
    room.deletes = async () => {
      begins.resolve();
      await deleted.promise;
    };
    room.world.now = Date.parse(DUE);
    await room.scheduler.tick();
    await begins.promise;
    await new Promise(resolve => setTimeout(resolve, 100));
    deleted.resolve();
    await room.scheduler.settled();
    for (const time of ['02:00:05', '02:00:10', '02:01:00', '02:01:05'])
      await room.tick(`2026-03-01T${time}Z`);
    expect(room.removed).toEqual(['f0']);
    expect(room.written.toSorted()).toEqual(['a', 'b']);
  });

  test.each([
    ['', 0],
    [', though the clock is put back between', 60_000],
  ])(
    'one does not have that deleted once more which its file system gives back later%s',
    async (_, putBackMs) => {
      room.vms.set('a', { nodeId: 'n1', gb: 1 }).set('b', { nodeId: 'n1', gb: 1 });
      room.free = 8;
      room.tell();
      room.needed.set('a', 10).set('b', 9);
      room.late = 10;
      room.onRemoved = () => room.needed.delete('a');
      await room.add(['a', 'b']);
      room.answers = async () => {
        if (room.written.length === 0) return;
        const tasks = room.world.disk.updateTable('tasks').where('verbose_name', '=', 'a');
        await tasks.set({ progress: 99 }).execute();
      };
      await room.tick(DUE);
      expect(room).toMatchObject({ removed: ['f0'], written: ['a'] });
      const later = () => room.tick(new Date(room.world.now + 10_000).toISOString());
      room.world.now -= putBackMs;
      room.putBackMs += putBackMs;
      await later();
      expect(room).toMatchObject({ removed: ['f0'], written: ['a'] });
      room.free += 10;
      await later();
      expect(room).toMatchObject({ removed: ['f0'], written: ['a', 'b'] });
    },
  );

  test('a small one has its room also when there is not enough for all', async () => {
    room.vms.set('a', { nodeId: 'n1', gb: 200 }).set('m', { nodeId: 'n1', gb: 1 });
    room.free = 500;
    room.tell();
    room.needed.set('m', 12);
    await room.add(['a', 'm']);
    room.answers = async () => {
      if (room.written.length > 0 && room.removed.length === 0) room.free = 5;
    };
    await room.tick(DUE);
    expect(room).toMatchObject({ removed: ['f0'], written: ['a', 'm'] });
  });
});

test('two backups that seem to fit by what their node told last do not begin at once', async () => {
  room.vms.set('a', { nodeId: 'n1', gb: 10 }).set('b', { nodeId: 'n1', gb: 10 });
  await room.add(['a', 'b']);
  room.free = 12;
  await room.tick(DUE);
  expect(room.written).toEqual(['a']);
});

test('a node that never says what is free does not keep the backups of the others waiting', async () => {
  for (const vm of ['a', 'b', 'c']) room.vms.set(vm, { nodeId: 'n1', gb: 20 });
  room.vms.set('x', { nodeId: 'n2', gb: 1 });
  await room.add(['a', 'b', 'c']);
  await room.world.add({ ...TASK, free_space_cleanup: false, entities: ['x'] });
  const timeouts: AbortController[] = [];
  let over = false;
  jest.spyOn(AbortSignal, 'timeout').mockImplementation(() => {
    const timeout = new AbortController();
    if (over) timeout.abort();
    timeouts.push(timeout);
    return timeout.signal;
  });
  let asked = 0;
  room.says = nodeId => {
    if (nodeId !== 'n1') return true;
    asked += 1;
    // the choice of what begins waits for the first answer; the others last until the test is over
    if (asked === 1) for (const timeout of timeouts) timeout.abort();
    return false;
  };
  room.world.now = Date.parse(DUE);
  await room.scheduler.tick();
  await until(() => room.written.includes('x'));
  over = true;
  for (const timeout of timeouts) timeout.abort();
  await room.scheduler.settled();
  expect(room.removed).toEqual([]);
});

/** Calls that get no answer have taken too long at once. */
function timeoutsAtOnce(): void {
  jest
    .spyOn(AbortSignal, 'timeout')
    .mockImplementation(() => AbortSignal.abort(new DOMException('it took too long', 'TimeoutError')));
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(resolve => setTimeout(resolve, 10));
}

describe('a node that does not say for a while what is free', () => {
  test('is asked again before its backup begins', async () => {
    timeoutsAtOnce();
    room.vms.set('a', { nodeId: 'n1', gb: 30 });
    room.needed.set('a', 30);
    await room.add(['a']);
    room.says = () => false;
    await room.tick(DUE);
    expect(room).toMatchObject({ removed: [], written: [] });
    room.says = () => true;
    await room.tick('2026-03-01T02:00:05Z');
    expect(room).toMatchObject({ removed: ['f0', 'f1', 'f2'], written: ['a'] });
  });

  test.each([1, 2])('has the rest of the room made afterwards (question %i after a deletion)', async nth => {
    timeoutsAtOnce();
    room.vms.set('a', { nodeId: 'n1', gb: 40 });
    room.needed.set('a', 40);
    await room.add(['a']);
    let questions = Number.POSITIVE_INFINITY;
    room.onRemoved = () => {
      if (room.removed.length === 2) questions = nth;
    };
    room.says = () => {
      questions -= 1;
      return questions !== 0;
    };
    await room.tick(DUE);
    await room.tick('2026-03-01T02:00:05Z');
    expect(room).toMatchObject({ removed: ['f0', 'f1', 'f2', 'f3'], written: ['a'] });
    const decisions = await room.world.disk.selectFrom('retention_decisions').select('status').execute();
    expect(decisions.filter(({ status }) => status !== 'REMOVED')).toEqual([]);
  });

  test('has its backup tried without more room after half an hour', async () => {
    timeoutsAtOnce();
    jest.spyOn(performance, 'now').mockImplementation(() => room.world.now);
    room.vms.set('a', { nodeId: 'n1', gb: 30 });
    await room.add(['a']);
    room.says = () => false;
    for (const time of ['02:00', '02:29']) await room.tick(`2026-03-01T${time}:00Z`);
    expect(room.written).toEqual([]);
    await room.tick('2026-03-01T02:30:00Z');
    expect(room).toMatchObject({ removed: [], written: ['a'] });
  });

  test('is not waited for when its last word was that it cannot use the pool', async () => {
    timeoutsAtOnce();
    room.vms.set('a', { nodeId: 'n1', gb: 30 });
    await room.add(['a']);
    room.says = () => false;
    room.mounted = false;
    room.tell();
    await room.tick(DUE);
    expect(room).toMatchObject({ removed: [], written: ['a'] });
  });
});

test('a node that does not answer the start of a backup does not keep the backups of the others waiting', async () => {
  for (const vm of ['a', 'b']) room.vms.set(vm, { nodeId: 'n1', gb: 1 });
  for (const vm of ['x', 'y']) room.vms.set(vm, { nodeId: 'n2', gb: 1 });
  await room.add(['a', 'x', 'b']);
  await room.world.add({ ...TASK, entities: ['y'], start_date: '2026-03-01T02:01:00Z' });
  const answer = Promise.withResolvers<void>();
  room.answers = async nodeId => (nodeId === 'n1' ? answer.promise : undefined);
  for (const now of [DUE, '2026-03-01T02:01:00Z']) {
    room.world.now = Date.parse(now);
    await room.scheduler.tick();
  }
  await until(() => room.written.length === 2);
  expect(room.written).toEqual(['x', 'y']);
  answer.resolve();
  await room.scheduler.settled();
  expect(room.written.toSorted()).toEqual(['a', 'b', 'x', 'y']);
});

test('a tick does not wait for a node that does not answer the start of a backup, when others of its run are looked after', async () => {
  room.vms.set('a', { nodeId: 'n1', gb: 1 }).set('b', { nodeId: 'n2', gb: 1 });
  for (const vm of ['x', 'y', 'z']) room.vms.set(vm, { nodeId: 'n3', gb: 1 });
  await room.add(['a', 'b', 'x']);
  await room.world.add({ ...TASK, entities: ['y'], start_date: '2026-03-01T02:01:00Z' });
  await room.world.add({ ...TASK, entities: ['z'], start_date: '2026-03-01T02:02:00Z' });
  const answer = Promise.withResolvers<void>();
  room.answers = async nodeId => (nodeId === 'n1' ? answer.promise : undefined);
  room.says = nodeId => {
    if (nodeId === 'n2') room.away.add('n2');
    return true;
  };
  for (const [vm, now] of [
    ['x', DUE],
    ['y', '2026-03-01T02:01:00Z'],
    ['z', '2026-03-01T02:02:00Z'],
  ] as const) {
    room.world.now = Date.parse(now);
    void room.scheduler.tick();
    await until(() => room.written.includes(vm));
  }
  expect(room.written).toEqual(['x', 'y', 'z']);
  answer.resolve();
  await room.scheduler.settled();
});

test('the scan of a pool that does not begin does not keep the scans of other pools waiting', async () => {
  const answer = Promise.withResolvers<void>();
  const begun: string[] = [];
  jest.spyOn(PoolService.prototype, 'scan').mockImplementation(async id => {
    begun.push(id);
    await answer.promise;
    throw new VirtkeepError('pool_not_found', { id });
  });
  await room.world.add({ all: false, action: 'scan', entities: ['p1', 'p2'], start_date: DUE });
  room.world.now = Date.parse(DUE);
  await room.scheduler.tick();
  await until(() => begun.length === 2);
  answer.resolve();
  await room.scheduler.settled();
  expect(begun.toSorted()).toEqual(['p1', 'p2']);
});
