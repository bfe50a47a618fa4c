import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { createLogger, type Logger } from '@virtkeep/shared/log';
import { Standby } from './cluster/standby.ts';
import { type ControllerConfig, configSchema } from './config.ts';
import { keyFiles } from './keys/keys.ts';
import { type CertificateAuthority, ensureCa, issueServerCertificate } from './pki/index.ts';
import { followCertificate, serverTls } from './tls.ts';

const HOUR_MS = 3_600_000;
const REAL = ['nextTick', 'queueMicrotask', 'setImmediate', 'setTimeout', 'Date', 'performance'] as const;

let dir: string;
let ca: CertificateAuthority;
/** The next line of the log. */
let said: PromiseWithResolvers<string>;
/** Where a controller that stands by listens. */
let standbyPort: number;

const note = (message: string, { address }: { address?: AddressInfo } = {}) => {
  standbyPort = address?.port ?? standbyPort;
  said.resolve(message);
};
const log: Logger = Object.create(createLogger('test', 'error'), {
  info: { value: note },
  error: { value: note },
});

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-tls-'));
  ca = await ensureCa(keyFiles(dir));
  jest.useFakeTimers({ doNotFake: [...REAL] });
  said = Promise.withResolvers();
});
afterEach(() => {
  jest.useRealTimers();
  rmSync(dir, { recursive: true });
});

const withFiles = () =>
  configSchema.parse({
    state_dir: dir,
    listen: { host: '127.0.0.1', port: 0 },
    tls: { mode: 'files', certificate: join(dir, 'a.crt'), key: join(dir, 'a.key') },
  });

/** Puts a certificate into the files of the settings. @returns its serial number */
async function put(): Promise<string> {
  const { certificatePem, privateKeyPem } = await issueServerCertificate(ca, ['localhost']);
  writeFileSync(join(dir, 'a.crt'), certificatePem);
  writeFileSync(join(dir, 'a.key'), privateKeyPem);
  return new X509Certificate(certificatePem).serialNumber;
}

async function serving(config: ControllerConfig): Promise<Server> {
  const tls = await serverTls(config, ca);
  const server = createServer(tls!);
  followCertificate(server, tls, () => serverTls(config, ca), log);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

/** It looks at nothing any more. */
async function close(server: Server): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await closed;
  expect(jest.getTimerCount()).toBe(0);
}

const portOf = (server: Server) => (server.address() as AddressInfo).port;

/** Serial number of the certificate that a client sees. */
async function shownAt(port: number): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port, ca: ca.certificatePem, servername: 'localhost' });
  await once(socket, 'secureConnect');
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}

/** What is in the log then. */
function anHourLater(): Promise<string> {
  said = Promise.withResolvers();
  jest.advanceTimersByTime(HOUR_MS);
  return said.promise;
}

test('a certificate that is renewed is shown without a restart; one that is broken leaves the one before', async () => {
  const first = await put();
  const server = await serving(withFiles());
  expect(await shownAt(portOf(server))).toBe(first);

  const second = await put();
  expect(await anHourLater()).toMatch('was renewed');
  expect(await shownAt(portOf(server))).toBe(second);

  await put();
  const { privateKeyPem: ofAnother } = await issueServerCertificate(ca, ['localhost']);
  writeFileSync(join(dir, 'a.key'), ofAnother);
  expect(await anHourLater()).toMatch('was not renewed');
  rmSync(join(dir, 'a.key'));
  expect(await anHourLater()).toMatch('was not renewed');
  expect(await shownAt(portOf(server))).toBe(second);

  const last = await put();
  expect(await anHourLater()).toMatch('was renewed');
  expect(await shownAt(portOf(server))).toBe(last);
  await close(server);
});

test('so is the one that the controller makes itself, once it makes another', async () => {
  const server = await serving(configSchema.parse({ state_dir: dir }));
  const first = await shownAt(portOf(server));
  // as with the last third of its life
  rmSync(join(dir, 'pki', 'server.pem'));
  await anHourLater();
  expect(await shownAt(portOf(server))).not.toBe(first);
  await close(server);
});

test('a controller that stands by shows the new one, too', async () => {
  await put();
  const standby = new Standby({ config: withFiles(), log, authority: async () => ca });
  await standby.point({ address: '127.0.0.1:1', epoch: 1 });
  const second = await put();
  expect(await anHourLater()).toMatch('was renewed');
  expect(await shownAt(standbyPort)).toBe(second);
  await standby.stop();
});
