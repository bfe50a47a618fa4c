/** One action for many VMs: a task with a part for each. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import type { Role } from '@virtkeep/shared/permissions';
import { makeRestApp, type RestApp } from './app.ts';
import { ended, enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let agent: FakeAgent;

beforeAll(async () => {
  rest = await makeRestApp();
  ({ agent } = await enrolled(rest, 'n1'));
});
afterAll(() => stopAll(rest));

async function twoDomains(): Promise<[Domain, Domain]> {
  const both: [Domain, Domain] = [agent.setDomain({}), agent.setDomain({})];
  for (const { id } of both)
    await until(async () => (await rest.call('GET', `/api/domains/${id}/`)).status === 200);
  return both;
}

const post = (body: object, query = '?async=1', as: Role = 'operator') =>
  rest.call('POST', `/api/domains/multi-manager/${query}`, { as, body });

/** The running operations of these domains on the node, when all have come. */
async function operationsOf(ids: readonly string[]): Promise<string[]> {
  const found = () => ids.map(id => agent.calls.findLast(call => call.request.domainId === id));
  await until(() => found().every(call => call !== undefined));
  return found().map(call => call!.request.operationId);
}

test('its parts are tasks of their own, and it ends with the last of them', async () => {
  const domains = await twoDomains();
  const ids = domains.map(({ id }) => id);
  const accepted = await post({ action: 'reboot', entity_ids: ids, options: { force: true } });
  expect(accepted.status).toBe(202);
  const { id } = accepted.body._task;
  expect(accepted.body._task).toMatchObject({ is_multitask: true, status: 'IN_PROGRESS' });
  expect(Object.keys(accepted.body._task.entities).sort()).toEqual([...ids].sort());
  const operations = await operationsOf(ids);
  const parts = (await rest.call('GET', `/api/tasks/?parent=${id}`)).body.results;
  expect(parts.map((part: { id: string }) => part.id).sort()).toEqual([...operations].sort());
  expect(parts[0]).toMatchObject({ name: 'domain_reboot', user: { username: 'the-operator' } });
  agent.succeed(operations[0]!);
  await ended(rest, operations[0]!);
  const whole = async () => (await rest.call('GET', `/api/tasks/${id}/`)).body;
  await until(async () => (await whole()).progress === 50);
  expect((await whole()).status).toBe('IN_PROGRESS');
  agent.succeed(operations[1]!);
  await ended(rest, id);
  const { response } = (await rest.call('GET', `/api/tasks/${id}/response/`)).body;
  const expected = ids.map((entity, i) => ({ entity, task: operations[i], status: 'SUCCESS', error: null }));
  expect(response.parts).toEqual(expected);
});

test('what one VM refuses leaves the others be', async () => {
  const [one, two] = await twoDomains();
  const gone = newId();
  const answer = post({ action: 'suspend', entity_ids: [one.id, gone, two.id, one.id] }, '');
  const [first, second] = await operationsOf([one.id, two.id]);
  agent.succeed(first!);
  agent.fail(second!, new VirtkeepError('domain_busy', { domain: 'x', operation: 'y', kind: 'backup' }));
  const { status, body } = await answer;
  expect(status).toBe(200);
  expect(body.parts).toEqual([
    expect.objectContaining({ entity: one.id, status: 'SUCCESS' }),
    expect.objectContaining({
      entity: gone,
      task: null,
      error: expect.objectContaining({ msg_key: 'domain_not_found' }),
    }),
    expect.objectContaining({ entity: two.id, status: 'FAILED' }),
  ]);
  const [task] = (await rest.call('GET', `/api/tasks/?entity=${gone}`)).body.results;
  expect(task.status).toBe('PARTIAL');
});

test('it has failed when no part succeeds, and says why', async () => {
  const { status, body } = await post({ action: 'start', entity_ids: [newId()] }, '');
  expect([status, body.errors[0].msg_key]).toEqual([409, 'parts_failed']);
  expect(body.detail).toContain('There is no domain');
});

test('cancelling it cancels its parts', async () => {
  const ids = (await twoDomains()).map(({ id }) => id);
  const { id } = (await post({ action: 'reset', entity_ids: ids })).body._task;
  const operations = await operationsOf(ids);
  await until(async () => (await rest.call('GET', `/api/tasks/?parent=${id}`)).body.count === 2);
  expect((await rest.call('PUT', `/api/tasks/${id}/cancel/`)).status).toBe(200);
  for (const operation of operations) await ended(rest, operation, 'CANCELED');
  await ended(rest, id, 'CANCELED');
});

