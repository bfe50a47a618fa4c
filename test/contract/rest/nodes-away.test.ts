/** What is asked of a node that was there a moment ago, or that a controller which has just started has not reached yet. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { ASK_ANOTHER } from '../../../controller/src/http/errors.ts';
import { type Answer, makeRestApp, type RestApp } from './app.ts';
import { type Enrolled, enrolled, status, stopAll, until } from './nodes-world.ts';

/** As long as any of these tests may take. */
const FOR_EVER_MS = 600_000;

let rest: RestApp;
let node: Enrolled;
let domain: string;
let pool: string;

async function world(returnMs: number): Promise<void> {
  rest = await makeRestApp({ agents: { lost_after_s: 0.2 } }, undefined, { returnMs });
  node = await enrolled(rest, 'n1');
  domain = node.agent.setDomain({}).id;
  pool = node.agent.setPool({}).id;
  await until(async () => (await rest.call('GET', `/api/domains/${domain}/`)).status === 200);
}

beforeEach(() => world(FOR_EVER_MS));
afterEach(() => stopAll(rest));

async function lose(): Promise<void> {
  await node.agent.stop();
  await status(rest, node.agent.id, 'FAILED');
}

const shutDown = (body: object = {}) =>
  rest.call('POST', `/api/domains/${domain}/shutdown/?async=1`, { body });
/** Ids of what the node was told to do, without the scans that its return begins. */
const begun = () =>
  node.agent.calls.filter(({ kind }) => kind !== 'scan_pool').map(({ request }) => request.operationId);
const tasks = async () => (await rest.call('GET', '/api/tasks/')).body.count as number;
const keyOf = ({ body }: Answer) => body.errors?.[0]?.msg_key;

/** Whether it has been answered by the time that others were. */
async function isAnswered(answer: Promise<Answer>): Promise<boolean> {
  let answered = false;
  void answer.then(() => {
    answered = true;
  });
  for (let round = 0; round < 20; round += 1) await tasks();
  return answered;
}

test('is begun once, when the node is back', async () => {
  await lose();
  const answer = shutDown({ idempotency_key: newId() });
  expect(await isAnswered(answer)).toBe(false);
  expect(await tasks()).toBe(0);
  await node.agent.start(node.tls);
  const { status: code, body } = await answer;
  expect(code).toBe(202);
  expect(begun()).toEqual([body._task.id]);
});

test('is judged by what holds when the node is back', async () => {
  await lose();
  const answer = shutDown();
  expect(await isAnswered(answer)).toBe(false);
  await rest.call('PUT', `/api/nodes/${node.agent.id}/`, { body: { service_mode: true } });
  await node.agent.start(node.tls);
  expect(keyOf(await answer)).toBe('node_in_service');
  expect(begun()).toEqual([]);
});

test('waits for a controller that has just started', async () => {
  await node.agent.stop();
  await rest.restart();
  const answer = shutDown();
  expect(await isAnswered(answer)).toBe(false);
  await node.agent.start(node.tls);
  expect((await answer).status).toBe(202);
});

test('waits for whichever node has the data pool', async () => {
  await lose();
  const answer = rest.call('POST', `/api/data-pools/${pool}/scan/?async=1`, { body: {} });
  expect(await isAnswered(answer)).toBe(false);
  await node.agent.start(node.tls);
  expect((await answer).status).toBe(202);
});

test('is left to the next controller when this one stops', async () => {
  await lose();
  const answer = shutDown();
  expect(await isAnswered(answer)).toBe(false);
  rest.draining.abort();
  const { status: code, headers, body } = await answer;
  expect([code, body.errors[0].msg_key, headers[ASK_ANOTHER]]).toEqual([503, 'draining', '1']);
  expect(await tasks()).toBe(0);
});

test('is refused at once when the node has been away for longer', async () => {
  await stopAll(rest);
  await world(1);
  await lose();
  expect(keyOf(await shutDown())).toBe('node_unreachable');
  expect(await tasks()).toBe(0);
});
