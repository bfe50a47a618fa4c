/** A node that is gone, a full disk, a clock that jumps, a task that is removed: none of them stops the scheduler, or a run for ever. */
import { describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { loseNextAnswer } from '../../store/test-database.ts';
import type { DefinitionInput } from './definition.ts';
import { DUE, fileRow } from './sample-files.ts';
import { VerifyStep } from './steps/verify-step.ts';
import { OWNER, ScheduleWorld } from './test-kit.ts';

const BROKEN = new VirtkeepError('database_unavailable', { reason: 'it broke' });

/** What happens to the next task of a part, once, when it is written. */
function breakOnce(tasks: ScheduleWorld['tasks'], how: () => Promise<void>): void {
  const create = tasks.create.bind(tasks);
  tasks.create = async input => {
    if (!input.multitask) {
      Reflect.deleteProperty(tasks, 'create');
      await how();
    }
    return create(input);
  };
}

/** Ticks, as long as so many tasks are not begun: what is done behind takes its time. */
async function untilBegun(world: ScheduleWorld, count: number): Promise<void> {
  for (let ticks = 0; ticks < 100 && world.begun.length < count; ticks += 1)
    await world.tick(world.now + 5_000);
}

/** Reads go on, and so do the writes after it. */
function failOneWrite({ mortality }: ScheduleWorld, after: number): void {
  let left = after;
  mortality.transformQuery = ({ node }) => {
    if (node.kind !== 'SelectQueryNode') left -= 1;
    if (node.kind !== 'SelectQueryNode' && left === -1) throw new Error('database or disk is full');
    return node;
  };
}

describe('nothing stays stuck', () => {
  test('a node that never comes back stops the backups of no other node', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE });
    world.nodeOf.set('a', 'dead');
    await world.tick(DUE);
    const { taskId } = world.begun.find(({ entity }) => entity === 'a')!;
    await world.disk.updateTable('tasks').set({ node_id: 'dead' }).where('id', '=', taskId).execute();
    await world.end('b');
    await world.end('c');
    expect(await world.tasks.markLost('dead')).toEqual([taskId]);
    world.away.add('dead');
    world.refusals.set('a', 'node_unreachable');
    world.endsAtOnce = true;
    for (const day of ['02', '03', '04', '05', '06'])
      for (const time of ['01:00', '01:31', '02:00', '02:31', '02:32'])
        await world.tick(`2026-03-${day}T${time}:00Z`);
    const runs = await world.runs(task);
    const backups = world.begun.filter(({ entity }) => entity === 'b').length;
    await world.close();
    expect({ runs: runs.map(({ status }) => status), backups }).toMatchObject({ backups: 6 });
  });

  test('a node that is away for a moment, late in a long run, fails none of its VMs', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE, parallel_limit: 1 });
    await world.tick(DUE);
    world.now = Date.parse('2026-03-01T02:45:00Z');
    world.away.add('n1');
    for (const vm of ['b', 'c']) world.refusals.set(vm, 'node_unreachable');
    await world.end('a');
    const during = await world.parts(task);
    world.away.clear();
    world.refusals.clear();
    await world.tick('2026-03-01T02:45:05Z');
    await world.close();
    expect(during).toEqual({ a: 'SUCCESS', b: 'WAITING', c: 'WAITING' });
  });

  test('a node that was away once, and came back when nobody asked for it, is waited for anew months later', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    await world.add({ start_date: DUE, all: false, entities: ['a'] });
    world.away.add('n1');
    world.refusals.set('a', 'node_unreachable');
    await world.tick(DUE);
    await world.tick('2026-03-01T02:31:00Z');
    world.away.clear();
    await world.tick('2026-03-01T03:00:00Z');
    world.away.add('n1');
    await world.tick('2026-03-02T02:00:00Z');
    const reasons = world.scheduler.queue().map(({ reason }) => reason);
    await world.close();
    expect(reasons).toEqual(['node_away']);
  });

  test('a step that begins no task fails, and does not begin again and again', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
    const create = world.tasks.create.bind(world.tasks);
    world.tasks.create = async input => {
      if (input.multitask) return create(input);
      if (world.begun.length > 100) throw new Error('it spins');
      return undefined as never;
    };
    await world.tick(DUE);
    const parts = await world.parts(task);
    await world.close();
    expect(world.begun).toHaveLength(1);
    expect(parts).toEqual({ a: 'FAILED' });
  });

  test('one write that fails (a full disk) leaves no run that never ends', async () => {
    const stuck: number[] = [];
    for (let writes = 0; writes < 80; writes += 1) {
      const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
      world.vms.splice(0, 3, 'a', 'b');
      await world.add({ start_date: DUE, parallel_limit: 1 });
      world.now = Date.parse(DUE);
      failOneWrite(world, writes);
      for (let round = 0; round < 12; round += 1) {
        await world.tick(world.now + 5_000);
        for (const task of await world.tasks.unfinished())
          if (task.row.is_multitask === 0) await world.nodeEnds(task).catch(() => {});
        await world.scheduler.settled();
      }
      if ((await world.store.running()).length > 0) stuck.push(writes);
      await world.close();
    }
    expect(stuck).toEqual([]);
  });

  test.each(['take', 'insertRun'] as const)(
    'a run that was written, though the answer to `%s` was lost with the connection, is gone on with',
    async name => {
      const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
      const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
      const { store } = world;
      const write = store[name].bind(store) as (...all: unknown[]) => Promise<unknown>;
      const unanswered = async (...all: unknown[]) => {
        Reflect.deleteProperty(store, name);
        await write(...all);
        throw new VirtkeepError('database_unavailable');
      };
      Object.assign(store, { [name]: unanswered });
      if (name === 'take') await world.tick(DUE);
      else await world.scheduler.runNow(task, OWNER, crypto.randomUUID()).catch(() => {});
      await world.tick(world.now + 5_000);
      expect(world.begun).toHaveLength(1);
      await world.end('a');
      const left = await store.running();
      await world.close();
      expect(left).toEqual([]);
    },
  );

  test('a run whose task was written, though the answer to that was lost with the connection, ends as its backup does', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
    const { tasks } = world;
    const create = tasks.create.bind(tasks);
    tasks.create = async input => {
      Reflect.deleteProperty(tasks, 'create');
      loseNextAnswer(world.db);
      return create(input);
    };
    await world.tick(DUE);
    await world.tick(world.now + 5_000);
    await world.end('a');
    const [run] = (await world.store.runsOf(task.id, { limit: 1, offset: 0 })).rows;
    const { status } = (await tasks.get(run!.id)).row;
    const runs = await world.runs(task);
    await world.close();
    expect({ status, runs }).toMatchObject({ status: 'SUCCESS', runs: [{ status: 'SUCCESS' }] });
  });

  test.each<[string, number, (world: ScheduleWorld) => void]>([
    [
      'is planned',
      1,
      ({ backupSteps }) => {
        const [, step] = backupSteps[0]!;
        step.plan = async () => {
          Reflect.deleteProperty(step, 'plan');
          throw BROKEN;
        };
      },
    ],
    [
      'is written as a task',
      2,
      ({ tasks }) =>
        breakOnce(tasks, async () => {
          throw BROKEN;
        }),
    ],
    ['was written as a task', 2, ({ tasks, db }) => breakOnce(tasks, async () => loseNextAnswer(db))],
  ])(
    'a database that breaks while a backup %s fails none, and doubles none',
    async (_when, begins, breaks) => {
      const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
      const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
      breaks(world);
      await world.tick(DUE);
      await untilBegun(world, begins);
      const open = (await world.tasks.unfinished()).filter(({ row }) => row.is_multitask === 0);
      await world.end('a');
      const runs = await world.runs(task);
      await world.close();
      expect(runs).toMatchObject([{ status: 'SUCCESS' }]);
      expect(world.begun).toHaveLength(begins);
      expect(open.map(({ row }) => row.id)).toEqual([world.begun.at(-1)!.taskId]);
    },
  );

  test('a task that failed with the database before its node was told of it is begun anew, a few times', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
    await world.tick(DUE);
    await world.end('a', 'database_unavailable');
    const parts = await world.parts(task);
    for (let again = 0; again < 3; again += 1) await world.end('a', 'database_unavailable');
    const after = await world.parts(task);
    await world.close();
    expect({ parts, after }).toEqual({ parts: { a: 'RUNNING' }, after: { a: 'FAILED' } });
    expect(world.begun).toHaveLength(4);
  });

  test('a comparison that the database keeps from beginning is made, and the backup before it is not lost', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const verify = new VerifyStep({
      backupFiles: { find: async () => fileRow('made', 'made', 0) } as never,
      inventory: {} as never,
      fileActions: {
        verify: async (id, user, taskId) => {
          world.begun.push({ name: 'verify', entity: 'a', taskId });
          const entities = [{ id, class: 'file' }];
          return world.tasks.create({ id: taskId, name: 'verify', verboseName: id, user, entities });
        },
      },
    });
    world.backupSteps.splice(1, 0, ['verify', verify]);
    const task = await world.add({
      ...{ start_date: DUE, all: false, entities: ['a'] },
      options: { hash_sum: true },
    });
    await world.tick(DUE);
    breakOnce(world.tasks, async () => {
      throw BROKEN;
    });
    await world.end('a');
    await untilBegun(world, 3);
    breakOnce(world.tasks, async () => loseNextAnswer(world.db));
    await world.end('a', 'operation_unknown');
    await untilBegun(world, 5);
    await world.end('a');
    const runs = await world.runs(task);
    await world.close();
    expect(world.begun.map(({ name }) => name)).toEqual(['backup', ...Array(4).fill('verify')]);
    expect(runs).toMatchObject([{ status: 'SUCCESS' }]);
  });

  test('a run whose task somebody else has ended ends with its parts', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
    await world.tick(DUE);
    const [run] = await world.store.runningIds();
    await world.tasks.finish(run!.id, { status: 'FAILED', error: new VirtkeepError('interrupted') });
    await world.end('a');
    const runs = await world.runs(task);
    await world.close();
    expect(runs).toMatchObject([{ status: 'SUCCESS' }]);
  });

  test('one VM that goes on failing stops the backups of no other for days', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    await world.add({ start_date: DUE, all: false, entities: ['a', 'b'], retries: 12 });
    for (let now = Date.parse(DUE); now < Date.parse('2026-03-15T02:00:00Z'); now += 3_600_000) {
      await world.tick(now);
      for (const task of await world.tasks.unfinished())
        if (task.row.name === 'backup' && task.entities[0]!.id === 'a')
          await world.tasks.finish(task.row.id, {
            status: 'FAILED',
            error: new VirtkeepError('pool_no_space'),
          });
        else if (task.row.is_multitask === 0) await world.nodeEnds(task);
      await world.scheduler.settled();
    }
    const backups = world.begun.filter(({ entity }) => entity === 'b').length;
    await world.close();
    expect(backups).toBeGreaterThan(10);
  });

  test('a clock that was a year ahead for a moment: the next days have their runs', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.endsAtOnce = true;
    await world.add({ start_date: DUE, all: false, entities: ['a'] });
    await world.tick('2027-03-01T00:00:00Z');
    for (const day of ['01', '02', '03', '04', '05']) await world.tick(`2026-03-${day}T02:00:00Z`);
    const backups = world.begun.length;
    await world.close();
    expect(backups).toBeGreaterThan(4);
  });

  test('a clock that was days ahead for a moment: none of these days is left out', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.endsAtOnce = true;
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
    await world.tick('2026-03-05T01:00:00Z');
    await world.tick('2026-03-01T00:00:05Z');
    const early = (await world.runs(task)).map(({ due }) => due);
    await world.restart();
    for (const day of ['01', '02', '03', '04', '05', '06']) {
      await world.restart();
      await world.tick(`2026-03-${day}T01:59:55Z`);
      await world.tick(`2026-03-${day}T02:00:00Z`);
    }
    const due = (await world.runs(task)).map(({ due }) => due).sort();
    await world.close();
    expect(early).toEqual(['2026-03-04T02:00:00.000Z']);
    expect(due).toEqual([
      ...['01', '02', '03'].map(day => `2026-03-${day}T02:00:00.000Z`),
      '2026-03-04T01:59:59.999Z',
      ...['04', '05', '06'].map(day => `2026-03-${day}T02:00:00.000Z`),
    ]);
  });

  test('a clock that was days ahead for a moment: what it took gives way though the first try to write so fails', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.endsAtOnce = true;
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
    await world.tick('2026-03-05T01:00:00Z');
    await world.tick('2026-03-02T12:00:00Z');
    await world.tick('2026-03-04T01:59:55Z');
    failOneWrite(world, 0);
    await world.tick('2026-03-04T02:00:00Z');
    await world.tick('2026-03-04T02:00:05Z');
    const due = (await world.runs(task)).map(({ due }) => due);
    await world.close();
    expect(due).toEqual(expect.arrayContaining(['2026-03-04T01:59:59.999Z', '2026-03-04T02:00:00.000Z']));
  });

  test('a clock that was days behind for a moment: what was done stays as it is written, and none of it is done again', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.endsAtOnce = true;
    const task = await world.add({ start_date: '2026-02-20T02:00:00Z', all: false, entities: ['a'] });
    const skips = await world.add({ start_date: DUE, all: false, entities: ['b'], missed_run: 'skip' });
    const days = ['01', '02', '03', '04'].map(day => `2026-03-${day}T02:00:00.000Z`);
    for (const day of days) await world.tick(day);
    await world.jump('2026-02-24T00:00:00Z');
    await world.jump('2026-03-05T01:00:05Z');
    const due = [await world.runs(task), await world.runs(skips)].map(runs =>
      runs.map(({ due }) => due).sort(),
    );
    const { toldNotRun } = world;
    await world.close();
    expect(due).toEqual([days, days]);
    expect(toldNotRun).toEqual([]);
  });

  test('a clock that was days behind for a moment: an open window goes on', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.limits = { perNode: 1, perPool: 0 };
    const task = await world.add({ start_date: DUE, window_end: '06:00', window_action: 'cancel' });
    await world.tick(DUE);
    await world.jump('2026-02-20T02:00:30Z');
    await world.jump('2026-03-01T02:00:35Z');
    const parts = await world.parts(task);
    const { window_end } = (await world.store.running())[0]!;
    await world.close();
    expect(parts).toEqual({ a: 'RUNNING', b: 'WAITING', c: 'WAITING' });
    expect(window_end).toBe('2026-03-01T06:00:00.000Z');
  });

  test('a clock that was hours ahead for a moment: no due time is taken, and none is left out', async () => {
    const world = await ScheduleWorld.open('2026-02-28T00:00:00Z');
    world.endsAtOnce = true;
    const monthly: DefinitionInput = {
      start_date: DUE,
      all: false,
      entities: ['a'],
      periodicity: 'monthly',
      month_day: 1,
    };
    const skips = await world.add({ ...monthly, missed_run: 'skip' });
    const once = await world.add({ ...monthly, periodicity: 'once' });
    await world.tick('2026-02-28T09:59:55Z');
    await world.jump('2026-03-01T06:00:00Z');
    await world.jump('2026-02-28T10:00:05Z');
    const early = [...(await world.runs(skips)), ...(await world.runs(once))];
    await world.tick('2026-03-01T01:59:58Z');
    await world.tick('2026-03-01T02:00:03Z');
    const runs = [await world.runs(skips), await world.runs(once)];
    await world.close();
    expect(early).toEqual([]);
    const run = { due: '2026-03-01T02:00:00.000Z', status: 'SUCCESS', missed: 0 };
    expect(runs).toEqual([[run], [run]]);
  });

  test('a clock that was hours ahead for a moment: an open window goes on', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.limits = { perNode: 1, perPool: 0 };
    const task = await world.add({ start_date: DUE, window_end: '06:00', window_action: 'cancel' });
    await world.tick(DUE);
    await world.jump('2026-03-01T07:00:00Z');
    await world.jump('2026-03-01T02:00:10Z');
    const parts = await world.parts(task);
    const toCancel = await world.disk
      .selectFrom('tasks')
      .select('id')
      .where('cancel_requested', '=', 1)
      .execute();
    await world.close();
    expect(parts).toEqual({ a: 'RUNNING', b: 'WAITING', c: 'WAITING' });
    expect(toCancel).toEqual([]);
  });

  test('a clock that was put forward is believed after a minute, and what it has passed is taken then', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
    await world.tick('2026-03-01T00:00:05Z');
    await world.jump('2026-03-01T05:00:00Z');
    await world.tick('2026-03-01T05:00:55Z');
    const early = await world.runs(task);
    await world.tick('2026-03-01T05:01:00Z');
    const runs = await world.runs(task);
    await world.close();
    expect(early).toEqual([]);
    expect(runs).toMatchObject([{ due: '2026-03-01T02:00:00.000Z', status: 'RUNNING' }]);
  });

  test('a clock that was days ahead for long: what is to run once has its backup at its time', async () => {
    const world = await ScheduleWorld.open('2026-02-20T00:00:00Z');
    world.endsAtOnce = true;
    await world.add({ start_date: DUE, all: false, entities: ['a'], periodicity: 'once' });
    await world.tick('2026-03-09T06:00:00Z');
    await world.tick('2026-02-20T10:00:05Z');
    await world.tick('2026-03-01T01:59:58Z');
    const early = world.begun.length;
    await world.tick('2026-03-01T02:00:03Z');
    const all = world.begun.length;
    await world.close();
    expect({ early, all }).toEqual({ early: 1, all: 2 });
  });

  type Moment = (world: ScheduleWorld) => Promise<void>;
  const WRONG: [string, Moment, string][] = [
    [
      'behind',
      async world => {
        await world.tick('2026-03-01T02:00:05Z');
        await world.jump('2026-03-01T01:00:20Z');
        await world.jump('2026-03-01T02:00:35Z');
      },
      '2026-03-01T02:30:35Z',
    ],
    [
      'a year ahead',
      async world => {
        await world.tick('2027-03-01T02:00:00Z');
        await world.tick('2026-03-01T02:00:05Z');
      },
      '2026-03-01T02:30:05Z',
    ],
  ];

  test.each(WRONG)(
    'a clock that was %s for a moment: a node that is away is waited for as long as any',
    async (_how, moment, end) => {
      const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
      const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
      world.away.add('n1');
      world.refusals.set('a', 'node_unreachable');
      await moment(world);
      const during = await world.parts(task);
      await world.tick(end);
      const after = await world.parts(task);
      await world.close();
      expect({ during, after }).toEqual({ during: { a: 'WAITING' }, after: { a: 'FAILED' } });
    },
  );

  test.each(WRONG)(
    'a clock that was %s for a moment: a lost task is waited for as long as any',
    async (_how, moment, end) => {
      const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
      await world.add({ start_date: DUE, all: false, entities: ['a'] });
      await world.tick(DUE);
      await world.disk.updateTable('tasks').set({ node_id: 'n1' }).where('name', '=', 'backup').execute();
      await world.tasks.markLost('n1');
      await moment(world);
      const during = await world.store.openParts();
      await world.tick(end);
      const after = await world.store.openParts();
      await world.close();
      expect([during.length, after.length]).toEqual([1, 0]);
    },
  );

  test('a clock that was a year ahead for a moment: the window of its run ends that day', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    await world.add({ start_date: DUE, parallel_limit: 1, window_end: '05:00' });
    await world.tick('2027-03-01T02:00:00Z');
    await world.tick('2026-03-01T02:00:00Z');
    const during = (await world.store.openParts()).length;
    await world.tick('2026-03-01T05:00:00Z');
    const after = (await world.store.openParts()).length;
    await world.close();
    expect({ during, after }).toEqual({ during: 3, after: 1 });
  });

  test('a clock that was a year ahead for a moment: an attempt that it put off is made', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'], retries: 1 });
    await world.tick('2027-03-01T02:00:05Z');
    await world.end('a', 'node_unreachable');
    const before = await world.parts(task);
    await world.tick('2026-03-01T02:00:05Z');
    await world.close();
    expect(before).toEqual({ a: 'WAITING' });
    expect(world.begun).toHaveLength(2);
  });

  test('a run that cannot be ended does not keep the others from beginning', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    await world.add({ start_date: DUE, all: false, entities: ['a'] });
    await world.add({ start_date: '2026-03-01T03:00:00Z', all: false, entities: ['b'] });
    await world.tick(DUE);
    world.reported.push = () => {
      throw new Error('cannot be told');
    };
    await world.end('a');
    await world.tick('2026-03-01T03:00:00Z');
    await world.tick('2026-03-01T03:00:05Z');
    await world.close();
    expect(world.begun.map(({ entity }) => entity)).toEqual(['a', 'b']);
  });

  test('a run that ends while it is looked after takes no place of its node for ever', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.files.add('a-1');
    world.nodeOf.set('b', 'n2');
    await world.add({ start_date: DUE, all: false, entities: ['a', 'b'] });
    await world.add({ start_date: '2026-03-01T03:00:00Z', all: false, entities: ['c'] });
    await world.tick(DUE);
    world.away.add('n1');
    await world.end('a');
    world.endsAtOnce = true;
    const { store } = world;
    store.parts = async runId => {
      Reflect.deleteProperty(store, 'parts');
      const read = await store.parts(runId);
      world.away.clear();
      await world.end('b');
      return read;
    };
    await world.tick(world.now + 5_000);
    world.limits = { perNode: 1, perPool: 0 };
    await world.tick('2026-03-01T03:00:00Z');
    const statuses = (await world.disk.selectFrom('scheduled_runs').select('status').execute()).map(
      ({ status }) => status,
    );
    await world.close();
    expect(world.begun.map(({ entity }) => entity)).toEqual(['a', 'b', 'c']);
    expect(statuses).toEqual(['SUCCESS', 'SUCCESS']);
  });

  test('a task that is removed in the instant in which a run of it begins does not stop the scheduler', async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const task = await world.add({ start_date: DUE, parallel_limit: 1 });
    await world.add({ start_date: '2026-03-01T03:00:00Z', all: false, entities: ['c'] });
    await world.tick(DUE);
    // ScheduleService.remove asked isRunning before the run was there
    await world.store.removeTask(task.id);
    await world.end('a');
    await world.tick('2026-03-01T03:00:00Z');
    await world.close();
    expect(world.begun.map(({ entity }) => entity)).toContain('c');
  });
});