test('cancelled while start calls are under way, it cancels what they start and begins no more', async () => {
  const domains = Array.from({ length: 6 }, () => agent.setDomain({}));
  const ids = domains.map(({ id }) => id);
  for (const id of ids)
    await until(async () => (await rest.call('GET', `/api/domains/${id}/`)).status === 200);
  const gate = Promise.withResolvers<void>();
  agent.beforeStart = () => gate.promise;
  const partsOf = async (id: string) => (await rest.call('GET', `/api/tasks/?parent=${id}`)).body.results;
  const sentBefore = agent.calls.length;
  const { id } = (await post({ action: 'reset', entity_ids: ids })).body._task;
  await until(() => agent.calls.length === sentBefore + 4);
  expect((await rest.call('PUT', `/api/tasks/${id}/cancel/`)).status).toBe(200);
  agent.beforeStart = () => {};
  gate.resolve();
  await ended(rest, id, 'CANCELED');
  const parts = await partsOf(id);
  expect(parts.map(({ status }: { status: string }) => status)).toEqual(Array(4).fill('CANCELED'));
  expect(agent.calls).toHaveLength(sentBefore + 4);
});

/** Starts an action for two VMs, and ends the first part. @returns the task and the last part. */
async function halfDone(): Promise<{ id: string; last: string }> {
  const ids = (await twoDomains()).map(({ id }) => id);
  const { id } = (await post({ action: 'reset', entity_ids: ids })).body._task;
  const [first, last] = await operationsOf(ids);
  agent.succeed(first!);
  await ended(rest, first!);
  await until(async () => (await rest.call('GET', `/api/tasks/${id}/`)).body.progress === 50);
  return { id, last: last! };
}
const full = new Error('database or disk is full');

test('it ends with its last part when the event that tells of that part cannot be written', async () => {
  const { id, last } = await halfDone();
  const { events } = rest.services;
  const record = events.record.bind(events);
  const spy = jest.spyOn(events, 'record').mockImplementation(async event => {
    if (event.taskId === last) throw full;
    return record(event);
  });
  agent.succeed(last);
  await ended(rest, id);
  expect(spy).toHaveBeenCalledWith(expect.objectContaining({ taskId: last }));
  spy.mockRestore();
});

test('it ends when the nodes are asked for tasks, when its own end could not be written', async () => {
  const { id, last } = await halfDone();
  const spy = jest.spyOn(rest.services.tasks, 'parts').mockRejectedValue(full);
  agent.succeed(last);
  await until(() => spy.mock.calls.length > 0);
  spy.mockRestore();
  expect((await rest.call('GET', `/api/tasks/${id}/`)).body.status).toBe('IN_PROGRESS');
  expect((await rest.call('PUT', '/api/tasks/check/')).status).toBe(200);
  await ended(rest, id);
});

test('saves states and makes backups with the options of one', async () => {
  const [domain] = await twoDomains();
  const pool = agent.setPool({ isBase: true });
  await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
  const state = await post({ action: 'snapshot', entity_ids: [domain.id], options: { verbose_name: 's1' } });
  const [saving] = await operationsOf([domain.id]);
  expect(agent.calls.at(-1)!.request).toMatchObject({ domainId: domain.id, name: 's1' });
  agent.fail(saving!, new VirtkeepError('canceled'));
  await ended(rest, state.body._task.id, 'FAILED');
  const options = { compress: true, datapool: pool.id.toUpperCase() };
  const backup = await post({ action: 'backup', entity_ids: [domain.id], options });
  await until(() => agent.calls.at(-1)!.request.compress === true);
  expect(agent.calls.at(-1)!.request).toMatchObject({ domainId: domain.id, poolId: pool.id });
  agent.fail(agent.calls.at(-1)!.request.operationId, new VirtkeepError('canceled'));
  await until(async () => {
    const { status } = (await rest.call('GET', `/api/tasks/${backup.body._task.id}/`)).body;
    return status === 'FAILED';
  });
});

