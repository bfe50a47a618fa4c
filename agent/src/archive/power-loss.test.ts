/**
 * Power lost while an archive is extended. From the moment the saved end is durable until the archive was synced, the
 * kernel may have written any of the new blocks in any order, or none, and any size in between; the new hash file may be
 * there or not. Whatever it was, the undo makes the archive what it was, byte for byte; and a second loss of power in the
 * middle of the undo changes nothing of that. Nothing of the archive is written before: its bytes are compared.
 */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { undoAppend, verifyArchive } from './index.ts';
import { appendState, noise, scratch, signal, writeArchive } from './test-kit.ts';
import { ArchiveAppender } from './write/append.ts';

const SEED = Number(process.env.VIRTKEEP_POWER_SEED ?? 1);
const TIMES = Number(process.env.VIRTKEEP_POWER_TIMES ?? 60);
const BLOCK = 4096;

const dir = scratch();
afterAll(() => dir.remove());

/** A small generator of its own, so that a failing seed can be run again. */
function random(seed: number): (below: number) => number {
  let state = seed + 1;
  return below => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

/** A file on its way from one content to another when the power went: whole blocks of either, any size in between. */
function torn(before: Buffer, after: Buffer, below: (limit: number) => number): Buffer {
  const [small, large] = [before.length, after.length].toSorted((a, b) => a - b) as [number, number];
  const size = [before.length, after.length, small + below(large - small + 1)][below(3)]!;
  const bytes = Buffer.alloc(size);
  const share = below(11);
  for (let at = 0; at < size; at += BLOCK)
    (below(10) < share ? after : before).subarray(at, at + BLOCK).copy(bytes, at);
  return bytes;
}

describe.each([
  ['tar', false],
  ['tar', true],
  ['tar.zst', true],
])('power lost while a %s grows (hash: %p)', (format, hash) => {
  const path = dir.at(`${hash}.${format}`);
  const tailPath = `${path}.tail`;
  const sidecar = `${path}.sha256`;
  const read = (name: string) => (existsSync(name) ? readFileSync(name) : null);
  let before: Buffer;
  let after: Buffer;
  let tail: Buffer;
  let offset: number;
  let hashes: { before: Buffer | null; after: Buffer | null };

  beforeAll(async () => {
    const first = { name: 'd.qcow2', kind: 'disk' as const, from: noise(150_000) };
    await writeArchive(path, [first], { zstd: format === 'tar.zst', hash });
    before = readFileSync(path);
    const former = read(sidecar);
    await appendState(path, [{ name: 'd_2.snapshot', from: noise(190_000, 2) }]);
    after = readFileSync(path);
    tail = readFileSync(tailPath);
    offset = JSON.parse(tail.subarray(0, tail.indexOf('\n')).toString()).offset;
    hashes = { before: former, after: read(sidecar) };
  });

  function put(archive: Buffer, hashFile: Buffer | null): void {
    writeFileSync(path, archive);
    writeFileSync(tailPath, tail);
    if (hashFile) writeFileSync(sidecar, hashFile);
    else rmSync(sidecar, { force: true });
  }

  const expectAsBefore = () => {
    expect(readFileSync(path).equals(before)).toBe(true);
    expect(read(sidecar)).toEqual(hashes.before);
    expect(readdirSync(dir.path).filter(name => name.startsWith(`${basename(path)}.tail`))).toEqual([]);
  };

  test('the old end is saved before a byte of the archive is another', async () => {
    put(before, hashes.before);
    rmSync(tailPath);
    const appender = await ArchiveAppender.open({ path, signal });
    await appender.begin(tailPath);
    expect(readFileSync(path).equals(before)).toBe(true);
    const noted = readFileSync(tailPath, 'latin1').replace('"durable":false', '"durable":true');
    expect(noted === tail.toString('latin1')).toBe(true);
    await appender.abort();
    expectAsBefore();
  });

  test(`is undone whatever was written (seed ${SEED})`, async () => {
    const below = random(SEED * 31 + (hash ? 7 : 0) + format.length);
    for (let time = 0; time < TIMES; time++) {
      const cut = torn(before, after, below);
      const shorter = cut.length < before.length;
      put(cut, below(2) === 0 ? hashes.before : hashes.after);
      if (below(2) === 0) writeFileSync(`${tailPath}.sha256`, noise(below(200)));
      // an append never makes the file shorter, so that no loss of power does
      expect({ time, shorter }).toEqual({ time, shorter: false });
      await undoAppend(path, tailPath);
      expectAsBefore();
    }
    expect((await verifyArchive(path, { signal })).problems).toEqual([]);
  });

  test(`and again when the power goes while it is undone (seed ${SEED})`, async () => {
    const below = random(SEED * 37 + (hash ? 7 : 0) + format.length);
    for (let time = 0; time < TIMES; time++) {
      const cut = torn(torn(before, after, below), before, below);
      // an undo without room for its bytes makes the file shorter first
      put(below(3) === 0 ? cut.subarray(0, offset + below(BLOCK)) : cut, hashes.before);
      await undoAppend(path, tailPath);
      expectAsBefore();
    }
  });

  test('with the tail file gone the extension is whole: it goes only after the commit', async () => {
    put(after, hashes.after);
    expect((await verifyArchive(path, { signal })).restorableStates).toEqual([1, 2]);
  });
});