describe('a backup that is made is told as one, though what comes after it fails', () => {
  const withOldFile = async () => {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.files.add('a-1');
    const task = await world.add({ start_date: DUE, all: false, entities: ['a'] });
    await world.tick(DUE);
    return { world, task };
  };
  const partOf = async ({ disk }: ScheduleWorld) =>
    disk.selectFrom('scheduled_parts').select(['status', 'file_id', 'notes_json']).executeTakeFirstOrThrow();

  test('since its node stays away', async () => {
    const { world, task } = await withOldFile();
    await world.end('a');
    await world.disk.updateTable('tasks').set({ node_id: 'n1' }).where('name', '=', 'file_remove').execute();
    await world.tasks.markLost('n1');
    await world.tick(world.now + 5_000);
    await world.tick(world.now + 1_800_000);
    const part = await partOf(world);
    const runs = await world.runs(task);
    await world.close();
    expect(part).toMatchObject({ status: 'PARTIAL', file_id: 'made' });
    expect(part.notes_json).toContain('n1');
    expect(runs).toMatchObject([{ status: 'PARTIAL' }]);
  });

  test('since nobody can say what is to be deleted', async () => {
    const { world } = await withOldFile();
    world.store.decide = async () => {
      throw new Error('cannot be read');
    };
    await world.end('a');
    const part = await partOf(world);
    await world.close();
    expect(part).toMatchObject({ status: 'PARTIAL', file_id: 'made' });
    expect(JSON.parse(part.notes_json)).toHaveLength(1);
  });
});

