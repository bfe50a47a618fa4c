import { mkdtempSync, rmSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { copyFile, open, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { type FingerprintStore, fingerprintOf } from './fingerprint.ts';

let dir: string;
const { signal } = new AbortController();
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'vk-fingerprint-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

class Store implements FingerprintStore {
  readonly values = new Map<string, unknown>();
  get = (key: string) => this.values.get(key);
  set = (key: string, value: unknown) => void this.values.set(key, value);
}

async function makeFile(name: string, writes: [offset: number, text: string][], size = 9 * MiB) {
  const path = join(dir, name);
  writeFileSync(path, '');
  truncateSync(path, size);
  const file = await open(path, 'r+');
  for (const [offset, text] of writes) await file.write(text, offset);
  await file.close();
  return path;
}

test('copies are the same, with holes or without', async () => {
  const sparse = await makeFile('sparse', [
    [0, 'head'],
    [8 * MiB, 'tail'],
  ]);
  const dense = join(dir, 'dense');
  await copyFile(sparse, dense);
  const file = await open(dense, 'r+');
  await file.write(Buffer.alloc(MiB), 0, MiB, 5 * MiB);
  await file.close();
  const found = await fingerprintOf(sparse, { signal });
  expect(found).toMatch(/^sha256:[0-9a-f]{64}$/);
  expect(await fingerprintOf(dense, { signal })).toBe(found);
});

test.each([
  ['another byte', [[0, 'heaD']] as [number, string][], 9 * MiB],
  ['another place, a block further', [[4 * MiB, 'head']] as [number, string][], 9 * MiB],
  ['another size', [[0, 'head']] as [number, string][], 10 * MiB],
])('%s is another fingerprint', async (_what, writes, size) => {
  const one = await makeFile('one', [[0, 'head']]);
  const other = await makeFile('other', writes, size);
  expect(await fingerprintOf(other, { signal })).not.toBe(await fingerprintOf(one, { signal }));
});

test('a known one is taken until the file changes, also when its date is put back', async () => {
  const store = new Store();
  const path = await makeFile('kept', [[0, 'head']]);
  const { atime, mtime } = await stat(path);
  const first = await fingerprintOf(path, { signal, store });
  const reads: number[] = [];
  const again = () => fingerprintOf(path, { signal, store, onProgress: bytes => reads.push(bytes) });
  expect(await again()).toBe(first);
  expect(reads).toEqual([]);
  const file = await open(path, 'r+');
  await file.write('HEAD', 0);
  await file.close();
  utimesSync(path, atime, mtime);
  expect(await again()).not.toBe(first);
  expect(reads.at(-1)).toBe(9 * MiB);
});

test('is stopped by its signal, and names a file that is not there', async () => {
  const path = await makeFile('stopped', [[0, 'head']]);
  const stopped = AbortSignal.abort();
  await expect(fingerprintOf(path, { signal: stopped })).rejects.toThrow();
  await expect(fingerprintOf(join(dir, 'none'), { signal })).rejects.toMatchObject({ msgKey: 'io_failed' });
});
