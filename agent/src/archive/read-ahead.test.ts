/** Compressed archives of what is not in memory: blocks are read past the page cache while others are compressed. */
import { closeSync, fdatasyncSync, openSync, readFileSync, truncateSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { openArchive, verifyArchive } from './index.ts';
import { dontNeed } from './system/syscalls.ts';
import { noise, scratch, signal, writeArchive } from './test-kit.ts';
import { Engine } from './threads/engine.ts';

const SIZE = 70 * MiB + 77;
/** Blocks of all kinds, between whole ones. */
const PARTS: [number, Buffer][] = [
  [0, noise(21 * MiB)],
  // a block with a hole, one that is a hole, one of written zeros
  [26 * MiB + 123, noise(70_000, 2)],
  [32 * MiB, Buffer.alloc(4 * MiB)],
  [36 * MiB, noise(SIZE - 36 * MiB, 3)],
];

let dir: ReturnType<typeof scratch>;
let source: string;

beforeEach(async () => {
  dir = scratch();
  source = dir.at('source');
  const handle = await open(source, 'w');
  for (const [at, bytes] of PARTS) await handle.write(bytes, 0, bytes.length, at);
  await handle.close();
  forget();
});
afterEach(() => dir.remove());

/** It is on its disk alone then. */
function forget(): void {
  const fd = openSync(source, 'r');
  fdatasyncSync(fd);
  dontNeed(fd, 0, SIZE);
  closeSync(fd);
}

async function expectBack(path: string): Promise<void> {
  const archive = await openArchive(path, signal);
  await archive.extractMember('disk.qcow2', dir.at('out'), { signal, checkHash: true });
  await archive.close();
  expect(readFileSync(dir.at('out')).equals(readFileSync(source))).toBe(true);
  expect((await verifyArchive(path, { signal })).problems).toEqual([]);
}

test.each([true, false])('every block is what it was (hashed: %p)', async hash => {
  const path = dir.at('a.tar.zst');
  await writeArchive(path, [{ name: 'disk.qcow2', from: source }], { zstd: true, hash });
  await expectBack(path);
});

/** Compresses it to nowhere. */
async function compressed(engine: Engine, hash: boolean, until = signal, onProgress?: () => void) {
  const fd = openSync(source, 'r');
  try {
    return await engine.pump(
      {
        source: { fd, offset: 0, lengthBytes: SIZE },
        codec: { kind: 'compress', level: 1 },
        hash,
        output: false,
        paths: { source, target: source },
      },
      until,
      onProgress,
    );
  } finally {
    closeSync(fd);
  }
}

test.each([1, 2, 5])('one that becomes shorter is told of (%d threads)', async threads => {
  const engine = new Engine(threads);
  truncateSync(source, 50 * MiB);
  await expect(compressed(engine, false)).rejects.toThrow('it ended before its length');
  await engine.close();
});

test.each([true, false])('what was cancelled leaves no read behind (hashed: %p)', async hash => {
  const engine = new Engine(2);
  const stop = new AbortController();
  const run = compressed(engine, hash, stop.signal, () => stop.abort());
  await expect(run).rejects.toThrow();
  forget();
  const [first, second] = [await compressed(engine, true), await compressed(engine, true)];
  expect(first).toEqual(second);
  await engine.close();
});
