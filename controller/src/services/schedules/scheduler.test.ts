import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { partRecord } from './run-outcome.ts';
import type { NewDecision } from './store.ts';
import { OWNER, ScheduleWorld, ScriptedStep } from './test-kit.ts';

let world: ScheduleWorld;
beforeEach(async () => {
  world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
});
afterEach(() => world.close());

const begunNow = () => world.begun.map(({ entity }) => entity).join('');

describe('a task that is due', () => {
  test('runs once for each of its VMs, and is due again the next day', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z' });
    await world.tick('2026-03-01T01:59:59Z');
    expect(begunNow()).toBe('');
    await world.tick('2026-03-01T02:00:00Z');
    expect(begunNow()).toBe('abc');
    await world.tick('2026-03-01T02:00:05Z');
    expect(begunNow()).toBe('abc');
    for (const vm of 'abc') await world.end(vm);
    expect(await world.runs(task)).toEqual([
      { due: '2026-03-01T02:00:00.000Z', status: 'SUCCESS', missed: 0 },
    ]);
    expect((await world.store.task(task.id))!.next_run).toBe('2026-03-02T02:00:00.000Z');
    expect(world.reported).toHaveLength(1);
  });

  test('its run is a task of many parts, which ends with them', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', verbose_name: 'nightly' });
    await world.tick('2026-03-01T02:00:00Z');
    const { rows } = await world.store.runsOf(task.id, { limit: 1, offset: 0 });
    const whole = await world.tasks.get(rows[0]!.id);
    expect(whole.row).toMatchObject({
      is_multitask: 1,
      verbose_name: 'nightly',
      username: 'owner',
      progress: 0,
    });
    await world.end('a');
    await world.end('b', 'domain_busy');
    expect((await world.tasks.get(rows[0]!.id)).row).toMatchObject({ status: 'IN_PROGRESS', progress: 66 });
    await world.end('c');
    const { row, result } = await world.tasks.get(rows[0]!.id);
    expect(row.status).toBe('PARTIAL');
    expect((result as { parts: object[] }).parts).toEqual([
      expect.objectContaining({ verbose_name: 'a', status: 'SUCCESS' }),
      expect.objectContaining({ verbose_name: 'b', status: 'FAILED' }),
      expect.objectContaining({ verbose_name: 'c', status: 'SUCCESS' }),
    ]);
    expect(await world.tasks.parts(rows[0]!.id)).toHaveLength(3);
  });

  test('says what a step has chosen otherwise than one would think', async () => {
    await world.add({ start_date: '2026-03-01T02:00:00Z', entities: ['a'], all: false });
    jest.spyOn(ScriptedStep.prototype, 'plan').mockResolvedValueOnce({ note: 'one was left out' } as never);
    await world.tick('2026-03-01T02:00:00Z');
    jest.restoreAllMocks();
    await world.end('a');
    const { notes_json, status } = await world.disk
      .selectFrom('scheduled_parts')
      .selectAll()
      .executeTakeFirstOrThrow();
    expect([status, JSON.parse(notes_json)]).toEqual(['SUCCESS', ['one was left out']]);
  });

  test('is skipped, and that is recorded, while its run before has not ended', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', entities: ['a'], all: false });
    await world.tick('2026-03-01T02:00:00Z');
    await world.tick('2026-03-02T02:00:00Z');
    expect((await world.runs(task)).map(({ status }) => status)).toEqual(['SKIPPED', 'RUNNING']);
    await world.end('a');
    await world.tick('2026-03-03T02:00:00Z');
    expect((await world.runs(task)).map(({ status }) => status)).toEqual(['RUNNING', 'SKIPPED', 'SUCCESS']);
  });

  test('is partial when a backup is good and what follows it has failed', async () => {
    world.files.add('a-old');
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', entities: ['a', 'b'], all: false });
    await world.tick('2026-03-01T02:00:00Z');
    for (const vm of 'ab') await world.end(vm);
    const [deletion] = (await world.tasks.unfinished()).filter(({ row }) => row.name === 'file_remove');
    await world.tasks.finish(deletion!.row.id, { status: 'FAILED', error: new VirtkeepError('disk_full') });
    await world.scheduler.settled();
    expect((await world.runs(task))[0]).toMatchObject({ status: 'PARTIAL' });
    const { rows } = await world.store.runsOf(task.id, { limit: 1, offset: 0 });
    const [a, b] = (await world.store.parts(rows[0]!.id)).map(partRecord);
    expect(a).toMatchObject({ status: 'PARTIAL', file: 'made', error: { msg_key: 'disk_full' } });
    expect(a!.notes).toEqual([expect.stringMatching(/^The old backup a-old was not deleted: /)]);
    expect(b).toMatchObject({ status: 'SUCCESS', error: null, notes: [] });
  });

  test('and does not run is told so, together with the record of it, once', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', entities: ['a'], all: false });
    await world.tick('2026-03-01T02:00:00Z');
    const [before] = (await world.store.runsOf(task.id, { limit: 1, offset: 0 })).rows;
    world.refusesToTell = true;
    await world.tick('2026-03-02T02:00:00Z');
    expect((await world.runs(task)).map(({ status }) => status)).toEqual(['RUNNING']);
    world.refusesToTell = false;
    await world.tick('2026-03-02T02:00:05Z');
    await world.tick('2026-03-02T02:00:10Z');
    expect((await world.runs(task)).map(({ status }) => status)).toEqual(['SKIPPED', 'RUNNING']);
    expect(world.toldNotRun).toEqual([
      { reason: 'the run before had not ended', due: '2026-03-02T02:00:00.000Z', former: before!.id },
    ]);
  });

  test('and whose zone is gone from the system is told so, once, and is never due again', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z' });
    const definition_json = JSON.stringify({
      ...JSON.parse(task.definition_json),
      time_zone: 'Mars/Olympus',
    });
    await world.store.updateTask(task.id, { definition_json });
    await world.tick('2026-03-01T02:00:00Z');
    await world.tick('2026-03-01T02:00:05Z');
    expect((await world.store.task(task.id))!.next_run).toBeNull();
    expect(await world.runs(task)).toEqual([
      { due: '2026-03-01T02:00:00.000Z', status: 'SKIPPED', missed: 0 },
    ]);
    expect(world.toldNotRun).toEqual([
      {
        reason: expect.stringMatching(/^it cannot run any more: "Mars\/Olympus" is no time zone/),
        due: '2026-03-01T02:00:00.000Z',
        former: undefined,
      },
    ]);
  });

  test('that was missed runs once, or is recorded as missed', async () => {
    world.endsAtOnce = true;
    const start_date = '2026-03-01T02:00:00Z';
    const once = await world.add({ start_date });
    const never = await world.add({ start_date, missed_run: 'skip' });
    await world.tick('2026-03-05T12:00:00Z');
    expect(await world.runs(once)).toEqual([
      { due: '2026-03-05T02:00:00.000Z', status: 'SUCCESS', missed: 4 },
    ]);
    expect(await world.runs(never)).toEqual([
      { due: '2026-03-05T02:00:00.000Z', status: 'MISSED', missed: 5 },
    ]);
    await world.tick('2026-03-06T02:00:00Z');
    expect((await world.runs(never))[0]).toMatchObject({ status: 'SUCCESS' });
  });

  test('whose VM is gone tells so and does the others', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', all: false, entities: ['a', 'gone'] });
    await world.tick('2026-03-01T02:00:00Z');
    await world.end('a');
    expect((await world.runs(task))[0]).toMatchObject({ status: 'PARTIAL' });
  });

  test('whose VM goes while it waits skips it', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', parallel_limit: 1 });
    await world.tick('2026-03-01T02:00:00Z');
    world.vms.splice(1, 1);
    await world.end('a');
    await world.end('c');
    expect(await world.parts(task)).toEqual({ a: 'SUCCESS', b: 'SKIPPED', c: 'SUCCESS' });
  });

  test('of nothing is told as such: nobody else says why it has failed', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', all: false, tags: ['borne-by-none'] });
    await world.tick('2026-03-01T02:00:00Z');
    expect(world.reportedReasons).toEqual([expect.stringContaining('selects no VM')]);
    const { rows } = await world.store.runsOf(task.id, { limit: 1, offset: 0 });
    expect(rows.map(({ reason }) => reason)).toEqual(world.reportedReasons);
  });

  test('of nothing fails at once', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', all: false, tags: ['none'] });
    await world.tick('2026-03-01T02:00:00Z');
    expect((await world.runs(task))[0]).toMatchObject({ status: 'FAILED' });
  });

  test('a change of the task does not disturb its run', async () => {
    const task = await world.add({ start_date: '2026-03-01T02:00:00Z', parallel_limit: 1 });
    await world.tick('2026-03-01T02:00:00Z');
    const changed = { ...JSON.parse(task.definition_json), parallel_limit: 0, entities: ['c'], all: false };
    await world.store.updateTask(task.id, { definition_json: JSON.stringify(changed), modified: 'later' });
    await world.end('a');
    expect(begunNow()).toBe('ab');
  });
});

