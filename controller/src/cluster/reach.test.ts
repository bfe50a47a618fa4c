import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { keyFiles } from '../keys/keys.ts';
import { type CertificateAuthority, ensureCa } from '../pki/index.ts';
import type { LeaseRow } from '../store/lease-table.ts';
import { peerCertificate } from './peer-tls.ts';
import { missedNodes, NodeLooks, reachesMost } from './reach.ts';

const log = createLogger('test', 'error');
const nodes = (count: number) => Array.from({ length: count }, (_, number) => `node${number}:9443`);

describe('nodes that are missed', () => {
  test.each([
    [0, 0],
    [3, 1],
    [100, 66],
  ])('of %d none when %d are away: they may be off', (all, away) => {
    expect(missedNodes({ all, away: nodes(away) })).toEqual([]);
  });

  test.each([
    [1, 1, 1],
    [3, 2, 2],
    [100, 67, 8],
  ])('of %d with %d away are %d', (all, away, some) => {
    const missed = missedNodes({ all, away: nodes(away) });
    expect(new Set(missed).size).toBe(some);
    expect(nodes(away)).toEqual(expect.arrayContaining(missed));
  });
});

describe('reaching', () => {
  let ca: CertificateAuthority;
  let other: CertificateAuthority;
  let dirs: string[];
  const servers: Server[] = [];

  beforeAll(async () => {
    dirs = ['one', 'two'].map(name => mkdtempSync(join(tmpdir(), `vk-reach-${name}-`)));
    [ca, other] = (await Promise.all(dirs.map(dir => ensureCa(keyFiles(dir))))) as [typeof ca, typeof ca];
  });
  afterAll(() => {
    for (const dir of dirs) rmSync(dir, { recursive: true });
  });
  afterEach(() => {
    for (const server of servers.splice(0)) server.close();
  });

  /** @returns the address of an agent of an authority, or of what says nothing */
  async function agent(of: CertificateAuthority | 'silent'): Promise<string> {
    const own = of === 'silent' ? undefined : await peerCertificate(of, 'server');
    const tls = own && { key: own.privateKeyPem, cert: own.chainPem, requestCert: true };
    const server = createServer({ ...tls, rejectUnauthorized: false }, socket =>
      socket.on('error', () => {}),
    );
    server.on('tlsClientError', () => {});
    servers.push(server);
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    return `127.0.0.1:${(server.address() as { port: number }).port}`;
  }

  test('most of some nodes', async () => {
    const there = await Promise.all([agent(ca), agent(ca), agent(ca)]);
    expect(await reachesMost([...there, await agent('silent')], ca)).toBe(true);
    expect(await reachesMost([...there.slice(1), await agent('silent')], ca)).toBe(false);
  });

  test('what is of another authority is none of our nodes', async () => {
    expect(await reachesMost([await agent(other)], ca)).toBe(false);
    expect(await reachesMost([], ca)).toBe(false);
  });

  test('looks once while it looks, and tells only what it reaches', async () => {
    const row = { away: [await agent(ca)], epoch: 7 } as LeaseRow;
    const told = Promise.withResolvers<LeaseRow>();
    let asked = 0;
    const looks = new NodeLooks({
      authority: async () => {
        asked += 1;
        return ca;
      },
      log,
      reached: async found => told.resolve(found),
    });
    looks.consider(row);
    looks.consider(row);
    expect(await told.promise).toBe(row);
    looks.consider(row);
    expect(asked).toBe(1);
  });
});
