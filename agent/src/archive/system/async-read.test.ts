import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { noise } from '../test-kit.ts';
import { createRingMemory, Ring } from '../threads/ring.ts';
import { AsyncReader } from './async-read.ts';
import { dontNeed } from './syscalls.ts';

const CONTENT = noise(12 * MiB);
let dir: string;
let fd: number;
/** Page-aligned. */
let into: Buffer;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'vk-async-'));
  writeFileSync(join(dir, 'file'), CONTENT);
  fd = openSync(join(dir, 'file'), 'r');
  const ring = new Ring(createRingMemory(1));
  ring.reset();
  into = ring.raw(0);
});
afterEach(() => {
  closeSync(fd);
  rmSync(dir, { recursive: true });
});

function forget(): void {
  fdatasyncSync(fd);
  dontNeed(fd, 0, CONTENT.length);
}

/** Undefined where the kernel cannot do it: then all is read as ever. */
const opened = () => AsyncReader.open(fd);

test('what was begun is there at its end', () => {
  const reader = opened();
  forget();
  for (const offset of [4 * MiB, 0, 8 * MiB]) {
    if (!reader?.begin(into, offset)) continue;
    expect(reader.end()).toBe(true);
    expect(into.equals(CONTENT.subarray(offset, offset + into.length))).toBe(true);
  }
  reader?.close();
});

test('what ends early, or was not begun, is not there', () => {
  const reader = opened();
  expect(reader?.end() ?? false).toBe(false);
  forget();
  if (reader?.begin(into, 10 * MiB)) expect(reader.end()).toBe(false);
  reader?.close();
});

test('what is in memory, or does not lie at a page, is not begun', () => {
  const reader = opened();
  expect(reader?.begin(into, 0) ?? false).toBe(false);
  forget();
  expect(reader?.begin(into, 77) ?? false).toBe(false);
  expect(reader?.begin(into.subarray(0, 77), 0) ?? false).toBe(false);
  reader?.close();
});

test('an end that nobody has waited for is waited for by the close', () => {
  const reader = opened();
  forget();
  const isBegun = reader?.begin(into, 0);
  reader?.close();
  if (isBegun) expect(into.equals(CONTENT.subarray(0, into.length))).toBe(true);
});

test('what cannot be read directly is left', () => {
  const pipe = openSync('/proc/self/status', 'r');
  expect(AsyncReader.open(pipe)).toBeUndefined();
  closeSync(pipe);
});
