/** The controller's authority is lost, and its nodes are enrolled for another one, as docs/lost-controller.md tells. */
import { execFile } from 'node:child_process';
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { makeControllerDatabase } from '../../../controller/src/store/test-database.ts';
import { controllerArgv, type LabController, makeController } from '../../lab/controller.ts';
import { freePort } from '../../lab/free-port.ts';
import { makeWorldDir } from '../../lab/paths.ts';
import type { Rest } from '../../lab/rest.ts';
import { nodeRequest, until } from './nodes-world.ts';
import { FakeAgent, type FakeAgentTls } from './scripted-node.ts';

const dir = makeWorldDir();
const agent = new FakeAgent();
let controller: LabController;
let database: Awaited<ReturnType<typeof makeControllerDatabase>>;
let port: number;

beforeAll(async () => {
  database = await makeControllerDatabase(join(dir, 'state'));
  controller = await makeController({ dir, settings: { ...database.settings, agents: { lost_after_s: 1 } } });
  port = await freePort();
});
afterAll(async () => {
  await agent.stop();
  await controller.daemon.kill();
  await database.release();
  rmSync(dir, { recursive: true, force: true });
});

async function enrol(token: string): Promise<FakeAgentTls> {
  const { csrPem: csr_pem, privateKeyPem } = await nodeRequest(agent.id);
  const address = { hostname: 'node.example', address: '127.0.0.1', port };
  const body = { token, csr_pem, node_id: agent.id, ...address };
  const answer = await controller.anonymous().send('POST', '/api/nodes/enroll/', body);
  if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
  const { certificate_pem, ca_pem } = answer.body as { certificate_pem: string; ca_pem: string };
  return { caPem: ca_pem, certificatePem: certificate_pem + ca_pem, privateKeyPem };
}

async function statusOf(rest: Rest): Promise<unknown> {
  return (await rest.send('GET', `/api/nodes/${agent.id}/`)).body.status;
}

async function loseAuthority(): Promise<void> {
  const lost = join(dir, 'lost');
  mkdirSync(lost);
  renameSync(join(dir, 'state', 'pki'), join(lost, 'pki'));
  if (database.target.kind === 'sqlite') return;
  renameSync(join(dir, 'state', 'cluster.key'), join(lost, 'cluster.key'));
  await controller.daemon.spawn();
  expect(await controller.daemon.ended).toBe(78);
  expect(controller.daemon.log()).toContain('docs/lost-controller.md');
  await using db = await database.open();
  await db.deleteFrom('sealed_keys').execute();
}

async function tokenOf(...options: string[]): Promise<string> {
  const [node, ...argv] = controllerArgv(dir);
  return (await promisify(execFile)(node, [...argv, 'node', 'token', ...options])).stdout.trim();
}

test('the nodes are refused until they are enrolled for the new one', async () => {
  await controller.daemon.start();
  await agent.start(await enrol(await tokenOf('--name', 'n1')), port);
  const before = await controller.admin();
  await until(async () => (await statusOf(before)) === 'ACTIVE');

  await controller.daemon.stop();
  await loseAuthority();
  await controller.daemon.start();
  const rest = await controller.admin();
  await until(async () => (await statusOf(rest)) === 'FAILED');
  await expect(enrol(await tokenOf())).rejects.toThrow('--replace');

  const tls = await enrol(await tokenOf('--replace', agent.id));
  await agent.stop();
  await agent.start(tls, port);
  await until(async () => (await statusOf(rest)) === 'ACTIVE');
  expect((await rest.send('GET', '/api/nodes/')).body).toMatchObject({
    count: 1,
    results: [{ verbose_name: 'n1' }],
  });
});
