import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { Agent, type Server as SecureServer, request as secureRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { createLogger } from '@virtkeep/shared/log';
import { type ControllerConfig, configSchema } from '../config.ts';
import { ASK_ANOTHER } from '../http/errors.ts';
import { keyFiles } from '../keys/keys.ts';
import { type CertificateAuthority, ensureCa, issueCertificate, nodeUrn } from '../pki/index.ts';
import { type ActingPlace, Forwarder } from './forwarder.ts';
import { FORWARDER_ADDRESS, listenForPeers } from './peer-server.ts';
import { type ForwardingAgents, forwardingAgents } from './peer-tls.ts';

const log = createLogger('test', 'error');

let dir: string;
let ca: CertificateAuthority;
let agents: ForwardingAgents;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-forwarder-'));
  ca = await ensureCa(keyFiles(dir));
  agents = await forwardingAgents(ca);
});

afterAll(() => {
  agents.reads.destroy();
  agents.writes.destroy();
  rmSync(dir, { recursive: true });
});

const config: ControllerConfig = configSchema.parse({
  tls: { mode: 'off' },
  cluster: { peer: { host: '127.0.0.1', port: 0 } },
});

type Handle = (request: IncomingMessage, response: ServerResponse) => void;

let servers: (Server | SecureServer)[];
let forwarder: Forwarder;
let port: number;
let epoch: number;

beforeEach(async () => {
  servers = [];
  epoch = 0;
  forwarder = new Forwarder({ config, log, agents: async () => agents });
  const server = createServer(forwarder.handle);
  servers.push(server);
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});

afterEach(() => {
  for (const server of servers) end(server);
});

function end(server: Server | SecureServer) {
  server.close();
  server.closeAllConnections();
}

/** A controller that acts. */
async function acting(handle: Handle) {
  const server = await listenForPeers({ config, log, ca, handle });
  servers.push(server);
  epoch += 1;
  const place: ActingPlace = { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, epoch };
  return { server, place };
}

interface Sent {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

async function send(path: string, { method = 'GET', headers = {}, body }: Sent = {}) {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  request({ host: '127.0.0.1', port, path, method, headers }, resolve).once('error', reject).end(body);
  const answer = await promise;
  return { status: answer.statusCode, headers: answer.headers, body: await text(answer) };
}

test('a request arrives as it was sent, and says for whom it is', async () => {
  const seen: IncomingMessage[] = [];
  const { place } = await acting(async (incoming, response) => {
    seen.push(incoming);
    response.writeHead(201, { 'set-cookie': ['a=1', 'b=2'], 'x-own': 'yes' }).end(await text(incoming));
  });
  forwarder.point(place);
  const answer = await send('/api/domains/?a=%20b', {
    method: 'POST',
    headers: {
      authorization: 'jwt x',
      connection: 'x-hop',
      'x-hop': 'dropped',
      'x-forwarded-for': '10.1.1.1',
      'x-forwarded-host': 'evil.example',
    },
    body: 'привет',
  });
  expect(answer).toMatchObject({
    status: 201,
    body: 'привет',
    headers: { 'set-cookie': ['a=1', 'b=2'], 'x-own': 'yes' },
  });
  const [{ method, url, headers, socket } = {} as IncomingMessage] = seen;
  expect([method, url, headers.authorization]).toEqual(['POST', '/api/domains/?a=%20b', 'jwt x']);
  // what a stranger says of others does not count
  expect([headers['x-forwarded-for'], headers['x-forwarded-host']]).toEqual(['127.0.0.1', undefined]);
  expect([headers['x-hop'], headers['x-forwarded-proto']]).toEqual([undefined, 'http']);
  expect(socket.remoteAddress ?? FORWARDER_ADDRESS).toBe(FORWARDER_ADDRESS);
});

test('while nobody acts a request waits, and so it does while the one that acts is not reached', async () => {
  const gone = await acting(() => {});
  end(gone.server);
  const first = send('/one', { method: 'POST', body: 'x' });
  const second = send('/two');
  forwarder.point(gone.place);
  const { place } = await acting((incoming, response) => response.end(incoming.url));
  forwarder.point(place);
  expect((await Promise.all([first, second])).map(({ body }) => body)).toEqual(['/one', '/two']);
});

test('one that ends waits for the answers to what has come, refuses what waits, and leaves streams', async () => {
  const answers: ServerResponse[] = [];
  const { promise: both, resolve: haveBoth } = Promise.withResolvers<void>();
  const { place } = await acting((incoming, response) => {
    if (incoming.url === '/stream')
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': first\n\n');
    answers.push(response);
    if (answers.length === 2) haveBoth();
  });
  forwarder.point(place);
  const write = send('/write', { method: 'POST', body: 'x' });
  const { promise: streaming, resolve: streams } = Promise.withResolvers<void>();
  const stream = request({ host: '127.0.0.1', port, path: '/stream' }, answer => {
    answer.on('error', () => {}).once('data', () => streams());
  });
  stream.on('error', () => {}).end();
  await Promise.all([both, streaming]);
  let isDrained = false;
  const drained = forwarder.drain().then(() => {
    isDrained = true;
  });
  await new Promise(setImmediate);
  expect(isDrained).toBe(false);
  for (const answer of answers) if (answer.req.url === '/write') answer.end('done');
  expect(await write).toMatchObject({ status: 200, body: 'done', headers: { connection: 'close' } });
  await drained;
  stream.destroy();
});

