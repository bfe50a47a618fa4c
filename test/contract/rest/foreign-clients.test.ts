/** The main job by small clients that behave as those of the API family do, with a scripted agent behind the server. */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { Disk, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { integer, object, text } from '../clients/kinds.ts';
import { type Job, StrictClient } from '../clients/strict-client.ts';
import { makeRestApp, PASSWORD, type RestApp } from './app.ts';
import { lendHonestly } from './fake-lending.ts';
import { enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent, StartedCall } from './scripted-node.ts';

/** Debian's, which has Debian's aiohttp (`test/lab/setup.sh`). */
const PYTHON = '/usr/bin/python3';
const PYTHON_CLIENT = fileURLToPath(new URL('../clients/main_job.py', import.meta.url));

let rest: RestApp;
let agent: FakeAgent;
let url: string;
let job: Job;

beforeAll(async () => {
  rest = await makeRestApp();
  ({ agent } = await enrolled(rest, 'n1'));
  workHonestly(agent);
  await rest.app.listen({ host: '127.0.0.1', port: 0 });
  url = `http://127.0.0.1:${(rest.app.server.address() as AddressInfo).port}`;
});
beforeEach(async () => {
  const pool = agent.setPool({ shared: true });
  const id = randomUUID();
  const disk = Disk.fromPartial({ id, name: 'd', poolId: pool.id, targetDev: 'vda', targetBus: 'virtio' });
  const domain = agent.setDomain({ disks: [disk] });
  const borrower = agent.setDomain({});
  job = { domain: domain.id, borrower: borrower.id, vdisk: id, datapool: pool.id };
  await until(async () => (await rest.call('GET', `/api/domains/${borrower.id}/`)).status === 200);
});
afterAll(() => stopAll(rest));

/** The agent does at once what it is asked for, as far as its inventory shows. */
function workHonestly(scripted: FakeAgent): void {
  lendHonestly(scripted);
  const lends = scripted.whenStarted;
  scripted.whenStarted = call => {
    if (call.kind === 'backup') backUp(scripted, call);
    else if (call.kind === 'restore') restore(scripted, call);
    else if (call.kind === 'rename_domain') {
      scripted.setDomain({ id: String(call.request.domainId), name: String(call.request.name) });
      scripted.succeed(call.request.operationId);
    } else if (call.kind === 'power') {
      scripted.setDomain({ id: String(call.request.domainId), powerState: PowerState.RUNNING });
      scripted.succeed(call.request.operationId);
    } else lends(call);
  };
}

function backUp(scripted: FakeAgent, { request }: StartedCall): void {
  const { fileId, poolId, domainId } = request as Record<string, string>;
  const domainName = scripted.domains.get(domainId!)!.name;
  const file = scripted.setFile({ id: fileId!, poolId: poolId!, domainId: domainId!, domainName });
  scripted.succeed(request.operationId, { file });
}

function restore(scripted: FakeAgent, { request }: StartedCall): void {
  const { id, name } = scripted.setDomain({
    id: String(request.domainId),
    powerState: PowerState.OFF,
  });
  scripted.succeed(request.operationId, {
    domain_id: id,
    name,
    disks: [],
    warnings: [],
    pool_changed: false,
  });
}

test('one in Python that sends async, an idempotency key and headers of its own with everything', async () => {
  const { domain, borrower, vdisk, datapool } = job;
  const parameters = [url, 'the-administrator', PASSWORD, domain, borrower, vdisk, datapool];
  const { stdout } = await promisify(execFile)(PYTHON, [PYTHON_CLIENT, ...parameters]);
  const made = JSON.parse(stdout) as { file: string; restored: string };
  expect((await rest.call('GET', `/api/library/${made.file}/`)).body.status).toBe('ACTIVE');
  expect((await rest.call('GET', `/api/domains/${made.restored}/`)).body.tags).toMatchObject([
    { verbose_name: `of ${made.restored}` },
  ]);
});

test('one whose types are strict', async () => {
  const client = new StrictClient(url);
  await client.login('the-administrator', PASSWORD);
  const { restored, lent, tags } = await client.mainJob(job);
  expect(lent).toEqual([job.vdisk]);
  expect(tags).toEqual([`of ${restored}`]);
});

test('strict types refuse a wrong kind, and say where', () => {
  const user = object({ user: object({ id: integer, username: text }) });
  expect(() => user({ user: { id: '7', username: 'x' } }, 'task')).toThrow(
    'task.user.id is "7", not an integer',
  );
});
