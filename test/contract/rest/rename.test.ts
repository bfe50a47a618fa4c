/** Another name for a VM: who refuses it, and what else was asked with it. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import { makeRestApp, type RestApp } from './app.ts';
import { ended, enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let agent: FakeAgent;

beforeAll(async () => {
  rest = await makeRestApp();
  ({ agent } = await enrolled(rest, 'n1'));
  agent.whenStarted = ({ kind, request }) => {
    if (kind !== 'rename_domain') return;
    agent.setDomain({ id: String(request.domainId), name: String(request.name) });
    agent.succeed(request.operationId, { name: request.name });
  };
});
afterAll(() => stopAll(rest));

async function domain(given: Parameters<FakeAgent['setDomain']>[0] = {}) {
  const made = agent.setDomain({ powerState: PowerState.OFF, ...given });
  await until(async () => (await rest.call('GET', `/api/domains/${made.id}/`)).status === 200);
  return made;
}

const put = (id: string, body: object, query = '') =>
  rest.call('PUT', `/api/domains/${id}/${query}`, { body });
const asked = () => agent.calls.filter(({ kind }) => kind === 'rename_domain').length;

test('is given with the description and tags, as a task', async () => {
  const { id } = await domain();
  const answer = await put(id, { verbose_name: 'web', description: 'the new one', tags: ['kept'] });
  expect([answer.status, answer.body]).toEqual([
    200,
    expect.objectContaining({ id, verbose_name: 'web', description: 'the new one' }),
  ]);
  expect((await rest.call('GET', '/api/domains/?name=web')).body.count).toBe(1);
  const accepted = await put(id, { name: 'web2' }, '?async=1');
  expect([accepted.status, accepted.body.entity]).toEqual([202, id]);
  await ended(rest, accepted.body._task.id);
  expect((await rest.call('GET', `/api/domains/${id}/`)).body.verbose_name).toBe('web2');
});

test('that it has already asks the node for nothing', async () => {
  const { id, name } = await domain();
  const before = asked();
  const answer = await put(id, { verbose_name: name, description: 'x' }, '?async=1');
  expect([answer.status, answer.body.description, asked()]).toEqual([200, 'x', before]);
});

test('is refused with all that was asked with it', async () => {
  const { id } = await domain();
  const other = await domain();
  const before = asked();
  const refused = async (body: object) => {
    const answer = await put(id, { description: 'never', ...body });
    return [answer.status, answer.body.errors[0].msg_key];
  };
  expect(await refused({ verbose_name: other.name })).toEqual([409, 'name_in_use']);
  expect(await refused({ verbose_name: 'a', name: 'b' })).toEqual([400, 'conflicting_fields']);
  agent.setDomain({ id, powerState: PowerState.RUNNING });
  const permissions = async () => (await rest.call('GET', `/api/domains/${id}/`)).body.permissions;
  await until(async () => !(await permissions()).includes('rename'));
  expect(await refused({ verbose_name: 'free' })).toEqual([409, 'power_state_conflict']);
  agent.setDomain({ id, powerState: PowerState.OFF });
  await until(async () => (await permissions()).includes('rename'));
  agent.addState(id, { name: 'mine' });
  await until(async () => !(await permissions()).includes('rename'));
  expect(await refused({ verbose_name: 'free' })).toEqual([409, 'rename_with_states']);
  expect((await rest.call('GET', `/api/domains/${id}/`)).body.description).toBe('');
  expect(asked()).toBe(before);
});

test('that the node refuses is refused with its words', async () => {
  const { id, name } = await domain();
  const refusal = new VirtkeepError('domain_memory_saved', { domain: name, action: 'renamed' });
  const former = agent.whenStarted;
  agent.whenStarted = ({ request }) => agent.fail(request.operationId, refusal);
  try {
    const answer = await put(id, { verbose_name: 'refused' });
    expect([answer.status, answer.body.errors[0].msg_key]).toEqual([409, 'domain_memory_saved']);
  } finally {
    agent.whenStarted = former;
  }
  expect((await rest.call('GET', `/api/domains/${id}/`)).body.verbose_name).toBe(name);
});

test('under a key that is repeated is the same task, however it ended', async () => {
  const { id, name } = await domain();
  const body = { verbose_name: 'keyed', idempotency_key: newId() };
  const first = await put(id, body, '?async=1');
  await ended(rest, first.body._task.id);
  const before = asked();
  const again = await put(id, body, '?async=1');
  expect([again.status, again.body._task?.id]).toEqual([202, first.body._task.id]);
  expect((await put(id, body)).body).toMatchObject({ id, verbose_name: 'keyed' });
  expect((await put(id, { ...body, verbose_name: name })).body.errors[0].msg_key).toBe(
    'idempotency_conflict',
  );
  const former = agent.whenStarted;
  agent.whenStarted = ({ request }) => agent.fail(request.operationId, new VirtkeepError('canceled'));
  const failing = { verbose_name: 'never', idempotency_key: newId() };
  try {
    expect((await put(id, failing)).body.errors[0].msg_key).toBe('canceled');
  } finally {
    agent.whenStarted = former;
  }
  expect((await put(id, failing)).body.errors[0].msg_key).toBe('canceled');
  expect(asked()).toBe(before + 1);
});

test('under a key without another name is answered as it was', async () => {
  const { id } = await domain();
  const body = { description: 'once', idempotency_key: newId() };
  expect((await put(id, body)).body.description).toBe('once');
  await put(id, { description: 'twice' });
  expect((await put(id, body)).body.description).toBe('once');
  expect((await rest.call('GET', `/api/domains/${id}/`)).body.description).toBe('twice');
});
