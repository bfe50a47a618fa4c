/** A controller that was stopped and started again, on the same database; and the renewal of certificates. */
import { X509Certificate } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import { createLogger } from '@virtkeep/shared/log';
import type { AgentClients } from '../../../controller/src/agents/clients.ts';
import type { NodeLinks } from '../../../controller/src/agents/links.ts';
import { nodeUrn } from '../../../controller/src/pki/index.ts';
import { Inventory } from '../../../controller/src/services/inventory/inventory.ts';
import { createNodeServices } from '../../../controller/src/services/node-services.ts';
import { CertificateRegister } from '../../../controller/src/services/nodes/certificate-register.ts';
import { CertificateRenewer } from '../../../controller/src/services/nodes/certificates.ts';
import type { NodeServices } from '../../../controller/src/services/services.ts';
import { makeRestApp, NODE_TIMES, type RestApp } from './app.ts';
import { type Enrolled, ended, enrolled, nodeRequest, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

const USER = { id: newId(), username: 'somebody' };

let rest: RestApp;
let node: Enrolled;
let agent: FakeAgent;
let running: NodeServices;

beforeAll(async () => {
  rest = await makeRestApp({ agents: { lost_after_s: 0.3 } });
  node = await enrolled(rest, 'n1');
  agent = node.agent;
  running = rest.services;
});
afterAll(async () => {
  if (running !== rest?.services) await running?.stopNodes();
  await stopAll(rest);
});

/** Ends all that deals with nodes, and starts it anew on the same database. */
async function restart(between: () => Promise<void> | void = () => {}): Promise<void> {
  await running.stopNodes();
  await between();
  running = createNodeServices(rest.services, rest, NODE_TIMES);
  Object.assign(rest.services, running);
  await running.startNodes();
}

/** The record that a task answers. */
async function resultOf(task: string) {
  await ended(rest, task);
  return (await rest.call('GET', `/api/tasks/${task}/response/`)).body.response;
}

async function knownDomain() {
  const domain = agent.setDomain({});
  await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 200);
  await status(rest, agent.id, 'ACTIVE');
  return domain;
}

describe('the end of an operation and the inventory that shows it', () => {
  const shutDown = async (id: string) =>
    (await rest.call('POST', `/api/domains/${id}/shutdown/?async=1`, { body: {} })).body._task.id as string;
  const statusOf = async (task: string) => (await rest.call('GET', `/api/tasks/${task}/`)).body.status;

  let tell = () => {};
  afterEach(() => {
    agent.tellsRevisions = true;
    tell();
  });

  /** The node has shut the VM down, says so of the operation, and not yet in its inventory. */
  async function endedUnseen() {
    const { id } = await knownDomain();
    const task = await shutDown(id);
    const gate = Promise.withResolvers<void>();
    agent.beforeChange = gate.promise;
    agent.setDomain({ id, powerState: PowerState.OFF });
    agent.succeed(task, { power_state: 'off' });
    tell = gate.resolve;
    return { id, task };
  }

  test('a task ends when both are there, and its record is that of the VM as it is then', async () => {
    const { id, task } = await endedUnseen();
    for (let look = 0; look < 3; look += 1) expect(await statusOf(task)).toBe('IN_PROGRESS');
    tell();
    expect(await resultOf(task)).toMatchObject({ id, user_power_state: 1 });
  });

  test('a connection that is cut between the two loses neither', async () => {
    const { id, task } = await endedUnseen();
    await agent.stop();
    expect(await statusOf(task)).not.toBe('SUCCESS');
    tell();
    await agent.start(node.tls);
    expect(await resultOf(task)).toMatchObject({ id });
    await status(rest, agent.id, 'ACTIVE');
    expect((await rest.call('GET', `/api/domains/${id}/`)).body.user_power_state).toBe(1);
  });

  test('an agent of an earlier version is asked', async () => {
    agent.tellsRevisions = false;
    const { id, task } = await endedUnseen();
    expect(await resultOf(task)).toMatchObject({ id, user_power_state: 1 });
    const { body } = await rest.call('POST', `/api/domains/${id}/remove/?async=1`, { body: {} });
    agent.domains.delete(id);
    agent.succeed(body._task.id);
    await ended(rest, body._task.id);
    expect((await rest.call('GET', `/api/domains/${id}/`)).status).toBe(404);
  });
});

