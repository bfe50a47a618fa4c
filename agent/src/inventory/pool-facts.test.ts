import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { type Libvirt, PoolState, type StoragePool } from '@virtkeep/node-libvirt';
import { createLogger } from '@virtkeep/shared/log';
import { PathGate, type Settings } from '../pools/index.ts';
import { readPools } from './pool-facts.ts';

const path = mkdtempSync(join(tmpdir(), 'virtkeep-pool-facts-'));
afterAll(() => rmSync(path, { recursive: true, force: true }));

const kept = new Map<string, unknown>();
const settings: Settings = { get: key => kept.get(key), set: kept.set.bind(kept) };
const pool = {
  name: 'p',
  xml: async () =>
    `<pool type='dir'><name>p</name><uuid>22222222-2222-4333-8444-555555555555</uuid><target><path>${path}</path></target></pool>`,
  info: async () => ({ state: PoolState.RUNNING, capacity: 3, allocation: 2, available: 1 }),
} as unknown as StoragePool;

test.each(['warn', 'refuse'] as const)(
  'a pool whose owner cannot be told is listed, and with %s known for it',
  async ownership => {
    // where temporary files have a file system of their own the pool was marked, and with the directory the mark is gone
    kept.clear();
    rmSync(path, { recursive: true });
    mkdirSync(path);
    symlinkSync('backups', join(path, 'backups'));
    const libvirt = { pools: async () => [pool] } as unknown as Libvirt;
    const gate = new PathGate();
    const found = await readPools(libvirt, { settings, ownership, gate, log: createLogger('test', 'error') });
    const how = expect.stringContaining('cannot be told');
    expect(found).toMatchObject([
      { name: 'p', mounted: true, othersMayWrite: { how, refused: ownership === 'refuse' } },
    ]);
  },
);
