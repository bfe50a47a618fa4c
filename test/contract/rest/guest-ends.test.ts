/** What ends a guest command before the guest does: the client leaves, the controller stops, the node goes away. */
import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
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

const BODY = { emu_cmd: 'guest-exec', fargs: { path: 'sleep' }, timeout: 600 };

test('a client that leaves ends the wait on the node', async () => {
  await rest.app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = rest.app.server.address() as AddressInfo;
  const headers = { authorization: `jwt ${rest.tokens.operator}`, 'content-type': 'application/json' };
  const sent = request({ port, path, method: 'POST', headers });
  sent.on('error', () => {});
  sent.end(JSON.stringify(BODY));
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
});

test('a controller that stops answers so', async () => {
  const answer = rest.call('POST', path, { body: BODY });
  await until(() => calls.length === 1);
  rest.draining.abort(new VirtkeepError('draining'));
  const { status: code, body } = await answer;
  expect([code, body.errors[0].msg_key]).toEqual([503, 'draining']);
  await until(() => calls[0]!.ended);
});

test('a node that goes away, or is away, is told of', async () => {
  const answer = rest.call('POST', path, { body: BODY });
  await until(() => calls.length === 1);
  await agent.stop();
  const { status: code, body } = await answer;
  expect([code, body.errors[0].msg_key]).toEqual([503, 'node_unreachable']);
  await status(rest, agent.id, 'FAILED');
  const later = await rest.call('POST', path, { body: BODY });
  expect([later.status, later.body.errors[0].msg_key]).toEqual([503, 'node_unreachable']);
  const info = await rest.call('GET', path.replace('guest-command', 'guest-info'));
  expect([info.status, info.body.qemu_state]).toEqual([200, false]);
});
