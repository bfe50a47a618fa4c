/** A REST app with scripted agents that were enrolled through it, as a real node is. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { nodeUrn } from '../../../controller/src/pki/index.ts';
import { exportPrivateKey, KEY_ALGORITHM, newKeyPair, x509 } from '../../../controller/src/pki/x509.ts';
import { freePort } from '../../lab/free-port.ts';
import type { Answer, RestApp } from './app.ts';
import { FakeAgent, type FakeAgentTls } from './scripted-node.ts';

export interface Enrolled {
  agent: FakeAgent;
  tls: FakeAgentTls;
}

/** A key and a request for a node's certificate, as the agent makes them. */
export async function nodeRequest(nodeId: string): Promise<{ csrPem: string; privateKeyPem: string }> {
  const keys = await newKeyPair();
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    name: 'CN=node',
    keys,
    signingAlgorithm: KEY_ALGORITHM,
    extensions: [new x509.SubjectAlternativeNameExtension([{ type: 'url', value: nodeUrn(nodeId) }])],
  });
  return { csrPem: request.toString('pem'), privateKeyPem: await exportPrivateKey(keys.privateKey) };
}

interface Redeemed {
  token: string;
  nodeId: string;
  port: number;
  csrPem: string;
  hostname?: string;
}

export async function redeem(
  rest: RestApp,
  { token, nodeId, port, csrPem, hostname = 'node.example' }: Redeemed,
): Promise<Answer> {
  const body = { token, csr_pem: csrPem, node_id: nodeId, hostname, address: '127.0.0.1', port };
  return rest.call('POST', '/api/nodes/enroll/', { as: null, body });
}

const started: FakeAgent[] = [];

/** Ends the app and every agent that was enrolled, also after a test that failed half-way. */
export async function stopAll(rest: RestApp | undefined): Promise<void> {
  rest?.draining.abort(new VirtkeepError('draining')); // answers that still wait end
  for (const agent of started.splice(0)) {
    await agent.stop();
    agent.contents.clear();
  }
  await rest?.close();
}

/** Enrols a scripted agent and waits until the controller is connected to it. */
export async function enrolled(rest: RestApp, name: string, agent = new FakeAgent()): Promise<Enrolled> {
  const port = await freePort();
  const { csrPem, privateKeyPem } = await nodeRequest(agent.id);
  const ticket = await rest.call('POST', '/api/nodes/', { body: { verbose_name: name } });
  const answer = await redeem(rest, { token: ticket.body.token, nodeId: agent.id, port, csrPem });
  if (answer.status !== 200) throw new Error(`not enrolled: ${answer.text}`);
  const { certificate_pem, ca_pem } = answer.body;
  const tls = { caPem: ca_pem, certificatePem: certificate_pem + ca_pem, privateKeyPem };
  await agent.start(tls, port);
  started.push(agent);
  await status(rest, agent.id, 'ACTIVE');
  return { agent, tls };
}

/** Waits for a node's status. */
export async function status(rest: RestApp, nodeId: string, wanted: string): Promise<void> {
  await until(async () => (await rest.call('GET', `/api/nodes/${nodeId}/`)).body.status === wanted);
}

export async function until(what: () => Promise<boolean> | boolean, timeoutMs = 60_000): Promise<void> {
  const end = Date.now() + timeoutMs;
  while (!(await what())) {
    if (Date.now() > end) throw new Error(`did not happen in time: ${what.toString()}`);
    await new Promise(resolve => setTimeout(resolve, 15));
  }
}

/** Waits for a task's outcome. @returns its record. */
export async function ended(rest: RestApp, taskId: string, wanted = 'SUCCESS') {
  let record: Answer['body'];
  await until(async () => {
    record = (await rest.call('GET', `/api/tasks/${taskId}/`)).body;
    return record.status !== 'IN_PROGRESS' && (record.status === wanted || record.status !== 'LOST');
  }).catch(async (error: Error) => {
    const { body: nodes } = await rest.call('GET', '/api/nodes/');
    throw new Error(`${error.message}\n${JSON.stringify({ task: record, nodes })}`);
  });
  if (record.status !== wanted) throw new Error(`task is ${record.status}: ${record.error_message}`);
  return record;
}
