/** A process with many simulated agents; its parent tells it what to do. */
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import { nodeUrn } from '../../controller/src/pki/index.ts';
import { exportPrivateKey, KEY_ALGORITHM, newKeyPair, x509 } from '../../controller/src/pki/x509.ts';
import { Rest } from '../lab/rest.ts';
import { type AgentTls, type BackupPace, type InstallationSize, SimulatedAgent } from './simulated-agent.ts';

export type ToAgents =
  | {
      do: 'enrol';
      first: number;
      last: number;
      size: InstallationSize;
      url: string;
      ca: string;
      tokens: string[];
      /** Where they listen; else where nobody else does. */
      host?: string;
    }
  | { do: 'listen' }
  | { do: 'operations' }
  | { do: 'pace'; pace: BackupPace }
  /** One of so many loses every connection and is there again at once. */
  | { do: 'reconnect'; oneOf: number; turn: number }
  | { do: 'churn'; perSecond: number; seconds: number };

export type FromAgents =
  | { told: 'done' }
  | { told: 'failed'; reason: string }
  | { told: 'operations'; operations: [id: string, kind: string, domain: string][] }
  | { told: 'changed'; changes: [domain: string, description: string, atMs: number][] };

const AT_ONCE = 8;
const TICK_MS = 50;
const agents: SimulatedAgent[] = [];
const tlsOf = new Map<SimulatedAgent, AgentTls>();
let size: InstallationSize;
let host: string;

const tell = (message: FromAgents) => process.send!(message);

async function enrol({ first, last, url, ca, tokens, ...order }: Extract<ToAgents, { do: 'enrol' }>) {
  size = order.size;
  host = order.host ?? HOST;
  const rest = new Rest(url, ca);
  const waiting = Array.from({ length: last - first }, (_, index) => index);
  const lane = async () => {
    for (let index = waiting.shift(); index !== undefined; index = waiting.shift()) {
      const agent = new SimulatedAgent(first + index, size);
      const keys = await newKeyPair();
      const request = await x509.Pkcs10CertificateRequestGenerator.create({
        name: 'CN=node',
        keys,
        signingAlgorithm: KEY_ALGORITHM,
        extensions: [new x509.SubjectAlternativeNameExtension([{ type: 'url', value: nodeUrn(agent.id) }])],
      });
      const answer = await rest.ok<{ certificate_pem: string; ca_pem: string }>(
        'POST',
        '/api/nodes/enroll/',
        {
          token: tokens[index],
          csr_pem: request.toString('pem'),
          node_id: agent.id,
          hostname: `node-${agent.number}`,
          address: host,
          port: portOf(agent),
        },
      );
      const privateKeyPem = await exportPrivateKey(keys.privateKey);
      const { certificate_pem: own, ca_pem: caPem } = answer;
      tlsOf.set(agent, { caPem, certificatePem: own + caPem, privateKeyPem });
      agents.push(agent);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
}

/** Nobody else listens there, whatever port. */
const HOST = '127.0.1.1';
const FIRST_PORT = 20_000;
const portOf = (agent: SimulatedAgent): number => FIRST_PORT + agent.number;

async function churn({ perSecond, seconds }: Extract<ToAgents, { do: 'churn' }>) {
  const ticks = Math.round((seconds * 1000) / TICK_MS);
  let due = 0;
  let next = 0;
  for (let tick = 0; tick < ticks; tick += 1) {
    const changes: [string, string, number][] = [];
    for (due += (perSecond * TICK_MS) / 1000; due >= 1; due -= 1) {
      const agent = agents[next % agents.length]!;
      const domain = agent.change(Math.floor(next / agents.length) % size.vms);
      changes.push([domain.id, domain.description, Date.now()]);
      next += 1;
    }
    tell({ told: 'changed', changes });
    await new Promise(resolve => setTimeout(resolve, TICK_MS));
  }
}

async function reconnect({ oneOf, turn }: Extract<ToAgents, { do: 'reconnect' }>) {
  for (const agent of agents.filter(({ number }) => number % oneOf === turn % oneOf)) {
    agent.stop();
    await agent.start(tlsOf.get(agent)!, portOf(agent), host);
  }
}

function operationsOf({ operations }: SimulatedAgent): [string, string, string][] {
  return [...operations.values()].map(({ id, kind, entities }) => {
    const domain = entities.find(({ entityClass }) => entityClass === EntityClass.DOMAIN);
    return [id, kind, domain?.id ?? ''];
  });
}

async function obey(order: ToAgents): Promise<void> {
  switch (order.do) {
    case 'enrol':
      return enrol(order);
    case 'listen':
      for (const agent of agents) await agent.start(tlsOf.get(agent)!, portOf(agent), host);
      return;
    case 'operations':
      tell({ told: 'operations', operations: agents.flatMap(operationsOf) });
      return;
    case 'pace':
      for (const agent of agents) agent.pace = order.pace;
      return;
    case 'reconnect':
      return reconnect(order);
    case 'churn':
      return churn(order);
  }
}

process.on('message', (order: ToAgents) => {
  obey(order).then(
    () => order.do !== 'operations' && tell({ told: 'done' }),
    (error: unknown) => tell({ told: 'failed', reason: String(error) }),
  );
});
process.on('disconnect', () => process.exit());