test('one that ends while nobody acts refuses what waits at once', async () => {
  const { promise: came, resolve: come } = Promise.withResolvers<void>();
  servers[0]!.once('request', () => come());
  const waiting = send('/one');
  await came;
  await forwarder.drain();
  expect(await waiting).toMatchObject({ status: 503, headers: { connection: 'close' } });
});

test('what one had that is gone is asked again of the next only where that does no harm', async () => {
  const taken: string[] = [];
  const all = Promise.withResolvers<void>();
  const first = await acting(incoming => {
    taken.push(incoming.method!);
    if (taken.length === 6) all.resolve();
  });
  forwarder.point(first.place);
  const read = send('/read');
  const write = send('/write', { method: 'POST', body: '{"idempotency_key":"x"}' });
  const body = JSON.stringify({ name: 'ж', idempotency_key: newId().toUpperCase() });
  const headers = { authorization: 'jwt x', 'content-type': 'application/json' };
  const keyed = send('/keyed', { method: 'POST', body, headers });
  const unlike: Sent[] = [
    { method: 'PUT', body, headers },
    { method: 'POST', body, headers: { ...headers, 'content-type': 'application/octet-stream' } },
    { method: 'POST', body, headers: { 'content-type': 'application/json' } },
  ];
  const others = unlike.map(other => send('/other', other));
  await all.promise;
  const next = await acting(async (incoming, response) =>
    response.end(`next ${incoming.url} ${await text(incoming)}`),
  );
  forwarder.point(next.place);
  expect(await read).toMatchObject({ status: 200, body: 'next /read ' });
  expect(await keyed).toMatchObject({ status: 200, body: `next /keyed ${body}` });
  for (const other of others) expect((await other).status).toBe(503);
  const answer = await write;
  expect([answer.status, answer.headers['retry-after']]).toEqual([503, '2']);
  expect(JSON.parse(answer.body).errors[0]).toMatchObject({ msg_key: 'controller_changed' });
});

test('a request that ends whoever takes it ends two of them at the most', async () => {
  let taken = 0;
  const { place } = await acting(incoming => {
    taken += 1;
    incoming.socket.destroy();
  });
  forwarder.point(place);
  expect((await send('/poison')).status).toBe(503);
  const body = JSON.stringify({ idempotency_key: newId() });
  const headers = { authorization: 'jwt x', 'content-type': 'application/json' };
  expect((await send('/poison', { method: 'POST', body, headers })).status).toBe(503);
  expect(taken).toBe(4);
});

