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
let fd = -1;
/** Page-aligned. */
let into: Buffer;

function makeFile(): void {
  dir = mkdtempSync(join(tmpdir(), 'vk-async-'));
  writeFileSync(join(dir, 'file'), CONTENT);
  fd = openSync(join(dir, 'file'), 'r');
  const ring = new Ring(createRingMemory(1));
  ring.reset();
  into = ring.raw(0);
}

function removeFile(): void {
  closeSync(fd);
  rmSync(dir, { recursive: true });
}

/** Begins to read what is on the disk alone; the kernel may keep some pages for a moment. */
function begin(reader: AsyncReader, offset: number): boolean {
  for (let tries = 0; tries < 100; tries += 1) {
    fdatasyncSync(fd);
    dontNeed(fd, 0, CONTENT.length);
    if (reader.begin(into, offset)) return true;
  }
  return false;
}

makeFile();
const probe = AsyncReader.open(fd);
/** Where the kernel or the file system cannot do it all is read as ever. */
const whenPossible = probe !== undefined && begin(probe, 0) && probe.end() ? test : test.skip;
probe?.close();
removeFile();

beforeEach(makeFile);
afterEach(removeFile);

whenPossible('what was begun is there at its end', () => {
  const reader = AsyncReader.open(fd)!;
  for (const offset of [4 * MiB, 0, 8 * MiB]) {
    expect(begin(reader, offset)).toBe(true);
    expect(reader.end()).toBe(true);
    expect(into.equals(CONTENT.subarray(offset, offset + into.length))).toBe(true);
  }
  reader.close();
});

whenPossible('what ends early, or was not begun, is not there, and after some of it nothing is begun', () => {
  const reader = AsyncReader.open(fd)!;
  expect(reader.end()).toBe(false);
  for (let time = 0; time < 4; time += 1) {
    expect(begin(reader, 10 * MiB)).toBe(true);
    expect(reader.end()).toBe(false);
  }
  expect([reader.isOfUse, reader.begin(into, 0)]).toEqual([false, false]);
  reader.close();
});

whenPossible('what is in memory, or does not lie at a page, is not begun', () => {
  const reader = AsyncReader.open(fd)!;
  expect(reader.begin(into, 0)).toBe(false);
  dontNeed(fd, 0, CONTENT.length);
  expect(reader.begin(into, 77)).toBe(false);
  expect(reader.begin(into.subarray(0, 77), 0)).toBe(false);
  reader.close();
});

whenPossible('an end that nobody has waited for is waited for by the close', () => {
  const reader = AsyncReader.open(fd)!;
  expect(begin(reader, 0)).toBe(true);
  reader.close();
  expect(into.equals(CONTENT.subarray(0, into.length))).toBe(true);
});

test('what cannot be read directly is left', () => {
  const pipe = openSync('/proc/self/status', 'r');
  expect(AsyncReader.open(pipe)).toBeUndefined();
  closeSync(pipe);
});
