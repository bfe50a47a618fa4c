import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';

jest.unstable_mockModule('./syscalls.ts', () => ({
  setLock: async () => 'unsupported',
  isLocked: async () => false,
}));
const { lockFile, whenLocksAreMissing } = await import('./file-lock.ts');
const { reserveName } = await import('../write/reserve.ts');

let directory: string;
let path: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'lockless-'));
  path = join(directory, 'a.tar');
  writeFileSync(path, '');
});
afterAll(() => rmSync(directory, { recursive: true }));

test('a file system without locks is told of once, and nothing is refused there', async () => {
  const told: string[] = [];
  whenLocksAreMissing(file => told.push(file));
  const locks = [await lockFile(path, 'exclusive'), await lockFile(path, 'exclusive')];
  expect(locks.map(({ excludes }) => excludes)).toEqual([false, false]);
  for (const lock of locks) await lock.release();
  expect(told).toEqual([path]);
});

test('there a reservation is never taken for a stale one', async () => {
  const free = join(directory, 'b.tar');
  const lock = await reserveName(free, 'one');
  expect(lock).not.toBeNull();
  expect(await reserveName(free, 'two')).toBeNull();
  await lock!.release();
  expect(await reserveName(free, 'two')).toBeNull();
});
