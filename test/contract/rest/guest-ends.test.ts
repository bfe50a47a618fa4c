/** What ends a guest command before the guest does: the client leaves, the controller stops, the node goes away. */
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type ErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import { makeRestApp, type RestApp } from './app.ts';
import { enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let agent: FakeAgent;
let path: string;
/** Ends of the calls that reached the node, as it sees them. */
let calls: { ended: boolean }[];

beforeEach(async () => {
  rest = await makeRestApp();
  ({ agent } = await enrolled(rest, 'n1'));
  const { id } = agent.setDomain({});
  await until(async () => (await rest.call('GET', `/api/domains/${id}/`)).status === 200);
  path = `/api/domains/${id}/guest-command/`;
  calls = [];
  agent.runGuestCommand = (_request, signal) => {
    const call = { ended: false };
    calls.push(call);
    return new Promise((_resolve, reject) =>
      signal.addEventListener('abort', () => {
        call.ended = true;
        reject(new VirtkeepError('canceled'));
      }),
    );
  };
});
afterEach(() => stopAll(rest));

/** The same command once more. */
const again = (key: string) =>
  rest.call('POST', path, { as: 'operator', body: { ...BODY, idempotency_key: key } });
const keyOf = (answer: { body: { errors: { msg_key: string }[] } }) => answer.body.errors[0]?.msg_key;

/** It is refused, and the guest has it once. */
async function expectOnce(key: string): Promise<void> {
  const answer = await again(key);
  expect([answer.status, keyOf(answer), calls.length]).toEqual([409, 'idempotency_answer_gone', 1]);
}

const BODY = { emu_cmd: 'guest-exec', fargs: { path: 'sleep' }, timeout: 600 };

test('a client that leaves ends the wait on the node', async () => {
  await rest.app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = rest.app.server.address() as AddressInfo;
  const headers = { authorization: `jwt ${rest.tokens.operator}`, 'content-type': 'application/json' };
  const sent = request({ port, path, method: 'POST', headers });
  sent.on('error', () => {});
  const idempotency_key = randomUUID();
  sent.end(JSON.stringify({ ...BODY, idempotency_key }));
  await until(() => calls.length === 1);
  expect(calls[0]!.ended).toBe(false);
  sent.destroy();
  await until(() => calls[0]!.ended);
  // what was asked is known all the same
  const records = async () => (await rest.call('GET', '/api/audit/?name=guest-exec')).body.results;
  await until(async () => (await records()).length > 0);
  expect(await records()).toMatchObject([
    { user: { username: 'the-operator' }, error: 'canceled', request: BODY },
  ]);
  await expectOnce(idempotency_key);
});

test('a controller that stops answers so', async () => {
  const idempotency_key = randomUUID();
  const answer = again(idempotency_key);
  await until(() => calls.length === 1);
  rest.draining.abort(new VirtkeepError('draining'));
  const { status: code, body } = await answer;
  expect([code, body.errors[0].msg_key]).toEqual([503, 'draining']);
  await until(() => calls[0]!.ended);
  await rest.restart();
  await expectOnce(idempotency_key);
});

test('a controller that is killed has not written down whether the guest has the command, which is not carried out again', async () => {
  agent.runGuestCommand = async () => {
    calls.push({ ended: true });
    return '{}';
  };
  const idempotency_key = randomUUID();
  expect((await again(idempotency_key)).status).toBe(200);
  await rest.services.db.updateTable('idempotency').set({ status: null, answer_json: null }).execute();
  await rest.restart();
  await expectOnce(idempotency_key);
});

test.each<ErrorKey>(['guest_command_timed_out', 'libvirt_unreachable', 'internal'])(
  'a command after which the node says %s is not carried out again',
  async msgKey => {
    agent.runGuestCommand = async () => {
      calls.push({ ended: true });
      throw new VirtkeepError(msgKey);
    };
    const idempotency_key = randomUUID();
    expect(keyOf(await again(idempotency_key))).toBe(msgKey);
    await expectOnce(idempotency_key);
  },
);

test('a node that goes away, or is away, is told of', async () => {
  const idempotency_key = randomUUID();
  const answer = again(idempotency_key);
  await until(() => calls.length === 1);
  await agent.stop();
  const { status: code, body } = await answer;
  // it may have been carried out
  expect([code, body.errors[0].msg_key]).toEqual([503, 'outcome_unknown']);
  await expectOnce(idempotency_key);
  await status(rest, agent.id, 'FAILED');
  const other = randomUUID();
  for (const later of [await again(other), await again(other)])
    expect([later.status, keyOf(later)]).toEqual([503, 'node_unreachable']);
  const info = await rest.call('GET', path.replace('guest-command', 'guest-info'));
  expect([info.status, info.body.qemu_state]).toEqual([200, false]);
});
