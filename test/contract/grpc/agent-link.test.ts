/** The controller's link to a node, against a scripted agent over real mutual TLS. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import type { AgentTls } from '../../../controller/src/agents/clients.ts';
import { type LinkObserver, LinkPlaces, NodeLink } from '../../../controller/src/agents/link.ts';
import { keyFiles } from '../../../controller/src/keys/keys.ts';
import {
  type CertificateAuthority,
  CONTROLLER_URN,
  ensureCa,
  issueCertificate,
  nodeUrn,
} from '../../../controller/src/pki/index.ts';
import { FakeAgent, type FakeAgentTls } from '../rest/scripted-node.ts';

const never = new AbortController().signal;
const TIMES = { firstRetryMs: 20, maxRetryMs: 50, connectTimeoutMs: 120_000 };
let dir: string;
let ca: CertificateAuthority;
let tls: AgentTls;
let agent: FakeAgent;
let link: NodeLink | undefined;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'link-'));
  ca = await ensureCa(keyFiles(dir));
  const names = { urns: [CONTROLLER_URN], hosts: [] };
  const issued = await issueCertificate(ca, { commonName: 'c', names, use: 'client', days: 1 });
  tls = { caPem: ca.certificatePem, chainPem: issued.chainPem, privateKeyPem: issued.privateKeyPem };
});
afterAll(() => rm(dir, { recursive: true, force: true }));
beforeEach(async () => {
  agent = new FakeAgent();
  await agent.start(await agentTls(agent.id));
});
afterEach(async () => {
  await link?.stop();
  link = undefined;
  await agent.stop();
});

async function agentTls(nodeId: string, authority = ca): Promise<FakeAgentTls> {
  const names = { urns: [nodeUrn(nodeId)], hosts: [] };
  const issued = await issueCertificate(authority, { commonName: 'n', names, use: 'server', days: 1 });
  return { caPem: ca.certificatePem, certificatePem: issued.chainPem, privateKeyPem: issued.privateKeyPem };
}

interface Seen {
  observer: LinkObserver;
  log: string[];
}

function watch(afterSequence = 0n): Seen {
  const log: string[] = [];
  const observer: LinkObserver = {
    reattach: async () => {
      log.push('reattach');
      return { afterSequence };
    },
    inventory: async (_node, event) => void log.push(`inventory ${event.event?.$case}`),
    operation: async (_node, event) => void log.push(`operation ${event.sequence}`),
    question: async (_node, { things }) => things.map(() => ({ answer: { $case: 'unused', value: {} } })),
    connected: () => void log.push('connected'),
    lost: async () => void log.push('lost'),
  };
  return { observer, log };
}

function connect(
  observer: LinkObserver,
  target = { id: agent.id, name: 'n1', address: agent.address },
  times = TIMES,
): NodeLink {
  link = new NodeLink(target, { tls: async () => tls, observer, log: createLogger('test', 'error'), times });
  link.start();
  return link;
}

async function until(what: () => boolean, timeoutMs = 60_000): Promise<void> {
  const end = Date.now() + timeoutMs;
  while (!what()) {
    if (Date.now() > end) throw new Error('did not happen in time');
    await new Promise(resolve => setTimeout(resolve, 10));
  }
}

describe('link to a node', () => {
  test('compares tasks first, takes the inventory, then counts as connected', async () => {
    const { observer, log } = watch();
    const made = connect(observer);
    await until(() => made.isConnected);
    expect(log).toEqual(['reattach', 'inventory full', 'connected']);
    agent.setDomain({});
    await until(() => log.includes('inventory domainChanged'));
    expect(made.peer()?.notAfter).toBeGreaterThan(Date.now());
    expect((await made.clients().node.getInfo({})).id).toBe(agent.id);
  });

  test('nodes that accept a connection and say nothing keep nobody waiting that would answer', async () => {
    const silent = createServer();
    await once(silent.listen(0, '127.0.0.1'), 'listening');
    const { port } = silent.address() as AddressInfo;
    const places = new LinkPlaces();
    const { observer, log } = watch();
    const dependencies = {
      tls: async () => tls,
      observer,
      log: createLogger('test', 'error'),
      times: TIMES,
      places,
    };
    const dead = Array.from(
      { length: 40 },
      (_, number) =>
        new NodeLink(
          { id: randomUUID(), name: `dead ${number}`, address: `127.0.0.1:${port}` },
          dependencies,
        ),
    );
    for (const one of dead) one.start();
    link = new NodeLink({ id: agent.id, name: 'n1', address: agent.address }, dependencies);
    link.start();
    try {
      await until(() => link!.isConnected);
      expect(log).toEqual(['reattach', 'inventory full', 'connected']);
    } finally {
      silent.close();
      await Promise.all(dead.map(one => one.stop()));
    }
  });

  test('a node is reached by its name as well as by its address', async () => {
    for (const address of [agent.address, agent.address.replace('127.0.0.1', 'localhost')]) {
      const made = connect(watch().observer, { id: agent.id, name: 'n1', address });
      await until(() => made.isConnected);
      await made.stop();
    }
  });

  test('answers what the node asks, several questions at a time', async () => {
    connect(watch().observer);
    await until(() => agent.questions?.isWatched === true);
    const domain = { kind: 'domain', id: randomUUID() } as const;
    const ask = (things: number) => agent.questions!.whoUses(Array(things).fill(domain), never);
    const unused = { kind: 'unused' };
    expect(await Promise.all([ask(2), ask(1)])).toEqual([[unused, unused], [unused]]);
  });

  test('a call that the node never answers ends with the link, and holds up nobody who ends it', async () => {
    const asked = Promise.withResolvers<void>();
    agent.toldOperation = () => {
      asked.resolve();
      return new Promise(() => {});
    };
    let answer: Promise<unknown> | undefined;
    const reattach: LinkObserver['reattach'] = async (_node, clients) => {
      answer = clients.operations.get({ id: randomUUID() });
      await answer;
      return { afterSequence: 0n };
    };
    const made = connect({ ...watch().observer, reattach });
    await asked.promise;
    await made.stop();
    await expect(answer).rejects.toMatchObject({ msgKey: 'node_unreachable' });
  });

  test('a node whose certificate ends is not believed on the connection that it holds', async () => {
    const { observer, log } = watch();
    const made = connect(observer);
    await until(() => made.isConnected);
    const { notAfter } = made.peer()!;
    await made.stop();
    const now = jest.spyOn(Date, 'now').mockReturnValue(notAfter);
    try {
      const late = connect(observer);
      await until(() => late.reason.includes('its certificate has ended'), 60_000);
      expect(log.filter(line => line === 'connected')).toHaveLength(1);
    } finally {
      now.mockRestore();
    }
  });

  test('a node of a version that asks nothing is connected as others are', async () => {
    agent.asksNothing = true;
    const { observer, log } = watch();
    const made = connect(observer);
    await until(() => made.isConnected);
    agent.setDomain({});
    await until(() => log.includes('inventory domainChanged'));
    expect(log).not.toContain('lost');
  });

  test('errors of the agent arrive with their key', async () => {
    const made = connect(watch().observer);
    await until(() => made.isConnected);
    await expect(made.clients().operations.get({ id: randomUUID() })).rejects.toMatchObject({
      msgKey: 'operation_not_found',
    });
  });

  test('who still holds the clients of a closed connection is told that the node cannot be reached', async () => {
    const made = connect(watch().observer);
    await until(() => made.isConnected);
    const { operations } = made.clients();
    await made.stop();
    const unreachable = { msgKey: 'node_unreachable' };
    await expect(operations.get({ id: randomUUID() })).rejects.toMatchObject(unreachable);
    const stream = operations.watch({ operationId: '', afterSequence: 0n })[Symbol.asyncIterator]();
    await expect(stream.next()).rejects.toMatchObject(unreachable);
  });

  test('notices the loss of the node and comes back by itself', async () => {
    const { observer, log } = watch();
    const made = connect(observer);
    await until(() => made.isConnected);
    await agent.stop();
    await until(() => log.includes('lost'));
    expect(() => made.clients()).toThrow(expect.objectContaining({ msgKey: 'node_unreachable' }));
    await agent.start(await agentTls(agent.id));
    await until(() => made.isConnected);
    expect(log.filter(item => item === 'reattach').length).toBe(2);
  });

  test('is expected back when it was lost, and is silent as long as nothing of it is seen', async () => {
    const times = { ...TIMES, returnMs: 600_000 };
    const made = connect(watch().observer, undefined, times);
    expect([made.isExpected, made.silentMs]).toEqual([true, 0]);
    await until(() => made.isConnected);
    expect([made.isExpected, made.silentMs]).toEqual([false, 0]);
    await agent.stop();
    await until(() => !made.isConnected);
    expect(made.isExpected).toBe(true);
    await until(() => made.silentMs > 0);
    expect(made.isExpected).toBe(true);
  });

  test('a node that shows itself and is refused is not silent: another controller would refuse it, too', async () => {
    const made = connect(watch().observer, { id: randomUUID(), name: 'n1', address: agent.address });
    await until(() => made.reason.includes('not that of node'));
    expect(made.silentMs).toBe(0);
  });

  test('resumes the operations after the sequence it is given', async () => {
    const first = randomUUID();
    await expect(connectAndStart(first)).resolves.toBeDefined();
    agent.progress(first, 'copy', 1n, 2n);
    agent.succeed(first);
    await link?.stop();
    const { observer, log } = watch(2n);
    connect(observer);
    await until(() => log.includes('operation 3'));
    expect(log).not.toContain('operation 2');
  });

  test('refuses another node at the address, and a certificate of another authority', async () => {
    const { observer, log } = watch();
    const made = connect(observer, { id: randomUUID(), name: 'n2', address: agent.address });
    await until(() => made.reason.includes('is not that of node'));
    await made.stop();
    await agent.stop();
    const foreign = await ensureCa(keyFiles(join(dir, 'foreign')));
    await agent.start(await agentTls(agent.id, foreign));
    const again = connect(observer);
    await until(() => again.reason !== 'not connected yet');
    expect(again.isConnected).toBe(false);
    expect(log).toEqual([]);
  });

  test('ends at once while it waits for the next attempt', async () => {
    await agent.stop();
    const rare = { ...TIMES, firstRetryMs: 3_600_000, maxRetryMs: 3_600_000 };
    const made = connect(watch().observer, undefined, rare);
    await until(() => made.reason !== 'not connected yet');
    await made.stop();
  });
});

async function connectAndStart(operationId: string): Promise<unknown> {
  const made = connect(watch().observer);
  await until(() => made.isConnected);
  return made
    .clients()
    .backups.verify({ operationId, fileId: randomUUID(), file: { poolId: 'p', filename: 'f' } });
}
