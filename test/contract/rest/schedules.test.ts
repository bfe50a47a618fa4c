/** Scheduled tasks over REST, with a scripted agent that does what it is told, and a clock that the test sets. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { RestApp } from './app.ts';
import type { LivingNode } from './living-node.ts';
import { ended, stopAll, until } from './nodes-world.ts';
import { DAY_MS, ScheduledNode } from './scheduled-node.ts';
import type { FakeAgent } from './scripted-node.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

let world: ScheduledNode;
let rest: RestApp;
let agent: FakeAgent;
let node: LivingNode;
let pool: Pool;
let vm: Domain;

beforeAll(async () => {
  world = await ScheduledNode.start('2026-03-02T00:00:00Z');
  ({ rest, agent, node } = world);
});
beforeEach(async () => {
  ({ pool, vm } = await world.renew());
});
afterAll(() => stopAll(rest));

const newVm = () => world.newVm();
const make = (settings?: object) => world.make(settings);
const get = (id: string, path?: string) => world.get(id, path);
const at = (time: number | string) => world.at(time);
const filesOf = (id: string) => world.filesOf(id);

describe('made, changed and looked at', () => {
  test('with its defaults, when it is due next, and what it will do', async () => {
    const task = await make({ options: { increment: true }, full_weekdays: ['sun'], window_end: '06:00' });
    expect(task).toMatchObject({
      action: 'backup',
      periodicity: 'daily',
      enabled: true,
      missed_run: 'run_once',
      next_run: '2026-03-02T02:00:00.000Z',
      last_run: null,
      permissions: ['update', 'remove', 'run', 'disable', 'copy'],
    });
    const { runs, targets } = await get(task.id, 'preview/');
    expect(runs).toHaveLength(20);
    expect(runs[0]).toEqual({
      due_time: '2026-03-02T02:00:00.000Z',
      mode: 'increment',
      window_end: '2026-03-02T06:00:00.000Z',
    });
    expect(runs[6]).toMatchObject({ due_time: '2026-03-08T02:00:00.000Z', mode: 'full' });
    expect(targets).toEqual([{ id: vm.id, verbose_name: vm.name, estimate: 5_000_000, manual_states: [] }]);
  });

  test('in the calendar, with the runs that were, for as long as it is enabled', async () => {
    const task = await make({
      start_date: '2026-04-01T02:00:00Z',
      options: { increment: true },
      full_weekdays: ['sun'],
    });
    const calendar = async (query: string): Promise<Json[]> => {
      const { body } = await rest.call('GET', `/api/scheduled-tasks/calendar/?limit=1000&${query}`);
      return body.results.filter((one: Json) => one.scheduled_task.id === task.id);
    };
    const april = 'from=2026-03-30T00:00:00Z&to=2026-05-04T00:00:00Z';
    const runs = await calendar(april);
    expect(runs).toHaveLength(33);
    expect(runs[0]).toEqual({
      scheduled_task: { id: task.id, verbose_name: task.verbose_name },
      time: '2026-04-01T02:00:00.000Z',
      run: null,
      status: null,
      mode: 'increment',
    });
    expect(runs.filter(({ mode }) => mode === 'full').map(({ time }) => time.slice(0, 10))).toEqual([
      '2026-04-05',
      '2026-04-12',
      '2026-04-19',
      '2026-04-26',
      '2026-05-03',
    ]);
    await rest.call('POST', `/api/scheduled-tasks/${task.id}/disable/`);
    expect(await calendar(april)).toEqual([]);
    const { body: started } = await rest.call('POST', `/api/scheduled-tasks/${task.id}/run/?async=1`);
    await ended(rest, started._task.id);
    expect(await calendar('from=2026-03-01T00:00:00Z&to=2026-03-31T00:00:00Z')).toMatchObject([
      { run: started._task.id, status: 'SUCCESS', mode: null },
    ]);
    const wrong = await rest.call(
      'GET',
      '/api/scheduled-tasks/calendar/?from=2026-01-01T00:00:00Z&to=2026-12-01T00:00:00Z',
    );
    expect(wrong.body.errors[0]).toMatchObject({ msg_key: 'invalid_field', field: 'to' });
  });

  test('a tag that is removed is missed by its tasks: their runs are no success, and their records warn', async () => {
    const tag = async (name: string) =>
      (await rest.call('POST', '/api/tags/', { body: { verbose_name: `${name} ${vm.id}` } })).body.id;
    const [chosen, excluded] = [await tag('chosen'), await tag('excluded')];
    const task = await make({ tags: [chosen], exclude_tags: [excluded] });
    expect((await get(task.id)).warnings).toEqual([]);
    for (const id of [chosen, excluded]) await rest.call('POST', `/api/tags/${id}/remove/`);
    expect((await get(task.id)).warnings).toEqual([
      `1 of what it names is gone: ${chosen}.`,
      `Tags that it excludes are gone, and exclude nothing: ${excluded}.`,
    ]);
    const { targets, missing } = await get(task.id, 'preview/');
    expect([targets.map(({ id }: Json) => id), missing]).toEqual([[vm.id], [chosen]]);
    const { body } = await rest.call('POST', `/api/scheduled-tasks/${task.id}/run/?async=1`);
    await ended(rest, body._task.id, 'PARTIAL');
  });

  test('a name is taken once; a copy has another one and is not enabled', async () => {
    const task = await make();
    const { entities, options } = task;
    const body = { verbose_name: task.verbose_name, entities, options };
    const answer = await rest.call('POST', '/api/scheduled-tasks/', { body });
    expect([answer.status, answer.body.errors[0].msg_key]).toEqual([409, 'name_taken']);
    const copy = (await rest.call('POST', `/api/scheduled-tasks/${task.id}/copy/`, { body: {} })).body;
    expect(copy).toMatchObject({ verbose_name: `${task.verbose_name} (2)`, enabled: false, next_run: null });
  });

  test('a change of the time moves what is due next, another one does not', async () => {
    const task = await make();
    const change = (body: object) => rest.call('PUT', `/api/scheduled-tasks/${task.id}/`, { body });
    expect((await change({ limit_days: 3 })).body).toMatchObject({ limit_days: 3, next_run: task.next_run });
    expect((await change({ start_date: '2026-03-02T05:00:00Z' })).body.next_run).toMatch(/T05:00/);
    await rest.call('POST', `/api/scheduled-tasks/${task.id}/disable/`);
    expect(await get(task.id)).toMatchObject({ enabled: false, next_run: null });
    await rest.call('POST', `/api/scheduled-tasks/${task.id}/remove/`);
    expect((await rest.call('GET', `/api/scheduled-tasks/${task.id}/`)).status).toBe(404);
  });

  test('a change of what somebody else has changed meanwhile is refused, and changes nothing', async () => {
    const task = await make();
    const change = (body: object) => rest.call('PUT', `/api/scheduled-tasks/${task.id}/`, { body });
    const first = await change({ limit_days: 3, modified: task.modified });
    expect(first.status).toBe(200);
    const second = await change({ limit_days: 9, modified: task.modified });
    expect([second.status, second.body.errors[0].msg_key]).toEqual([409, 'schedule_changed']);
    expect((await get(task.id)).limit_days).toBe(3);
    expect((await change({ limit_days: 9, modified: first.body.modified })).body.limit_days).toBe(9);
    // who does not say what they looked at changes what is there
    expect((await change({ limit_days: 5 })).body.limit_days).toBe(5);
  });

  test.each([
    [{ entities: [] }, 'invalid_field', 'entities'],
    [{ entities: [randomUUID()] }, 'domain_not_found', undefined],
    [{ periodicity: 'cron', cron: 'every day' }, 'invalid_field', 'cron'],
    [{ periodicity: 'cron', cron: '0 0 31 2 *' }, 'invalid_field', 'cron'],
    [{ time_zone: 'Mars/Olympus' }, 'invalid_field', 'time_zone'],
    [{ increment_limit: 7 }, 'invalid_field', 'increment_limit'],
    [{ full_weekdays: ['sun'] }, 'invalid_field', 'full_weekdays'],
    [{ window_end: '25:00' }, 'invalid_field', 'window_end'],
    [{ name_template: '{host}' }, 'invalid_field', 'name_template'],
    [{ action: 'verify', keep_count: 1 }, 'invalid_field', 'options'],
    [{ options: { datapool: randomUUID() } }, 'pool_not_found', undefined],
    [{ options: { backup: randomUUID() } }, 'file_not_found', undefined],
    [{ entity_class: 'data_pool' }, 'invalid_field', 'entity_class'],
    [{ entity_class: 'node' }, 'invalid_field', 'entity_class'],
  ])('%j is refused', async (settings, key, field) => {
    const body = {
      verbose_name: randomUUID(),
      entities: [vm.id],
      options: { exclude_iso: true },
      ...settings,
    };
    const { status, body: answer } = await rest.call('POST', '/api/scheduled-tasks/', { body });
    expect(status).toBeGreaterThanOrEqual(400);
    expect(answer.errors[0].msg_key).toBe(key);
    if (field !== undefined) expect(answer.errors[0].field).toBe(field);
  });

  test('ids of its options are read as all others: in capitals, and none when they are empty', async () => {
    const task = await make({ options: { increment: true } });
    const { body: started } = await rest.call('POST', `/api/scheduled-tasks/${task.id}/run/?async=1`);
    await ended(rest, started._task.id);
    const [file] = await filesOf(vm.id);
    const change = async (options: object) =>
      (await rest.call('PUT', `/api/scheduled-tasks/${task.id}/`, { body: { options } })).body.options;
    expect(await change({ backup: file.id.toUpperCase(), datapool: '' })).toEqual({ backup: file.id });
    expect(await change({ datapool: pool.id.toUpperCase() })).toEqual({ datapool: pool.id });
  });

  test('the backup that it extends is one of its VM, and may be gone later', async () => {
    const task = await make({ options: { increment: true } });
    const { body: started } = await rest.call('POST', `/api/scheduled-tasks/${task.id}/run/?async=1`);
    await ended(rest, started._task.id);
    const [file] = await filesOf(vm.id);
    const put = (body: object) => rest.call('PUT', `/api/scheduled-tasks/${task.id}/`, { body });
    const options = { backup: file.id };
    const other = (await newVm()).id;
    const refused = { msg_key: 'invalid_field', field: 'options.backup' };
    expect((await put({ options, entities: [other] })).body.errors).toMatchObject([refused]);
    expect((await put({ options })).status).toBe(200);
    expect((await put({ entities: [other] })).body.errors).toMatchObject([refused]);
    const { body: removal } = await rest.call('POST', `/api/library/${file.id}/remove/?async=1`, {
      body: {},
    });
    await ended(rest, removal._task.id);
    expect((await put({ limit_days: 3, options })).body).toMatchObject({ limit_days: 3, options });
  });

  test('what it is about is said with the action, and may be named beside it', async () => {
    const task = await make({ entity_class: 'domain' });
    const { entity_class, verbose_name, options } = task;
    expect(entity_class).toBe('domain');
    const put = (body: object) => rest.call('PUT', `/api/scheduled-tasks/${task.id}/`, { body });
    expect((await put({ entity_class, verbose_name, options })).body).toMatchObject({
      entity_class,
      options,
    });
    const scan = { action: 'scan', entities: [pool.id], options: {}, entity_class: 'data_pool' };
    expect((await put(scan)).body).toMatchObject({ action: 'scan', entity_class: 'data_pool' });
    const both = await put({ entity_class: 'domain' });
    expect(both.body.errors[0]).toMatchObject({ msg_key: 'invalid_field', field: 'entity_class' });
    await rest.call('POST', `/api/scheduled-tasks/${task.id}/remove/`);
  });

  test('it warns of what may surprise', async () => {
    agent.addState(vm.id, { name: 'before the update' });
    const nfs = agent.setPool({ type: 'nfs' });
    await until(async () => (await rest.call('GET', `/api/data-pools/${nfs.id}/`)).status === 200);
    const options = { datapool: nfs.id, increment: true, compress: true };
    await until(async () => {
      const { warnings } = await make({ options, increment_limit: 7, start_date: '2030-01-01T00:00:00Z' });
      return (
        /network.*at most 2/.test(warnings.join()) &&
        /before the update/.test(warnings.join()) &&
        /compressed/.test(warnings.join())
      );
    });
  });
});

describe('run', () => {
  test('now: a task with a part for each VM, told in its history', async () => {
    const task = await make({ start_date: '2030-01-01T00:00:00Z', name_template: '{vm} of {date}' });
    const answer = await rest.call('POST', `/api/scheduled-tasks/${task.id}/run/?async=1`);
    expect(answer.status).toBe(202);
    await ended(rest, answer.body._task.id);
    const [run] = (await get(task.id, 'runs/')).results;
    expect(run).toMatchObject({ task: answer.body._task.id, due_time: null, status: 'SUCCESS' });
    expect(run.parts).toEqual([
      expect.objectContaining({ entity: vm.id, status: 'SUCCESS', mode: 'full', bytes: 10_000_000 }),
    ]);
    const [file] = await filesOf(vm.id);
    expect(file).toMatchObject({ id: run.parts[0].file, description: `${vm.name} of 2026-03-02` });
    expect((await get(task.id)).last_run).toMatchObject({ id: run.id });
  });

  test('no faster than its task and its pool say', async () => {
    const task = await make({ start_date: '2030-01-01T00:00:00Z', bandwidth: 5_000_000 });
    const body = { backup_bandwidth: 70_000_000, latency_target: 20 };
    const changed = await rest.call('PUT', `/api/data-pools/${pool.id}/`, { body });
    expect(changed.body).toMatchObject(body);
    const { body: started } = await rest.call('POST', `/api/scheduled-tasks/${task.id}/run/?async=1`);
    await ended(rest, started._task.id);
    const { request } = agent.calls.findLast(call => call.kind === 'backup')!;
    expect((request as Json).limits).toEqual([
      { key: task.id, bytesPerSecond: 5_000_000n },
      { key: pool.id, bytesPerSecond: 70_000_000n },
    ]);
    expect((request as Json).latencyTargets).toEqual([{ poolId: pool.id, targetMs: 20 }]);
    await rest.call('PUT', `/api/data-pools/${pool.id}/`, { body: { latency_target: 0 } });
  });

  test('waits for its turn, and can be cancelled there', async () => {
    const other = await newVm();
    const task = await make({
      start_date: '2030-01-01T00:00:00Z',
      entities: [vm.id, other.id],
      parallel_limit: 1,
    });
    node.isSlow = true;
    try {
      const { body } = await rest.call('POST', `/api/scheduled-tasks/${task.id}/run/?async=1`);
      await until(async () => (await rest.call('GET', '/api/scheduled-tasks/queue/')).body.count === 1);
      const [waiting] = (await rest.call('GET', '/api/scheduled-tasks/queue/')).body.results;
      expect(waiting).toMatchObject({ position: 1, run: body._task.id, reason: 'task_limit' });
      const again = await rest.call('POST', `/api/scheduled-tasks/${task.id}/run/`);
      expect(again.body.errors[0].msg_key).toBe('schedule_running');
      const removed = await rest.call('POST', `/api/scheduled-tasks/${task.id}/remove/`);
      expect(removed.body.errors[0].msg_key).toBe('schedule_running');
      await rest.call('PUT', `/api/tasks/${body._task.id}/cancel/`);
      const { request } = agent.calls.findLast(call => call.kind === 'backup')!;
      agent.fail(request.operationId, new VirtkeepError('canceled'));
      await until(async () => (await get(task.id)).last_run.status !== 'RUNNING');
      const [run] = (await get(task.id, 'runs/')).results;
      expect(run.parts.map((part: Json) => part.status).sort()).toEqual(['CANCELED', 'CANCELED']);
    } finally {
      node.isSlow = false;
    }
  });

  test('each minute, while the one before goes on: who is told of failed runs is told of that once', async () => {
    const target = { verbose_name: 'hook', events: ['run_failed'] };
    const webhook = { url: 'https://localhost/', secret: randomUUID() };
    await rest.call('POST', '/api/notification-targets/', { body: { ...target, webhook } });
    const task = await make({
      periodicity: 'cron',
      cron: '* * * * *',
      start_date: new Date(world.now).toISOString(),
    });
    node.isSlow = true;
    try {
      for (let minute = 0; minute < 4; minute += 1) await at(world.now + 60_000);
      await rest.services.scheduler.settled();
      const runs = (await get(task.id, 'runs/')).results;
      expect(runs.map((run: Json) => run.status)).toEqual(['SKIPPED', 'SKIPPED', 'SKIPPED', 'RUNNING']);
      const [only, ...others] = (await rest.call('GET', '/api/notifications/')).body.results;
      expect(others).toEqual([]);
      expect((await rest.call('GET', `/api/notifications/${only.id}/`)).body).toMatchObject({
        event: 'run_failed',
        data: { task: { id: task.id }, run: '', reason: 'It did not run: the run before had not ended' },
      });
      await rest.call('POST', `/api/scheduled-tasks/${task.id}/disable/`);
      const { request } = agent.calls.findLast(call => call.kind === 'backup')!;
      agent.fail(request.operationId, new VirtkeepError('canceled'));
      await until(async () => (await get(task.id, 'runs/')).results[3].status !== 'RUNNING');
    } finally {
      node.isSlow = false;
    }
  });
});

test('forty days of the worked pattern: full on Sundays, increments else, a limit, thirty days kept', async () => {
  const broken = await newVm();
  const task = await make({
    entities: [vm.id, broken.id],
    options: { increment: true, hash_sum: true },
    full_weekdays: ['sun'],
    increment_limit: 7,
    limit_days: 30,
    retries: 1,
    retry_delay_s: 60,
  });
  agent.addState(vm.id, { name: 'by hand', created: new Date('2026-01-01T00:00:00Z') });
  const start = Date.parse('2026-03-02T02:00:00Z');
  for (let day = 0; day < 40; day += 1) {
    if (day === 20)
      node.failing.set(
        broken.id,
        new VirtkeepError('domain_busy', { domain: 'x', operation: 'y', kind: 'z' }),
      );
    if (day === 22) node.failing.clear();
    await at(start + day * DAY_MS);
    await at(start + day * DAY_MS + 60_000);
  }
  const { results: runs } = await get(task.id, 'runs/?limit=50');
  expect(runs).toHaveLength(40);
  const statuses = runs.map((run: Json) => run.status).reverse();
  expect(statuses.filter((status: string) => status !== 'SUCCESS')).toEqual(['PARTIAL', 'PARTIAL']);
  expect(statuses[20]).toBe('PARTIAL');
  expect(runs[19].parts.find((part: Json) => part.entity === broken.id)).toMatchObject({
    attempts: 2,
    status: 'FAILED',
  });
  // Monday to Saturday extend what Sunday has begun: six increments, and the limit is seven
  const modes = runs.map((run: Json) => run.parts.find((part: Json) => part.entity === vm.id).mode).reverse();
  expect(modes.slice(0, 14).join()).toBe(
    'full,increment,increment,increment,increment,increment,full,increment,increment,increment,increment,increment,increment,full',
  );
  const files = await filesOf(vm.id);
  const oldest = Math.min(...files.map(file => Date.parse(file.states.at(-1).created)));
  expect(world.now - oldest).toBeLessThanOrEqual(30 * DAY_MS);
  expect(files.length).toBeGreaterThan(3);
  expect(files.every(file => file.hash_sum.ok === true)).toBe(true);
  const removed = agent.calls.filter(({ kind }) => kind === 'delete_backup').length;
  expect(removed).toBeGreaterThan(0);
  const { results: verdicts } = await get(task.id, 'retention-preview/?limit=50');
  expect(verdicts.filter((one: Json) => one.action === 'delete')).toEqual([]);
  const { body: stricter } = await rest.call('POST', `/api/scheduled-tasks/${task.id}/retention-preview/`, {
    as: 'auditor',
    body: { limit_days: 0, keep_count: 1 },
  });
  expect(stricter.results.filter((one: Json) => one.action === 'delete').length).toBeGreaterThan(0);
  expect((await get(task.id)).keep_count).toBe(task.keep_count);
  expect(verdicts.filter((one: Json) => one.reason === 'newest_good')).toHaveLength(2);
  const { savedStates } = agent.domains.get(vm.id)!;
  expect(savedStates.map(state => state.name)).toContain('by hand');
  // those of this week's archive; the others are not extended any more
  expect(savedStates.filter(state => state.backupId !== '')).toHaveLength(3);
});

test('a full pool: the oldest backups of the task make space, and the last good one stays', async () => {
  const task = await make({ free_space_cleanup: true, start_date: '2026-05-01T00:00:00Z' });
  const start = Date.parse('2026-05-01T00:00:00Z');
  for (let day = 0; day < 3; day += 1) await at(start + day * DAY_MS);
  expect(await filesOf(vm.id)).toHaveLength(3);
  agent.setPool({ id: pool.id, available: 2_000_000n });
  await until(
    async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body.free_space === 2_000_000,
  );
  await at(start + 3 * DAY_MS);
  const files = await filesOf(vm.id);
  expect(files.map(file => file.created.slice(0, 10))).toEqual(['2026-05-02', '2026-05-03', '2026-05-04']);
  expect((await get(task.id)).last_run.status).toBe('SUCCESS');
});