describe('restart of the controller', () => {
  test('what the nodes have is known at once, before they are connected', async () => {
    const domain = await knownDomain();
    const pool = agent.setPool({ name: 'p' });
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    await restart(() => agent.stop());
    expect((await rest.call('GET', `/api/domains/${domain.id}/`)).body).toMatchObject({ status: 'FAILED' });
    expect((await rest.call('GET', `/api/data-pools/${pool.id}/`)).body).toMatchObject({
      verbose_name: 'p',
      status: 'FAILED',
      nodes_connected: [{ connection_status: 'FAILED' }],
    });
    await agent.start(node.tls);
    await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).body.status === 'ACTIVE');
  });

  test('an operation that ended meanwhile ends its task; one that runs goes on', async () => {
    const first = await knownDomain();
    const second = await knownDomain();
    const start = async (id: string) =>
      (await rest.call('POST', `/api/domains/${id}/reboot/?async=1`, { body: {} })).body._task.id as string;
    const done = await start(first.id);
    const going = await start(second.id);
    await restart(() => agent.succeed(done));
    await ended(rest, done);
    await until(async () => (await rest.call('GET', `/api/tasks/${going}/`)).body.status === 'IN_PROGRESS');
    agent.succeed(going);
    await ended(rest, going);
  });

  test('a task whose start call never left has failed and says so; nothing is sent again', async () => {
    const domain = await knownDomain();
    const taskId = newId();
    const calls = agent.calls.filter(call => call.kind === 'power').length;
    await restart(async () => {
      await rest.services.tasks.create({
        id: taskId,
        name: 'domain_reboot',
        verboseName: 'Reboot',
        user: USER,
        entities: [{ id: domain.id, class: 'domain' }],
        nodeId: agent.id,
      });
    });
    const task = await ended(rest, taskId, 'FAILED');
    expect(task.error.msg_key).toBe('operation_unknown');
    expect(agent.calls.filter(call => call.kind === 'power').length).toBe(calls);
  });

  test('a backup that was being extended is what it was, or what became of it', async () => {
    const domain = await knownDomain();
    const pool = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const backup = async (options: object) =>
      (await rest.call('POST', '/api/domains/backup/?async=1', { body: { domain: domain.id, ...options } }))
        .body;
    const first = await backup({ datapool: pool.id, can_be_incremental: true });
    const file = { id: first.entity, poolId: pool.id, domainId: domain.id, canBeIncremental: true };
    agent.succeed(first._task.id, { file: agent.setFile(file) });
    await ended(rest, first._task.id);
    const statusOf = async () => (await rest.call('GET', `/api/library/${first.entity}/`)).body.status;
    const forgotten = await backup({ backup: first.entity });
    await restart(() => agent.loseJournal());
    await ended(rest, forgotten._task.id, 'FAILED');
    await until(async () => (await statusOf()) === 'ACTIVE');
    await status(rest, agent.id, 'ACTIVE');
    const done = await backup({ backup: first.entity });
    expect(await statusOf()).toBe('UPDATING');
    await restart(() => agent.succeed(done._task.id, { file: agent.setFile({ ...file, size: 77n }) }));
    await ended(rest, done._task.id);
    expect((await rest.call('GET', `/api/library/${first.entity}/`)).body).toMatchObject({
      status: 'ACTIVE',
      size: 77,
    });
  });

  test('what became of the states of a VM while it was down is told of its backups', async () => {
    const domain = await knownDomain();
    const pool = agent.setPool({});
    const state = agent.addState(domain.id, { name: 's' });
    const made = agent.setFile({
      poolId: pool.id,
      domainId: domain.id,
      canBeIncremental: true,
      requiredStates: [state.name],
    });
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const scan = await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
    agent.succeed(scan.body._task.id, { files: [made] });
    await ended(rest, scan.body._task.id);
    const can = async () =>
      (await rest.call('GET', `/api/library/?domain=${domain.id}&can_be_incremental=1`)).body.count;
    await until(async () => (await can()) === 1);
    await restart(() => void agent.domains.set(domain.id, { ...domain, savedStates: [] }));
    await until(async () => (await can()) === 0);
  });

  test("the controller's own work in the middle is over", async () => {
    const task = {
      name: 'file_refresh',
      verboseName: 'Read x',
      user: USER,
      entities: [],
      nodeId: null,
    };
    const { row } = await rest.services.tasks.create(task);
    await restart();
    expect((await ended(rest, row.id, 'FAILED')).error.msg_key).toBe('interrupted');
  });

  test('a node that does not come back has its tasks LOST', async () => {
    const domain = await knownDomain();
    const { body } = await rest.call('POST', `/api/domains/${domain.id}/reboot/?async=1`, { body: {} });
    await restart(() => agent.stop());
    const status = async () => (await rest.call('GET', `/api/tasks/${body._task.id}/`)).body.status;
    await until(async () => (await status()) === 'LOST');
    await agent.start(node.tls);
    agent.succeed(body._task.id);
    await ended(rest, body._task.id);
  });
});

describe('renewal of certificates', () => {
  test('is asked for, signed and installed when less than a third of the life remains, once', async () => {
    const inventory = new Inventory(rest.services.db, () => {});
    await inventory.load();
    const register = new CertificateRegister(rest.services.db);
    agent.csrPem = (await nodeRequest(agent.id)).csrPem;
    const day = 86_400_000;
    const peer = {
      notBefore: Date.now() - 300 * day,
      notAfter: Date.now() + 90 * day,
      hasForeignNames: false,
    };
    const clients = {
      node: {
        renewCertificate: async () => ({ csrPem: agent.csrPem }),
        installCertificate: async (request: { certificatePem: string }) => {
          agent.installedPem = request.certificatePem;
          return {};
        },
      },
    } as unknown as AgentClients;
    const links = { connected: () => [{ nodeId: agent.id, clients, peer }] } as unknown as NodeLinks;
    const renewer = new CertificateRenewer({
      ca: rest.ca,
      register,
      links,
      inventory,
      log: createLogger('test', 'error'),
    });
    expect(await renewer.round()).toEqual([agent.id]);
    const installed = new X509Certificate(agent.installedPem);
    expect(installed.subjectAltName).toContain(nodeUrn(agent.id));
    expect(Date.parse(installed.validTo)).toBeGreaterThan(Date.now() + 390 * day);
    expect(await renewer.round()).toEqual([]);
    peer.notAfter = Date.now() + 390 * day;
    expect(await renewer.round()).toEqual([]);
  });
});