test('one that is about to end has the request done by the next one', async () => {
  const first = await acting((_incoming, response) => {
    response.writeHead(503, { [ASK_ANOTHER]: '1' }).end();
  });
  forwarder.point(first.place);
  const write = send('/write', { method: 'POST', body: 'x' });
  const next = await acting(async (incoming, response) => response.end(await text(incoming)));
  // its epoch stays, or what the first one has is ended before it answers
  forwarder.point({ ...next.place, epoch: first.place.epoch });
  expect(await write).toMatchObject({ status: 200, body: 'x' });
});

test.each([
  ['GET', { 'transfer-encoding': 'chunked' }],
  ['DELETE', { 'transfer-encoding': 'chunked', connection: 'transfer-encoding' }],
  ['GET', { connection: 'content-length, host, authorization, x-forwarded-for' }],
] as const)('a request hidden in the body of a %s with %j stays its body', async (method, headers) => {
  const seen: string[] = [];
  const { place } = await acting(async (incoming, response) => {
    seen.push(`${incoming.method} ${incoming.url} ${await text(incoming)} ${incoming.headers.authorization}`);
    response.end();
  });
  forwarder.point(place);
  const hidden = 'GET /hidden HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 6.6.6.6\r\n\r\n';
  const given = { ...headers, authorization: 'jwt mine' };
  const framing = 'transfer-encoding' in headers ? {} : { 'content-length': String(hidden.length) };
  await send('/shown', { method, headers: { ...given, ...framing }, body: hidden });
  await send('/next');
  expect(seen).toEqual([`${method} /shown ${hidden} jwt mine`, 'GET /next  undefined']);
});

test('a long body is passed on as it comes', async () => {
  const { place } = await acting(async (incoming, response) =>
    response.end(String((await text(incoming)).length)),
  );
  forwarder.point(place);
  const body = 'x'.repeat(1_000_000);
  expect(await send('/upload', { method: 'POST', body })).toMatchObject({ body: '1000000' });
});

test('an answer that breaks off is not taken for a whole one', async () => {
  const { server, place } = await acting((_incoming, response) => {
    response.writeHead(200).write('the beginning');
  });
  forwarder.point(place);
  const { promise, resolve } = Promise.withResolvers<IncomingMessage>();
  request({ host: '127.0.0.1', port, path: '/' }, resolve).end();
  const read = async () => {
    for await (const _ of await promise) end(server);
  };
  await expect(read()).rejects.toThrow('aborted');
});

test('a client that leaves ends its request', async () => {
  const closed = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  const { place } = await acting((_incoming, response) => {
    response.once('close', closed.resolve);
    arrived.resolve();
  });
  forwarder.point(place);
  const client = request({ host: '127.0.0.1', port, path: '/' });
  client.on('error', () => {});
  client.end();
  await arrived.promise;
  client.destroy();
  await closed.promise;
});

test.each(['nobody', 'a node'])('%s is no controller and is not let in', async who => {
  const { place } = await acting((_incoming, response) => response.end('let in'));
  const own = await issueCertificate(ca, {
    commonName: 'node',
    names: { urns: [nodeUrn('6f8a9f0e-0000-4000-8000-000000000000')], hosts: [] },
    use: 'client',
    days: 1,
  });
  const shown = who === 'nobody' ? {} : { cert: own.chainPem, key: own.privateKeyPem };
  const stranger = new Agent({ ca: ca.certificatePem, checkServerIdentity: () => undefined, ...shown });
  const [host, at] = place.address.split(':');
  const refused = new Promise((resolve, reject) => {
    secureRequest({ agent: stranger, host, port: Number(at), path: '/' }, resolve)
      .once('error', reject)
      .end();
  });
  await expect(refused).rejects.toThrow();
  stranger.destroy();
});