describe('limits', () => {
  const due = '2026-03-01T02:00:00Z';

  test('as many VMs of a task at a time as it says', async () => {
    await world.add({ start_date: due, parallel_limit: 2 });
    await world.tick(due);
    expect(begunNow()).toBe('ab');
    expect(world.scheduler.queue().map(({ row, reason }) => [row.entity_id, reason])).toEqual([
      ['c', 'task_limit'],
    ]);
    await world.end('b');
    expect(begunNow()).toBe('abc');
    expect(world.scheduler.queue()).toEqual([]);
  });

  test('as many of a node, in turn between tasks', async () => {
    world.limits = { perNode: 2, perPool: 0 };
    world.vms.splice(0, 3, 'a', 'b', 'c', 'x');
    await world.add({ start_date: due, all: false, entities: ['a', 'b', 'c'] });
    await world.add({ start_date: '2026-03-01T02:00:01Z', all: false, entities: ['x'] });
    await world.tick('2026-03-01T02:00:02Z');
    expect(begunNow()).toBe('ax');
  });

  test('what somebody asked for comes before what is due', async () => {
    world.limits = { perNode: 1, perPool: 0 };
    await world.add({ start_date: due });
    const other = await world.add({ start_date: '2026-04-01T00:00:00Z', all: false, entities: ['c'] });
    await world.tick(due);
    await world.scheduler.runNow(other, OWNER, newId());
    await world.end('a');
    expect(begunNow()).toBe('ac');
  });

  test('a node that is away is waited for, but not for ever', async () => {
    world.away.add('n1');
    await world.add({ start_date: due });
    await world.tick(due);
    await world.tick('2026-03-01T02:29:59Z');
    expect(begunNow()).toBe('');
    expect(world.scheduler.queue().map(({ reason }) => reason)).toEqual([
      'node_away',
      'node_away',
      'node_away',
    ]);
    await world.tick('2026-03-01T02:30:00Z');
    expect(begunNow()).toBe('abc');
  });

  test('what has not begun when the window ends does not begin', async () => {
    const task = await world.add({ start_date: due, parallel_limit: 1, window_end: '06:00' });
    await world.tick(due);
    await world.tick('2026-03-01T06:00:00Z');
    await world.end('a');
    expect(begunNow()).toBe('a');
    expect(await world.parts(task)).toEqual({ a: 'SUCCESS', b: 'SKIPPED', c: 'SKIPPED' });
    expect((await world.runs(task))[0]).toMatchObject({ status: 'PARTIAL' });
  });
});

