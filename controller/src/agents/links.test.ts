import { createServer, type Server } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { AgentTls } from './clients.ts';
import { LINK_TIMES, type LinkObserver } from './link.ts';
import { NodeLinks } from './links.ts';

const NODE = '0b3c8f9e-1111-4222-8333-444455556666';
let server: Server;
let target: { id: string; name: string; address: string };
/** Attempts to connect, each held until it is let go on. */
let attempts: (() => void)[];
let attempted: () => void;
let links: NodeLinks;

const nextAttempt = () =>
  new Promise<void>(resolve => {
    attempted = resolve;
  });

beforeEach(async () => {
  attempts = [];
  attempted = () => {};
  // nobody answers there
  server = createServer(socket => socket.destroy());
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  target = { id: NODE, name: 'n1', address: `127.0.0.1:${port}` };
  const tls = () =>
    new Promise<AgentTls>((_, reject) => {
      attempts.push(() => reject(new Error('no certificate')));
      attempted();
    });
  const log = { child: () => log, debug() {}, info() {}, warn() {}, error() {} } as never;
  links = new NodeLinks(tls, {} as LinkObserver, log, { ...LINK_TIMES, returnMs: 1000 });
});
afterEach(async () => {
  for (const goOn of attempts) goOn();
  await links.stop();
  await new Promise(resolve => server.close(resolve));
});

test('a node that is removed while it is connected anew is not connected again', async () => {
  const first = nextAttempt();
  await links.add(target);
  await first;
  const reconnected = links.reconnect(NODE, 'its certificate was revoked');
  const removed = links.remove(NODE);
  attempts[0]!();
  await Promise.all([reconnected, removed]);
  // as long as not all are there, one that is not is none that is unknown
  expect(() => links.clients(NODE)).toThrow('the controller is starting');
  links.complete();
  expect(() => links.clients(NODE)).toThrow(`no node ${NODE}`);
  expect(attempts).toHaveLength(1);
});

test('two that connect a node anew at once leave one connection, begun after the former has ended', async () => {
  const first = nextAttempt();
  await links.add(target);
  await first;
  const both = Promise.all([links.reconnect(NODE, 'one'), links.add({ ...target, name: 'n2' })]);
  expect(attempts).toHaveLength(1);
  const second = nextAttempt();
  attempts[0]!();
  await both;
  await second;
  expect(attempts).toHaveLength(2);
  expect(() => links.clients(NODE)).toThrow(
    expect.objectContaining({ params: expect.objectContaining({ node: 'n2' }) }),
  );
});

test('nobody waits for nodes once all are stopped', async () => {
  const first = nextAttempt();
  await links.add(target);
  await first;
  const settled = links.settled(Number.POSITIVE_INFINITY);
  attempts[0]!();
  await links.stop();
  await settled;
});

test('once all are stopped the nodes are away, not unknown: what was being sent to them may still have arrived', async () => {
  const first = nextAttempt();
  await links.add(target);
  await first;
  const stopped = links.stop();
  attempts[0]!();
  await stopped;
  expect(() => links.clients(NODE)).toThrow(expect.objectContaining({ msgKey: 'node_unreachable' }));
});

test('a node that nobody has tried to reach is expected, and one that could not be is so for a while', async () => {
  const first = nextAttempt();
  await links.add(target);
  const isBack = links.untilBack(NODE, new AbortController().signal);
  await first;
  attempts[0]!();
  expect(await isBack).toBe(false);
});

test('nobody waits for a node that is none of ours, or once all are stopped', async () => {
  const { signal } = new AbortController();
  const early = links.untilBack(NODE, signal);
  links.complete();
  expect(await early).toBe(false);
  const first = nextAttempt();
  await links.add(target);
  await first;
  const isBack = links.untilBack(NODE, signal);
  const stopped = links.stop();
  attempts[0]!();
  await stopped;
  expect(await isBack).toBe(false);
});
