/** Nodes, data pools and domains over REST, with scripted agents over real mutual TLS. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Role } from '@virtkeep/shared/permissions';
import { clockStopped } from '../../../controller/src/auth/stopped-clock.ts';
import { makeRestApp, type RestApp } from './app.ts';
import {
  type Enrolled,
  ended,
  enrolled,
  nodeRequest,
  redeem,
  status,
  stopAll,
  until,
} from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let one: Enrolled;
let two: Enrolled;
let agent: FakeAgent;

beforeAll(async () => {
  rest = await makeRestApp({ agents: { lost_after_s: 0.3 } });
  one = await enrolled(rest, 'n1');
  two = await enrolled(rest, 'n2');
  agent = one.agent;
});
afterAll(() => stopAll(rest));

async function ticket(body: object = {}) {
  return (await rest.call('POST', '/api/nodes/', { body })).body;
}

describe('enrolment', () => {
  const nodeId = randomUUID();

  test('shows the token once and keeps only its hash', async () => {
    const made = await ticket({ verbose_name: 'n9', address: 'n9.example:9000' });
    expect(made.token).toMatch(new RegExp(`^[A-Za-z0-9_-]{20,}\\.${rest.ca.fingerprint}$`));
    const rows = await rest.services.db.selectFrom('node_enrolments').selectAll().execute();
    expect(JSON.stringify(rows)).not.toContain(made.token.split('.')[0]);
    expect(Date.parse(made.expires_on)).toBeGreaterThan(Date.now());
  });

  test('a token works once, and a bad request does not use it up', async () => {
    const made = await ticket({ verbose_name: 'n3' });
    const { csrPem } = await nodeRequest(nodeId);
    const bad = await redeem(rest, { token: made.token, nodeId, port: 1, csrPem: 'no request' });
    expect(bad.body.errors[0]).toMatchObject({ msg_key: 'invalid_field', field: 'csr_pem' });
    expect((await redeem(rest, { token: made.token, nodeId, port: 1, csrPem })).status).toBe(200);
    const again = await redeem(rest, { token: made.token, nodeId, port: 1, csrPem });
    expect(again.body.errors[0].msg_key).toBe('enrolment_token_invalid');
    await rest.call('POST', `/api/nodes/${nodeId}/remove/`, { body: {} });
  });

  test('refuses a foreign fingerprint, an expired token and a name in use', async () => {
    const { csrPem } = await nodeRequest(nodeId);
    const made = await ticket({ verbose_name: 'n1' });
    const foreign = `${made.token.split('.')[0]}.${'0'.repeat(64)}`;
    expect((await redeem(rest, { token: foreign, nodeId, port: 1, csrPem })).status).toBe(400);
    const taken = await redeem(rest, { token: made.token, nodeId, port: 1, csrPem });
    expect(taken.body.errors[0].msg_key).toBe('name_taken');
    await rest.services.db
      .updateTable('node_enrolments')
      .set({ expires_on: '2020-01-01T00:00:00Z' })
      .execute();
    const late = await redeem(rest, { token: made.token, nodeId, port: 1, csrPem });
    expect(late.body.errors[0].msg_key).toBe('enrolment_token_invalid');
  });

  test('is for administrators, and bad addresses are refused', async () => {
    const refused = await rest.call('POST', '/api/nodes/', { as: 'operator', body: {} });
    expect(refused.body.errors[0].msg_key).toBe('permission_denied');
    const bad = await rest.call('POST', '/api/nodes/', { body: { address: 'a b' } });
    expect(bad.body.errors[0]).toMatchObject({ msg_key: 'invalid_field', field: 'address' });
  });

  test(
    'guessing is slowed down',
    clockStopped(async () => {
      const other = await makeRestApp();
      const { csrPem } = await nodeRequest(nodeId);
      const answers = [];
      for (let i = 0; i < 12; i += 1)
        answers.push(await redeem(other, { token: 'a.b', nodeId, port: 1, csrPem }));
      expect(answers[0]!.status).toBe(400);
      expect(answers.map(answer => answer.status)).toContain(429);
      await other.close();
    }),
  );
});

test('many nodes enrol from one address', async () => {
  const answers = [];
  for (let number = 0; number < 15; number += 1) {
    const made = await ticket({ verbose_name: `many-${number}` });
    const id = randomUUID();
    const { csrPem } = await nodeRequest(id);
    answers.push((await redeem(rest, { token: made.token, nodeId: id, port: 1, csrPem })).status);
    await rest.call('POST', `/api/nodes/${id}/remove/`, { body: {} });
  }
  expect(answers).toEqual(Array(15).fill(200));
});

describe('nodes', () => {
  test('are listed with what they told of themselves', async () => {
    const { body } = await rest.call('GET', '/api/nodes/?ordering=verbose_name');
    expect(body.count).toBe(2);
    expect(body.results[0]).toMatchObject({
      id: agent.id,
      verbose_name: 'n1',
      status: 'ACTIVE',
      management_ip: '127.0.0.1',
      hypervisor: { libvirt: '9.0.0', emulator: '7.2.0' },
      memory_count: 4096,
    });
  });

  test('in service mode take no new operations', async () => {
    const domain = agent.setDomain({});
    await seen(domain.id);
    const changed = await rest.call('PUT', `/api/nodes/${agent.id}/`, {
      body: { service_mode: true, description: 'rack 4' },
    });
    expect(changed.body).toMatchObject({ status: 'SERVICE', description: 'rack 4' });
    const refused = await rest.call('POST', `/api/domains/${domain.id}/reboot/`, { body: {} });
    expect(refused.body.errors[0].msg_key).toBe('node_in_service');
    await rest.call('PUT', `/api/nodes/${agent.id}/`, { body: { service_mode: false } });
    agent.removeDomain(domain.id);
  });

  test('get a base data pool that they have', async () => {
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const { body } = await rest.call('PUT', `/api/nodes/${agent.id}/`, { body: { base_datapool: pool.id } });
    expect(body.base_datapool).toBe(pool.id);
    expect(agent.pools.get(pool.id)?.isBase).toBe(true);
    const other = await rest.call('PUT', `/api/nodes/${two.agent.id}/`, { body: { base_datapool: pool.id } });
    expect(other.body.errors[0].msg_key).toBe('pool_not_found');
  });

  test('unknown ids, unknown fields and wrong types are told', async () => {
    expect((await rest.call('GET', `/api/nodes/${randomUUID()}/`)).body.errors[0].msg_key).toBe(
      'node_not_found',
    );
    expect((await rest.call('GET', '/api/nodes/xyz/')).status).toBe(400);
    const odd = await rest.call('PUT', `/api/nodes/${agent.id}/`, {
      body: { colour: 1, service_mode: 'yes' },
    });
    expect(odd.body.errors.map((e: { msg_key: string }) => e.msg_key).sort()).toEqual([
      'invalid_field',
      'unknown_field',
    ]);
  });

  test('that vanish keep their things, marked', async () => {
    const domain = two.agent.setDomain({ name: 'kept' });
    await seen(domain.id);
    await two.agent.stop();
    await status(rest, two.agent.id, 'FAILED');
    const { body } = await rest.call('GET', `/api/domains/${domain.id}/`);
    expect(body).toMatchObject({ verbose_name: 'kept', status: 'FAILED', user_power_state: 0 });
    expect(body.permissions).not.toContain('shutdown');
    const refused = await rest.call('POST', `/api/domains/${domain.id}/shutdown/`, { body: {} });
    expect(refused.body.errors[0].msg_key).toBe('node_unreachable');
    await two.agent.start(two.tls);
    await status(rest, two.agent.id, 'ACTIVE');
    expect((await rest.call('GET', `/api/domains/${domain.id}/`)).body.user_power_state).toBe(3);
    two.agent.removeDomain(domain.id);
  });
});

/** Waits until the controller knows a domain. */
async function seen(id: string): Promise<void> {
  await until(async () => (await rest.call('GET', `/api/domains/${id}/`)).status === 200);
}