test('after a restart a part that had not begun waits for its node', async () => {
  const failed: number[] = [];
  for (let writes = 0; writes < 25; writes += 1) {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    world.vms.splice(0, 3, 'a');
    const task = await world.add({ start_date: DUE });
    world.now = Date.parse(DUE);
    world.mortality.writesLeft = writes;
    await world.tick().catch(() => {});
    const died = world.mortality.writesLeft < 0;
    // the new controller is there before its connections are
    world.away.add('n1');
    world.refusals.set('a', 'node_unreachable');
    await world.restart();
    world.away.clear();
    world.refusals.clear();
    await world.tick(world.now + 5_000);
    const { rows } = await world.store.runsOf(task.id, { limit: 1, offset: 0 });
    const parts = rows.length === 0 ? [] : await world.store.parts(rows[0]!.id);
    if (died && parts.some(({ status }) => status === 'FAILED')) failed.push(writes);
    await world.close();
  }
  expect(failed).toEqual([]);
});

test('the newest run of a task is not forgotten, as `prune` says', async () => {
  const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
  world.endsAtOnce = true;
  const task = await world.add({
    start_date: DUE,
    all: false,
    entities: ['a'],
    periodicity: 'monthly',
    month_day: 1,
  });
  await world.tick(DUE);
  await world.store.prune(new Date('2026-03-20T00:00:00Z'));
  const runs = await world.runs(task);
  await world.close();
  expect(runs).toHaveLength(1);
});