test('full and force stand beside the action, too, where they mean something', async () => {
  const [domain] = await twoDomains();
  const removal = { action: 'delete', entity_ids: [domain.id], full: true, force: true };
  const both = [{ ...removal, action: 'shutdown' }, removal];
  for (const body of both) {
    const { _task } = (await post(body, '?async=1', 'administrator')).body;
    await until(() => agent.calls.at(-1)!.kind === (body === removal ? 'remove_domain' : 'power'));
    const { kind, request } = agent.calls.at(-1)!;
    expect(request).toMatchObject(body === removal ? { full: true, force: true } : { force: true });
    agent.fail(request.operationId, new VirtkeepError('canceled'));
    await ended(rest, _task.id, 'FAILED');
    expect(kind).toBe(body === removal ? 'remove_domain' : 'power');
  }
});

test.each([
  ['auditor', 'start', 403],
  ['backup_service', 'reboot', 403],
  ['operator', 'remove', 403],
  ['auditor', 'backup', 403],
  ['auditor', 'snapshot', 403],
] as const)('a %s may not %s', async (role, action, status) => {
  const answer = await post({ action, entity_ids: [newId()] }, '?async=1', role);
  expect([answer.status, answer.body.errors[0].msg_key]).toEqual([status, 'permission_denied']);
});

test('options of another action are named, and missing ones', async () => {
  const entity_ids = [randomUUID()];
  const foreign = await post({ action: 'start', entity_ids, options: { full: true } });
  expect(foreign.body.errors[0]).toMatchObject({ msg_key: 'unknown_field', field: 'options.full' });
  const missing = await post({ action: 'snapshot', entity_ids });
  expect(missing.body.errors[0]).toMatchObject({ msg_key: 'missing_field', field: 'options.verbose_name' });
});

test('after a restart, the wish to cancel it reaches the parts that had not heard of it', async () => {
  const user = { id: rest.userIds.operator, username: 'the-operator' };
  const { tasks, multiTasks, db } = rest.services;
  const task = { name: 'multi_start', verboseName: 'Start VMs', user, entities: [], multitask: true };
  const { row } = await tasks.create(task);
  const part = await tasks.create({ ...task, multitask: false, user: { ...user, parent: row.id } });
  await db.updateTable('tasks').set({ cancel_requested: 1 }).where('id', '=', row.id).execute();
  await multiTasks.resume();
  expect((await tasks.get(part.row.id)).row.cancel_requested).toBe(1);
  await tasks.finish(part.row.id, { status: 'CANCELED' });
  expect((await tasks.get(row.id)).row.status).toBe('CANCELED');
});

test('after a restart it ends with what became of its parts, and names what had not begun', async () => {
  const user = { id: rest.userIds.operator, username: 'the-operator' };
  const [begun, never] = [newId(), newId()];
  const entities = [begun, never].map(id => ({ id, class: 'domain' }));
  const { tasks, multiTasks } = rest.services;
  const task = { name: 'multi_start', verboseName: 'Start VMs', user, entities, multitask: true };
  const { row } = await tasks.create(task);
  const part = await tasks.create({
    name: 'domain_start',
    verboseName: 'Start x',
    user: { ...user, parent: row.id },
    entities: entities.slice(0, 1),
  });
  await multiTasks.resume();
  expect((await tasks.get(row.id)).row.status).toBe('IN_PROGRESS');
  await tasks.finish(part.row.id, { status: 'SUCCESS' });
  const { status } = (await tasks.get(row.id)).row;
  expect(status).toBe('PARTIAL');
  const { response } = (await rest.call('GET', `/api/tasks/${row.id}/response/`)).body;
  expect(response.parts[1]).toMatchObject({ entity: never, task: null, error: { msg_key: 'interrupted' } });
});

test('the audit of each VM tells of it, with what was asked of this one', async () => {
  const ids = (await twoDomains()).map(({ id }) => id);
  const body = { action: 'reset', entity_ids: [...ids, ids[0]!.toUpperCase()] };
  const { id: task } = (await post(body)).body._task;
  await until(async () => {
    const { results } = (await rest.call('GET', `/api/audit/?entity=${ids[1]}`)).body;
    return results.length > 0;
  });
  for (const id of ids)
    expect((await rest.call('GET', `/api/audit/?entity=${id}`)).body.results).toEqual([
      expect.objectContaining({ entity: id, task, request: { action: 'reset', entity_ids: [id] } }),
    ]);
  for (const operation of await operationsOf(ids)) agent.succeed(operation);
  await ended(rest, task);
});
