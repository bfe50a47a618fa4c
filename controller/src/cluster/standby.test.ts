/** What clients see of a controller that stood by when its turn comes. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener, request, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { createLogger, type Logger } from '@virtkeep/shared/log';
import { configSchema } from '../config.ts';
import { keyFiles } from '../keys/keys.ts';
import { type CertificateAuthority, ensureCa } from '../pki/index.ts';
import type { ActingPlace } from './forwarder.ts';
import { listenForPeers } from './peer-server.ts';
import { Standby } from './standby.ts';

const quiet = createLogger('test', 'error');
/** Hears where a controller listens that stands by. */
const log: Logger = Object.create(quiet, {
  info: {
    value: (_message: string, { address }: { address: AddressInfo }) => {
      port = address.port;
    },
  },
});
const AT_ONCE = 50;

let dir: string;
let ca: CertificateAuthority;
let standby: Standby;
let port: number;
let servers: { close(): void; closeAllConnections(): void }[];

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-standby-'));
  ca = await ensureCa(keyFiles(dir));
});
afterAll(() => rmSync(dir, { recursive: true }));

const settings = (listen: object) =>
  configSchema.parse({
    state_dir: dir,
    listen,
    tls: { mode: 'off' },
    cluster: { peer: { host: '127.0.0.1', port: 0 } },
  });

beforeEach(() => {
  servers = [];
  const config = settings({ host: '127.0.0.1', port: 0 });
  standby = new Standby({ config, log, authority: async () => ca });
});
afterEach(async () => {
  await standby.stop();
  for (const server of servers) {
    server.close();
    server.closeAllConnections();
  }
});

/** Where one that acts takes what is forwarded; it says of each answer that it came that way. */
async function acting(epoch: number): Promise<ActingPlace> {
  const handle: RequestListener = (_request, response) => response.end('forwarded');
  const server = await listenForPeers({ config: settings({}), log: quiet, ca, handle });
  servers.push(server);
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, epoch };
}

/** The server of this controller itself, which does not listen yet. */
function own(): Server {
  const server = createServer((_request, response) => response.end('itself'));
  servers.push(server);
  return server;
}

const NEW = `GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`;

/** What comes on a connection until its end. @throws when it is refused or reset */
async function answerOn(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', piece => {
    text += piece;
  });
  socket.write(NEW);
  await once(socket, 'close');
  return text.trim().split('\n').at(-1)!;
}

/** Of an answer in pieces. */
async function bodyOn(socket: Socket): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const asking = request(
    { createConnection: () => socket, path: '/' },
    response => void readText(response).then(resolve, reject),
  );
  asking.once('error', reject).end();
  return promise;
}

test('whoever connects while its turn begins is answered', async () => {
  await standby.point(await acting(1));
  const mine = await acting(2);
  const server = own();
  // more than one turn of the loop takes: some are in the queue of the socket when it changes hands
  const early = Array.from({ length: AT_ONCE }, () => connect(port, '127.0.0.1'));
  const answers = early.map(answerOn);
  await Promise.all(early.slice(0, 5).map(socket => once(socket, 'connect')));
  standby.forwardTo(mine);
  expect(await standby.giveSocketTo(server)).toBe(true);
  answers.push(...Array.from({ length: AT_ONCE }, () => answerOn(connect(port, '127.0.0.1'))));
  const heard = await Promise.all(answers);
  expect(heard).toHaveLength(2 * AT_ONCE);
  expect(heard.filter(answer => !/^(itself|forwarded)$/.test(answer))).toEqual([]);
  expect(heard.slice(AT_ONCE)).toEqual(Array.from({ length: AT_ONCE }, () => 'itself'));
});

test('a connection that is open goes on to it, and ends with the answer', async () => {
  await standby.point(await acting(1));
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  const server = own();
  standby.forwardTo(await acting(2));
  await standby.giveSocketTo(server);
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  let text = '';
  socket.on('data', piece => {
    text += piece;
  });
  await once(socket, 'close');
  expect(text).toContain('forwarded');
  expect(text.toLowerCase()).toContain('connection: close');
});

test('a connection on which somebody asks now and then whether it lives ends, too', async () => {
  await standby.point(await acting(1));
  const socket = connect(port, '127.0.0.1');
  let text = '';
  socket.on('data', piece => {
    text += piece;
  });
  const ask = () => socket.write('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n');
  ask();
  while (!text.includes('"ok"')) await once(socket, 'data');
  standby.forwardTo(await acting(2));
  await standby.giveSocketTo(own());
  ask();
  await once(socket, 'close');
  expect(text.match(/"ok"/g)).toHaveLength(2);
});

test('whoever waits for an answer while its turn begins has all of it', async () => {
  const { promise: asked, resolve: beAsked } = Promise.withResolvers<() => void>();
  const handle: RequestListener = (_request, response) => {
    response.write('half');
    beAsked(() => response.end(' whole'));
  };
  const slow = await listenForPeers({ config: settings({}), log: quiet, ca, handle });
  servers.push(slow);
  const place = { address: `127.0.0.1:${(slow.address() as AddressInfo).port}`, epoch: 1 };
  await standby.point(place);
  const answer = bodyOn(connect(port, '127.0.0.1'));
  const goOn = await asked;
  standby.forwardTo(place);
  await standby.giveSocketTo(own());
  goOn();
  expect(await answer).toBe('half whole');
});

test('one that ends takes nothing more, and what it has is answered', async () => {
  const { promise: asked, resolve: beAsked } = Promise.withResolvers<() => void>();
  const handle: RequestListener = (_request, response) => beAsked(() => response.end('whole'));
  const slow = await listenForPeers({ config: settings({}), log: quiet, ca, handle });
  servers.push(slow);
  await standby.point({ address: `127.0.0.1:${(slow.address() as AddressInfo).port}`, epoch: 1 });
  const answer = bodyOn(connect(port, '127.0.0.1'));
  const goOn = await asked;
  const drained = standby.drain();
  await new Promise(setImmediate);
  await expect(bodyOn(connect(port, '127.0.0.1'))).rejects.toThrow('ECONNREFUSED');
  goOn();
  expect(await answer).toBe('whole');
  await drained;
});

test('one that has not listened has nothing to give', async () => {
  standby.forwardTo(await acting(1));
  expect(await standby.giveSocketTo(own())).toBe(false);
});

test('the port is free when both have ended', async () => {
  await standby.point(await acting(1));
  const server = own();
  standby.forwardTo(await acting(2));
  await standby.giveSocketTo(server);
  server.close();
  await once(server, 'close');
  await standby.stop();
  const { promise, reject } = Promise.withResolvers<never>();
  request({ host: '127.0.0.1', port }).once('error', reject).end();
  await expect(promise).rejects.toThrow('ECONNREFUSED');
});
