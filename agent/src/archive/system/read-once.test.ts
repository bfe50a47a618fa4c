import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { ReadOnce } from './read-once.ts';

const BLOCK_BYTES = 512;
let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'read-once-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

test('what was read gives its room back, what comes is there to the last byte, and the size stays', async () => {
  const path = join(directory, 'spare');
  writeFileSync(path, Buffer.alloc(80 * MiB, 7));
  const file = await open(path, 'r+');
  const once = new ReadOnce(file);
  for (const bytesDone of [10, 31, 33, 50, 71]) once.done(bytesDone * MiB);
  // an older word of it
  once.done(5 * MiB);
  await once.settled();
  const { size, blocks } = statSync(path);
  expect(size).toBe(80 * MiB);
  expect(blocks * BLOCK_BYTES).toBeLessThan(17 * MiB);
  const { buffer } = await file.read(Buffer.alloc(16 * MiB), 0, 16 * MiB, 64 * MiB);
  expect(buffer.every(byte => byte === 7)).toBe(true);
  await file.close();
});

test('a file that cannot give back what it has stays as it is', async () => {
  const path = join(directory, 'spare');
  writeFileSync(path, Buffer.alloc(40 * MiB, 7));
  const file = await open(path, 'r');
  const once = new ReadOnce(file);
  once.done(40 * MiB);
  await once.settled();
  await file.close();
  expect(statSync(path).blocks * BLOCK_BYTES).toBeGreaterThanOrEqual(40 * MiB);
});