describe('failures', () => {
  const due = '2026-03-01T02:00:00Z';

  test('that may pass are tried again, later each time, as often as the task says', async () => {
    const task = await world.add({
      start_date: due,
      all: false,
      entities: ['a'],
      retries: 2,
      retry_delay_s: 60,
    });
    await world.tick(due);
    await world.end('a', 'domain_busy');
    expect(begunNow()).toBe('a');
    await world.tick('2026-03-01T02:00:59Z');
    expect(begunNow()).toBe('a');
    await world.tick('2026-03-01T02:01:00Z');
    expect(begunNow()).toBe('aa');
    await world.end('a', 'domain_busy');
    await world.tick('2026-03-01T02:02:59Z');
    expect(begunNow()).toBe('aa');
    await world.tick('2026-03-01T02:03:00Z');
    await world.end('a', 'domain_busy');
    expect(begunNow()).toBe('aaa');
    expect((await world.runs(task))[0]).toMatchObject({ status: 'FAILED' });
  });

  test('that will not pass are not', async () => {
    const task = await world.add({ start_date: due, all: false, entities: ['a'], retries: 2 });
    await world.tick(due);
    await world.end('a', 'pool_read_only');
    expect((await world.runs(task))[0]).toMatchObject({ status: 'FAILED' });
  });

  test('a refusal before there is a task is one, too', async () => {
    world.refusals.set('b', 'pool_read_only');
    const task = await world.add({ start_date: due });
    await world.tick(due);
    await world.end('a');
    await world.end('c');
    expect(await world.parts(task)).toEqual({ a: 'SUCCESS', b: 'FAILED', c: 'SUCCESS' });
  });
});

