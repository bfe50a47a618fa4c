import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { readIfPresent, readOrWriteOnce, writeDurably, writeOnce } from './durable-file.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-durable-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const modeOf = (path: string): number => statSync(path).mode & 0o777;

test('a secret that many make at once is the same for all, and never seen in part', async () => {
  const path = join(directory, 'sub', 'key');
  const made = await Promise.all(
    Array.from({ length: 30 }, (_, index) =>
      readOrWriteOnce(path, async () => Buffer.alloc(256 * 1024, index), 0o600),
    ),
  );
  const [first] = made;
  expect(first!.length).toBe(256 * 1024);
  expect(made.every(bytes => bytes.equals(first!))).toBe(true);
  expect(modeOf(path)).toBe(0o600);
  expect(readdirSync(join(directory, 'sub'))).toEqual(['key']);
});

test('what is there is not made again', async () => {
  const path = join(directory, 'key');
  writeFileSync(path, 'old');
  await writeOnce(path, 'new', 0o600);
  const read = await readOrWriteOnce(path, () => Promise.reject(new Error('not asked')), 0o600);
  expect(read.toString()).toBe('old');
  expect(readdirSync(directory)).toEqual(['key']);
});

test('a file is replaced as a whole, with its own permissions', async () => {
  const path = join(directory, 'identity.pem');
  expect(await readIfPresent(path)).toBeUndefined();
  await writeDurably(path, 'one', 0o644);
  await writeDurably(path, 'two', 0o600);
  expect([readFileSync(path, 'utf8'), modeOf(path)]).toEqual(['two', 0o600]);
  expect(await readIfPresent(path)).toBe('two');
});

test('nothing is left of a write that fails', async () => {
  const path = join(directory, 'taken');
  await writeDurably(join(path, 'inside'), 'x', 0o600);
  await expect(writeDurably(path, 'x', 0o600)).rejects.toThrow();
  expect(readdirSync(directory)).toEqual(['taken']);
  // fails between the making of the file and its end, as on a full disk
  const unwritable = async () => ({}) as unknown as Buffer;
  await expect(readOrWriteOnce(join(directory, 'key'), unwritable, 0o600)).rejects.toThrow();
  expect(readdirSync(directory)).toEqual(['taken']);
});
