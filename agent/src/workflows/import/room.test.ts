import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { MiB, roundUp } from '@virtkeep/shared/units';
import { bytesOf, requireRoom } from './room.ts';

const path = mkdtempSync(join(tmpdir(), 'vk-room-'));
afterAll(() => rmSync(path, { recursive: true }));

const CLUSTER = 2 * MiB;
const COPIED = 1n << 63n;

/** A small image of a disk of 8 TiB that is full of data: each of its clusters is the same one. */
function fullDisk(): string {
  const file = join(path, 'full.qcow2');
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-o', 'cluster_size=2M', file, '8T']);
  const empty = readFileSync(file);
  const table = roundUp(empty.length, CLUSTER);
  const bytes = Buffer.concat([empty, Buffer.alloc(table + 2 * CLUSTER - empty.length, 7)]);
  const first = Number(bytes.readBigUInt64BE(40));
  const write = (value: number, at: number) => bytes.writeBigUInt64BE(BigInt(value) | COPIED, at);
  for (let entry = 0; entry < bytes.readUInt32BE(36); entry += 1) write(table, first + 8 * entry);
  for (let at = 0; at < CLUSTER; at += 8) write(table + CLUSTER, table + at);
  writeFileSync(file, bytes);
  return file;
}

test('what becomes larger than the pool has room for is refused before it is written, however small it was', async () => {
  const { signal } = new AbortController();
  const pool = { name: 'p', path };
  const content = (filename: string, driver: string) => ({
    blockdev: { driver, 'read-only': true, file: { driver: 'file', filename } },
  });
  const small = join(path, 'small.raw');
  writeFileSync(small, Buffer.alloc(MiB, 1));
  const [imageBytes] = await requireRoom(pool, [content(small, 'raw')], false, signal);
  expect(imageBytes).toBeGreaterThan(MiB);
  expect(imageBytes).toBeLessThan(2 * MiB);
  const both = [content(small, 'raw'), content(fullDisk(), 'qcow2')];
  await expect(requireRoom(pool, both, true, signal)).rejects.toMatchObject({ msgKey: 'pool_no_space' });
});

test('what is compressed stands in a file of its own before: beside the archive the largest has room', () => {
  const sizes = [100, 300, 200];
  expect([bytesOf(sizes, false), bytesOf(sizes, true), bytesOf([], true)]).toEqual([600, 600 / 2 + 300, 0]);
});
