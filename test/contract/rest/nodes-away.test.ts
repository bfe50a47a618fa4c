/** What is asked for while its node is away for a moment: its agent is started anew, or a network breaks. */
import { afterEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { makeRestApp, type RestApp } from './app.ts';
import { type Enrolled, enrolled, status, stopAll, until } from './nodes-world.ts';

let rest: RestApp;
afterEach(() => stopAll(rest));

async function lostNode(
  returnMs: number,
): Promise<{ node: Enrolled; backUp: (key: string) => Promise<number> }> {
  rest = await makeRestApp({ agents: { lost_after_s: 0.2 } }, async () => {}, { returnMs });
  const node = await enrolled(rest, 'n1');
  const pool = node.agent.setPool({});
  const domain = node.agent.setDomain({});
  await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 200);
  await node.agent.stop();
  await until(async () => (await rest.call('GET', `/api/nodes/${node.agent.id}/`)).body.status !== 'ACTIVE');
  const body = { domain: domain.id, datapool: pool.id };
  const backUp = async (key: string) => {
    const asked = { body: { ...body, idempotency_key: key } };
    return (await rest.call('POST', '/api/domains/backup/?async=1', asked)).status;
  };
  return { node, backUp };
}

async function backups(): Promise<number> {
  const { results } = (await rest.call('GET', '/api/tasks/')).body;
  return results.filter((task: { name: string }) => task.name === 'domain_backup').length;
}

/** Resolves when so many requests wait for the node. */
function waiting(count: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { nodeReturns } = rest.services;
  let left = count;
  rest.services.nodeReturns = (...asked) => {
    left -= 1;
    if (left === 0) resolve();
    return nodeReturns(...asked);
  };
  return promise;
}

test('it waits for the node, and is done once', async () => {
  const { node, backUp } = await lostNode(600_000);
  const key = newId();
  const both = waiting(2);
  // the second one of the same key waits for the first
  const answers = Promise.all([backUp(key), backUp(key), backUp(newId())]);
  await both;
  await node.agent.start(node.tls);
  expect(await answers).toEqual([202, 202, 202]);
  expect(await backups()).toBe(2);
});

test('it is refused when the node does not return in time, and its key is free again', async () => {
  const { node, backUp } = await lostNode(300);
  const key = newId();
  expect(await backUp(key)).toBe(503);
  expect(await backups()).toBe(0);
  await node.agent.start(node.tls);
  await status(rest, node.agent.id, 'ACTIVE');
  expect(await backUp(key)).toBe(202);
});

test('it ends with the controller', async () => {
  const { backUp } = await lostNode(600_000);
  const one = waiting(1);
  const answer = backUp(newId());
  await one;
  rest.draining.abort(new VirtkeepError('draining'));
  expect(await answer).toBe(503);
});