describe('data pools', () => {
  test('of the same uuid on two nodes are one', async () => {
    const id = randomUUID();
    agent.setPool({ id, name: 'shared', type: 'nfs' });
    two.agent.setPool({ id, name: 'shared', type: 'nfs', mounted: false });
    const own = agent.setPool({ name: 'own' });
    await until(
      async () => (await rest.call('GET', `/api/data-pools/?node=${two.agent.id}`)).body.count === 1,
    );
    await until(async () => (await rest.call('GET', `/api/data-pools/${own.id}/`)).status === 200);
    const { body } = await rest.call('GET', `/api/data-pools/${id}/`);
    expect(body).toMatchObject({
      status: 'ACTIVE',
      shared: true,
      shared_storage: { id: body.id, verbose_name: body.verbose_name },
      free_space: 9_000_000_000,
    });
    expect(
      body.nodes_connected.map((n: { connection_status: string }) => n.connection_status).sort(),
    ).toEqual(['ACTIVE', 'INACTIVE']);
    const list = await rest.call('GET', '/api/data-pools/?type=local&name=OWN');
    expect(list.body.results.map((pool: { id: string }) => pool.id)).toEqual([own.id]);
  });

  test('are marked on all their nodes, also on one that comes back later', async () => {
    const id = randomUUID();
    agent.setPool({ id });
    two.agent.setPool({ id });
    await until(
      async () => (await rest.call('GET', `/api/data-pools/${id}/`)).body.nodes_connected?.length === 2,
    );
    await two.agent.stop();
    await status(rest, two.agent.id, 'FAILED');
    const { body } = await rest.call('PUT', `/api/data-pools/${id}/`, {
      body: { readonly: true, description: 'old' },
    });
    expect(body).toMatchObject({ readonly: true, description: 'old' });
    expect(agent.pools.get(id)?.readonly).toBe(true);
    await two.agent.start(two.tls);
    await until(() => two.agent.pools.get(id)?.readonly === true);
  });

  test('are scanned as a task, whose result is the pool', async () => {
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const answer = rest.call('POST', `/api/data-pools/${pool.id}/scan/`, { body: {} });
    await until(() => agent.calls.some(call => call.kind === 'scan_pool' && call.request.poolId === pool.id));
    const { operationId, thorough } = agent.calls.findLast(call => call.request.poolId === pool.id)!.request;
    expect(thorough).toBe(true);
    agent.setFile({ poolId: pool.id });
    agent.succeed(operationId, { files: [...agent.files.values()] });
    expect((await answer).body).toMatchObject({ id: pool.id, file_count: 1 });
  });

  test('have the files that were found, though these could not be told at once', async () => {
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const file = agent.setFile({ poolId: pool.id });
    agent.whenStarted = ({ kind, request }) => {
      if (kind === 'scan_pool') agent.succeed(request.operationId, { files: [file] });
    };
    let failures = 1;
    agent.beforeFiles = () => {
      failures -= 1;
      if (failures >= 0) throw new VirtkeepError('io_failed', { action: 'reading', path: '/x', reason: 'x' });
    };
    const { status: answered } = await rest.call('POST', `/api/data-pools/${pool.id}/scan/`, { body: {} });
    expect(answered).toBe(200);
    await until(async () => (await rest.call('GET', `/api/library/${file.id}/`)).body.status === 'ACTIVE');
    agent.beforeFiles = () => {};
    agent.whenStarted = () => {};
  });

  test('lose no file that the scan has seen, and the node does not tell', async () => {
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const files = [agent.setFile({ poolId: pool.id }), agent.setFile({ poolId: pool.id })];
    const statuses = () =>
      Promise.all(files.map(async ({ id }) => (await rest.call('GET', `/api/library/${id}/`)).body.status));
    agent.whenStarted = ({ kind, request }) => {
      if (kind === 'scan_pool') agent.succeed(request.operationId, { files });
    };
    const scan = () => rest.call('POST', `/api/data-pools/${pool.id}/scan/`, { body: {} });
    await scan();
    expect(await statuses()).toEqual(['ACTIVE', 'ACTIVE']);
    // its mount has come back, and what was known was forgotten meanwhile
    agent.beforeFiles = () => void agent.scanned.set(pool.id, []);
    await scan();
    expect(await statuses()).toEqual(['ACTIVE', 'ACTIVE']);
    agent.beforeFiles = () => {};
    agent.whenStarted = () => {};
  });

  test('are taken over when their scan ends while the node is away', async () => {
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const asked = await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
    const { id } = asked.body._task;
    await until(() => agent.operations.has(id));
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    const file = agent.setFile({ poolId: pool.id });
    agent.succeed(id, { files: [file] });
    await agent.start(one.tls);
    await until(async () => (await rest.call('GET', `/api/tasks/${id}/`)).body.status === 'SUCCESS');
    // taken over before the task has ended, not tried again after a while
    expect((await rest.call('GET', `/api/library/${file.id}/`)).body.status).toBe('ACTIVE');
  });

  test('of an agent of before, whose result tells all files, are taken over', async () => {
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const file = agent.setFile({ poolId: pool.id });
    agent.whenStarted = ({ kind, request }) => {
      if (kind === 'scan_pool') agent.succeed(request.operationId, { files: [file] }, { asBefore: true });
    };
    await rest.call('POST', `/api/data-pools/${pool.id}/scan/`, { body: {} });
    expect((await rest.call('GET', `/api/library/${file.id}/`)).body.status).toBe('ACTIVE');
    agent.whenStarted = () => {};
  });

  test('of a node that is back are scanned, and nothing is unpacked for that', async () => {
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    await agent.start(one.tls);
    const scans = () =>
      agent.calls.filter(call => call.kind === 'scan_pool' && call.request.poolId === pool.id);
    await until(() => scans().length > 0);
    expect(scans().map(({ request }) => request.thorough)).toEqual([false]);
  });

  test('are not scanned by what is known from before while their node does not see them, and are when they are back', async () => {
    const pool = agent.setPool({});
    const file = agent.setFile({ poolId: pool.id });
    const scans = () =>
      agent.calls.filter(call => call.kind === 'scan_pool' && call.request.poolId === pool.id);
    const statusOfFile = async () => (await rest.call('GET', `/api/library/${file.id}/`)).body.status;
    const connection = async () =>
      (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body.nodes_connected?.[0].connection_status;
    // what is not mounted looks empty
    agent.whenStarted = ({ kind, request }) => {
      if (kind !== 'scan_pool') return;
      const isThere = agent.pools.get(request.poolId as string)?.mounted;
      const files = [...agent.files.values()].filter(({ poolId }) => isThere && poolId === request.poolId);
      agent.succeed(request.operationId, { files });
    };
    await until(async () => (await connection()) === 'ACTIVE');
    await rest.call('POST', `/api/data-pools/${pool.id}/scan/`, { body: {} });
    expect(await statusOfFile()).toBe('ACTIVE');

    const lastEvent = async () =>
      (await rest.call('GET', `/api/events/?entity=${agent.id}&limit=1`)).body.results[0].message;
    await agent.stop();
    await until(async () => (await lastEvent()) === 'Node n1 is not reachable');
    // the node has started anew: neither its libvirt nor the share is there
    agent.pools.delete(pool.id);
    agent.info.libvirtConnected = false;
    await agent.start(one.tls);
    await until(async () => (await lastEvent()) === 'Node n1 is connected');
    agent.setPool({ ...pool, mounted: false });
    agent.tellNode({ libvirtConnected: true });
    await status(rest, agent.id, 'ACTIVE');
    expect([await connection(), scans().length, await statusOfFile()]).toEqual(['INACTIVE', 1, 'ACTIVE']);

    const later = agent.setFile({ poolId: pool.id });
    agent.setPool({ id: pool.id, mounted: true });
    await until(async () => (await rest.call('GET', `/api/library/${later.id}/`)).status === 200);
    expect([scans().length, await statusOfFile()]).toEqual([2, 'ACTIVE']);
    agent.whenStarted = () => {};
  });

  test('are scanned when the libvirt of their node is there', async () => {
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const isScanned = () =>
      agent.calls.some(call => call.kind === 'scan_pool' && call.request.poolId === pool.id);
    agent.tellNode({ libvirtConnected: false });
    await until(async () => (await rest.call('GET', `/api/nodes/${agent.id}/`)).body.status !== 'ACTIVE');
    expect(isScanned()).toBe(false);
    agent.tellNode({ libvirtConnected: true });
    await until(isScanned);
  });
});

describe('domains', () => {
  test('are listed short, filtered, paged and in full', async () => {
    const poolId = randomUUID();
    const disk = {
      id: randomUUID(),
      name: 'a',
      poolId,
      targetDev: 'vda',
      targetBus: 'virtio',
      virtualSize: 20n,
      allocatedSize: 7n,
    };
    const parent = agent.setDomain({ name: 'tpl', template: true, powerState: PowerState.OFF });
    const thin = agent.setDomain({ name: 'web-1', parentId: parent.id, disks: [disk as never] });
    two.agent.setDomain({ name: 'web-2' });
    await until(async () => (await rest.call('GET', '/api/domains/?name=web')).body.count === 2);
    const short = (await rest.call('GET', `/api/domains/?parent=${parent.id}`)).body.results[0];
    expect(short).toMatchObject({
      id: thin.id,
      thin: true,
      parent: { verbose_name: 'tpl' },
      vdisks_count: 1,
    });
    expect(short).not.toHaveProperty('vdisks');
    const full = (await rest.call('GET', `/api/domains/?datapool=${poolId}&all_content=1`)).body.results[0];
    expect(full.vdisks).toEqual([
      { id: disk.id, verbose_name: 'a', target_dev: 'vda', target_bus: 'virtio', size: 20 },
    ]);
    const names = async (query: string) =>
      (
        await rest.call('GET', `/api/domains/?${query}&fields=verbose_name&ordering=-verbose_name`)
      ).body.results.map((item: { verbose_name: string }) => item.verbose_name);
    expect(await names('template=true')).toEqual(['tpl']);
    expect(await names('thin=1')).toEqual(['web-1']);
    expect(await names(`node=${two.agent.id}`)).toEqual(['web-2']);
    expect(await names('user_power_state=3&name=web')).toEqual(['web-2', 'web-1']);
    expect(await names('with_vdisks=true')).toEqual(['web-1']);
    expect((await rest.call('GET', '/api/domains/?colour=1')).status).toBe(400);
    expect((await rest.call('GET', '/api/domains/?ordering=vdisks')).body.errors[0].msg_key).toBe(
      'unknown_ordering',
    );
    expect((await rest.call('GET', '/api/domains/?limit=1&name=web')).body.next).toContain('offset=1');
  });

  test('say what each user may do', async () => {
    const domain = agent.setDomain({});
    await seen(domain.id);
    const of = async (as: 'operator' | 'auditor') =>
      (await rest.call('GET', `/api/domains/${domain.id}/`, { as })).body.permissions;
    expect(await of('operator')).toEqual(expect.arrayContaining(['shutdown', 'backup']));
    expect(await of('operator')).not.toContain('start');
    expect(await of('operator')).not.toContain('remove');
    expect(await of('auditor')).toEqual([]);
  });

  test('a power action waits for its end, or answers 202', async () => {
    const domain = agent.setDomain({ powerState: PowerState.OFF });
    await seen(domain.id);
    const accepted = await rest.call('POST', `/api/domains/${domain.id}/start/?async=1`, { body: {} });
    expect(accepted.status).toBe(202);
    expect(accepted.body).toMatchObject({
      entity: domain.id,
      _task: { status: 'IN_PROGRESS', nodes_list: [agent.id] },
    });
    const taskId = accepted.body._task.id;
    expect(agent.operations.get(taskId)?.kind).toBe('power');
    agent.setDomain({ id: domain.id, powerState: PowerState.RUNNING });
    agent.succeed(taskId, { power_state: 'running' });
    await ended(rest, taskId);
    const answer = rest.call('POST', `/api/domains/${domain.id}/shutdown/`, { body: { force: true } });
    await until(() => agent.calls.at(-1)?.request.force === true);
    agent.setDomain({ id: domain.id, powerState: PowerState.OFF });
    agent.succeed(agent.calls.at(-1)!.request.operationId);
    expect((await answer).body).toMatchObject({ id: domain.id, user_power_state: 1 });
    const task = agent.calls.findLast(call => call.request.domainId === domain.id)!.request.operationId;
    const permissions = async (as: Role) =>
      (await rest.call('GET', `/api/tasks/${task}/response/`, { as })).body.response.permissions;
    expect(await permissions('operator')).toEqual(expect.arrayContaining(['start', 'backup']));
    expect(await permissions('auditor')).toEqual([]);
  });

  test("a refusal of the node is the answer's error, and the task has failed", async () => {
    const domain = agent.setDomain({});
    await seen(domain.id);
    agent.beforeStart = () => {
      throw new VirtkeepError('domain_busy', { domain: domain.name, operation: 'x', kind: 'backup' });
    };
    const refused = await rest.call('POST', `/api/domains/${domain.id}/reset/?async=1`, { body: {} });
    agent.beforeStart = () => {};
    expect(refused.body.errors[0].msg_key).toBe('domain_busy');
    const tasks = (await rest.call('GET', `/api/tasks/?entity=${domain.id}`)).body.results;
    expect(tasks[0]).toMatchObject({ status: 'FAILED', error: { msg_key: 'domain_busy' } });
  });

  test('templates are not started; marking one and the description go to the node', async () => {
    const domain = agent.setDomain({ powerState: PowerState.OFF });
    await seen(domain.id);
    const marked = await rest.call('PUT', `/api/domains/${domain.id}/template/`, {
      body: { template: true },
    });
    expect(marked.body).toMatchObject({ id: domain.id, template: true });
    const refused = await rest.call('POST', `/api/domains/${domain.id}/start/`, { body: {} });
    expect(refused.body.errors[0].msg_key).toBe('template_not_startable');
    const described = await rest.call('PUT', `/api/domains/${domain.id}/`, {
      body: { description: 'golden' },
    });
    expect(described.body.description).toBe('golden');
    expect(agent.domains.get(domain.id)?.description).toBe('golden');
  });

  test('a removed one is gone from the list when its task ends', async () => {
    const domain = agent.setDomain({});
    await seen(domain.id);
    const answer = rest.call('POST', `/api/domains/${domain.id}/remove/`, {
      body: { full: true, force: true },
    });
    await until(() => agent.calls.at(-1)?.kind === 'remove_domain');
    expect(agent.calls.at(-1)?.request).toMatchObject({ full: true, force: true });
    agent.removeDomain(domain.id);
    agent.succeed(agent.calls.at(-1)!.request.operationId, { removed: ['/a'] });
    expect((await answer).body).toEqual({ removed: ['/a'] });
    expect((await rest.call('GET', `/api/domains/${domain.id}/`)).status).toBe(404);
  });

  test('changes are audited with who asked', async () => {
    await until(async () => {
      const { body } = await rest.call('GET', '/api/audit/?limit=1000');
      return body.results.some(
        (record: { action: string }) => record.action === 'POST /api/domains/:id/remove/',
      );
    });
  });
});
