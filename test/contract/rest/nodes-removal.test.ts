/** A node that died in the middle of its work, was given up and removed: what it had in work is usable again. */
import { X509Certificate } from 'node:crypto';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { makeRestApp, type RestApp } from './app.ts';
import { enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let agents: FakeAgent[];
let certificatePem: string;

beforeEach(async () => {
  rest = await makeRestApp({ agents: { lost_after_s: 0.3 } });
  const [one, two] = [await enrolled(rest, 'n1'), await enrolled(rest, 'n2')];
  agents = [one.agent, two.agent];
  ({ certificatePem } = one.tls);
});
afterEach(() => stopAll(rest));

const fileOf = async (id: string) => (await rest.call('GET', `/api/library/${id}/`)).body;

test('its backup file can be used by another node', async () => {
  const [one, two] = agents as [FakeAgent, FakeAgent];
  const pool = one.setPool({});
  two.setPool(pool);
  const file = one.setFile({ poolId: pool.id });
  two.files.set(file.id, file);
  const known = async () =>
    (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body.nodes_connected?.length;
  await until(async () => (await known()) === 2);
  const scan = await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
  const scanner = agents.find(agent => agent.operations.has(scan.body._task.id))!;
  scanner.succeed(scan.body._task.id, { files: [file] });
  await until(async () => (await fileOf(file.id)).status === 'ACTIVE');

  const { body } = await rest.call('POST', `/api/library/${file.id}/remove/?async=1`, { body: {} });
  const taskId = body._task.id as string;
  const dead = agents.find(agent => agent.operations.has(taskId))!;
  const left = agents.find(agent => agent !== dead)!;
  expect((await fileOf(file.id)).status).toBe('DELETING');
  await dead.stop();
  await until(async () => (await rest.call('GET', `/api/tasks/${taskId}/`)).body.status === 'LOST');
  await rest.call('PUT', `/api/tasks/${taskId}/release-locks/`, { body: {} });
  expect((await fileOf(file.id)).status).toBe('ACTIVE');
  expect((await rest.call('POST', `/api/nodes/${dead.id}/remove/`, { body: {} })).status).toBeLessThan(300);
  expect((await fileOf(file.id)).status).toBe('ACTIVE');
  const verify = await rest.call('POST', `/api/library/${file.id}/verify/?async=1`, { body: {} });
  expect(verify.status).toBe(202);
  expect(left.calls.map(({ kind }) => kind)).toContain('verify');
});

test('one whose certificate is revoked while it is connected is lost with its tasks, and can be removed', async () => {
  const [one] = agents as [FakeAgent, FakeAgent];
  const pool = one.setPool({});
  await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
  const scan = await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
  const { serialNumber: serial } = new X509Certificate(certificatePem);
  expect((await rest.call('POST', '/api/certificates/revoke/', { body: { serial } })).status).toBe(200);
  const task = async () => (await rest.call('GET', `/api/tasks/${scan.body._task.id}/`)).body.status;
  await until(async () => (await task()) === 'LOST');
  const { results } = (await rest.call('GET', '/api/events/?limit=100')).body;
  expect(results).toContainEqual(expect.objectContaining({ message: 'Node n1 is not reachable' }));
  expect((await rest.call('POST', `/api/nodes/${one.id}/remove/`, { body: {} })).status).toBe(200);
});