test('cancelled: what waits never begins, and the run ends with what runs', async () => {
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z', parallel_limit: 1 });
  await world.tick('2026-03-01T02:00:00Z');
  const { rows } = await world.store.runsOf(task.id, { limit: 1, offset: 0 });
  await world.tasks.cancel(rows[0]!.id, { ...OWNER, role: 'administrator' } as never);
  await world.scheduler.settled();
  expect(await world.parts(task)).toEqual({ a: 'RUNNING', b: 'CANCELED', c: 'CANCELED' });
  await world.tasks.finish(world.begun[0]!.taskId, { status: 'CANCELED' });
  await world.scheduler.settled();
  expect((await world.runs(task))[0]).toMatchObject({ status: 'CANCELED' });
  expect((await world.tasks.get(rows[0]!.id)).row.status).toBe('CANCELED');
});

test('what a controller that is stopping refuses has not failed: the next one begins it', async () => {
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z' });
  world.refusals.set('a', 'draining');
  await world.tick('2026-03-01T02:00:00Z');
  expect(await world.parts(task)).toEqual({ a: 'RUNNING', b: 'RUNNING', c: 'RUNNING' });
  world.refusals.clear();
  await world.restart();
  const [first, , , again] = world.begun;
  expect(again).toEqual(first);
  for (const vm of 'abc') await world.end(vm);
  expect((await world.runs(task))[0]).toMatchObject({ status: 'SUCCESS' });
});

test('nothing begins while the controller is stopping', async () => {
  world.draining.abort();
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z' });
  await world.tick('2026-03-01T02:00:00Z');
  expect(begunNow()).toBe('');
  expect(await world.runs(task)).toEqual([]);
});

test('the window of a run that is made up for ends after it has begun', async () => {
  world.endsAtOnce = true;
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z', window_end: '06:00' });
  await world.tick('2026-03-02T12:00:00Z');
  await world.tick('2026-03-02T12:00:05Z');
  expect((await world.runs(task))[0]).toMatchObject({ due: '2026-03-02T02:00:00.000Z', status: 'SUCCESS' });
});

test('a run that somebody asks for is refused while one has not ended', async () => {
  const task = await world.add({ start_date: '2026-04-01T00:00:00Z' });
  await world.scheduler.runNow(task, OWNER, newId());
  await expect(world.scheduler.runNow(task, OWNER, newId())).rejects.toMatchObject({
    msgKey: 'schedule_running',
  });
});

test('a clock that is put back makes nothing due again', async () => {
  world.endsAtOnce = true;
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z' });
  await world.tick('2026-03-01T02:00:00Z');
  await world.tick('2026-03-01T00:30:00Z');
  await world.restart();
  await world.tick('2026-03-01T02:00:00Z');
  expect(await world.runs(task)).toHaveLength(1);
});

test('what was taken stays so when the clock was put back before a restart', async () => {
  const task = await world.add({ periodicity: 'hourly', every: 1, start_date: '2026-03-01T01:00:00Z' });
  await world.tick('2026-03-01T03:00:00Z');
  for (const vm of world.vms) await world.end(vm);
  world.now = Date.parse('2026-03-01T00:30:00Z');
  await world.restart();
  await world.tick('2026-03-01T02:10:00Z');
  expect(await world.runs(task)).toEqual([{ due: '2026-03-01T03:00:00.000Z', status: 'SUCCESS', missed: 2 }]);
  await world.tick('2026-03-01T04:00:00Z');
  expect((await world.runs(task)).map(({ due }) => due)).toContain('2026-03-01T04:00:00.000Z');
});

test('a clock that is days behind when the controller starts changes nothing of what was done, and nothing is done again', async () => {
  world.endsAtOnce = true;
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z', all: false, entities: ['a'] });
  const days = ['01', '02', '03', '04'].map(day => `2026-03-${day}T02:00:00.000Z`);
  for (const day of days) await world.tick(day);
  world.now = Date.parse('2026-02-24T00:00:00Z');
  await world.restart();
  await world.tick();
  await world.tick('2026-03-05T01:00:05Z');
  expect(world.begun).toHaveLength(4);
  expect((await world.runs(task)).map(({ due }) => due).sort()).toEqual(days);
  expect(world.toldNotRun).toEqual([]);
  await world.tick('2026-03-05T02:00:00Z');
  expect(world.begun).toHaveLength(5);
});

test('a clock that is far behind when the controller starts does not make up for what was due before a task was made', async () => {
  world.now = Date.parse('2026-03-10T12:00:00Z');
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z' });
  world.now = Date.parse('1970-01-01T00:00:10Z');
  await world.restart();
  await world.tick();
  await world.jump('2026-03-10T12:30:00Z');
  await world.tick('2026-03-10T12:32:00Z');
  expect(await world.runs(task)).toEqual([]);
  expect((await world.store.task(task.id))!.next_run).toBe('2026-03-11T02:00:00.000Z');
  await world.tick('2026-03-11T02:00:00Z');
  expect(await world.runs(task)).toMatchObject([{ due: '2026-03-11T02:00:00.000Z', missed: 0 }]);
});

test.each([
  ['2026-03-01T02:00:02.000Z', '2026-03-01T02:00:04.000Z'],
  ['2026-03-01T09:00:02.000Z', '2026-03-01T09:00:04.000Z'],
])('a task that is due, and changed at %s before somebody looks, has its run', async (modified, seen) => {
  world.now = Date.parse('2026-03-01T01:00:00Z');
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z' });
  await world.tick('2026-03-01T01:59:59Z');
  await world.store.updateTask(task.id, { modified });
  await world.tick(seen);
  expect(await world.runs(task)).toMatchObject([{ due: '2026-03-01T02:00:00.000Z', status: 'RUNNING' }]);
});

test('a plan that names more files than one statement binds is written down, all of it in its order', async () => {
  const task = await world.add({ start_date: '2026-03-01T02:00:00Z', entities: ['a'], all: false });
  await world.tick('2026-03-01T02:00:00Z');
  const { rows } = await world.store.runsOf(task.id, { limit: 1, offset: 0 });
  const part = { run_id: rows[0]!.id, position: 0 };
  const decisions = Array.from(
    { length: 5000 },
    (_, index): NewDecision => ({
      ...part,
      id: newId(),
      file_id: `f${index}`,
      archive_id: `f${index}`,
      filename: `f${index}.tar`,
      domain_id: 'a',
      size: 1,
      reason: 'too_old',
      status: 'DECIDED',
      error_json: null,
      decided: '2026-03-01T02:00:00.000Z',
      finished: null,
    }),
  );
  await world.store.decide(part, decisions, 'decided');
  const written = await world.store.decisions(part);
  expect(written.map(({ file_id }) => file_id)).toEqual(decisions.map(({ file_id }) => file_id));
  expect((await world.store.part(part))!.subject).toBe('decided');
});
