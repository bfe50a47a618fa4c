// Who writes an archive asks before anything of a source is read, and for no more than that.
import { closeSync, fsyncSync, ftruncateSync, openSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Throttle } from '../format/types.ts';
import { openArchive } from '../read/reader.ts';
import { BACKUP_ID, manifestOf, noise, scratch, signal, tool } from '../test-kit.ts';
import { HERE_BYTES } from './copy-here.ts';
import { ArchiveWriter } from './writer.ts';

const MiB = 1024 * 1024;
const dir = scratch();
const DATA_BYTES = 9 * MiB;
afterAll(dir.remove);

/** Data, and holes that are many times as long. */
beforeAll(() => {
  for (const [name, sizeBytes] of [
    ['small', 64 * MiB],
    ['large', HERE_BYTES + 64 * MiB],
  ] as const) {
    const fd = openSync(dir.at(name), 'w');
    writeSync(fd, noise(8 * MiB), 0, 8 * MiB, 4 * MiB);
    writeSync(fd, noise(MiB), 0, MiB, 40 * MiB);
    ftruncateSync(fd, sizeBytes);
    fsyncSync(fd);
    closeSync(fd);
  }
});

class Counting implements Throttle {
  bytes = 0;
  rates = 0;

  async take(bytes: number): Promise<void> {
    this.bytes += bytes;
  }

  atFixedRate<T>(work: (bytesPerSecond: number) => Promise<T>): Promise<T> {
    this.rates += 1;
    return work(512 * MiB);
  }
}

let count = 0;

async function write(zstd: boolean, add: (writer: ArchiveWriter) => Promise<unknown>, throttle: Throttle) {
  const path = dir.at(`${++count}.tar`);
  const compression = zstd ? {} : null;
  const writer = await ArchiveWriter.create({
    ...{ path, backupId: BACKUP_ID, compression, hash: false, signal, throttle },
  });
  try {
    await add(writer);
    await writer.addBytes('0001_vm.xml', 'domain_xml', Buffer.from('<domain/>'));
    await writer.finish({ stateNumber: 1, manifest: manifestOf });
  } finally {
    await writer.abort();
  }
  return path;
}

test.each([
  ['small', false],
  ['large', false],
  ['small', true],
])('%s, compressed: %s', async (name, zstd) => {
  const throttle = new Counting();
  const path = await write(zstd, writer => writer.addFile('d', 'disk', dir.at(name)), throttle);
  expect(throttle.bytes).toBeGreaterThanOrEqual(DATA_BYTES);
  // some file systems count what they keep ready for more
  expect(throttle.bytes).toBeLessThan(statSync(dir.at(name)).size);
  const archive = await openArchive(path, signal);
  const { problems } = await archive.verify({ signal });
  await archive.close();
  expect(problems).toEqual([]);
});

test.each([
  ['small', false],
  ['large', false],
  ['small', true],
  ['large', true],
])('%s in pieces, compressed: %s: nothing is lost between them', async (name, zstd) => {
  // which blocks and data are no multiples of
  const throttle = Object.assign(new Counting(), { pieceBytes: () => 20 * 1024 });
  const path = await write(zstd, writer => writer.addFile('d', 'disk', dir.at(name)), throttle);
  const archive = await openArchive(path, signal);
  const again = `${path}.d`;
  await archive.extractMember('d', again, { signal });
  await archive.close();
  await tool('cmp', [again, dir.at(name)]);
});

test.each([false, true])('a raw disk is converted at a rate, compressed: %s', async zstd => {
  writeFileSync(dir.at('raw'), noise(MiB));
  const throttle = new Counting();
  await write(zstd, writer => writer.addRaw('d.qcow2', { path: dir.at('raw') }, MiB), throttle);
  expect([throttle.rates, throttle.bytes]).toEqual([1, 0]);
});

test('who waits for its turn is cancelled', async () => {
  const stop = new AbortController();
  const throttle = new Counting();
  throttle.take = async (_bytes: number, of?: AbortSignal) => {
    await new Promise(resolve => of!.addEventListener('abort', resolve));
  };
  const writer = await ArchiveWriter.create({
    ...{ path: dir.at('never.tar'), backupId: BACKUP_ID, compression: {}, hash: false, throttle },
    signal: stop.signal,
    onProgress: () => {},
  });
  const writing = writer.addFile('d', 'disk', dir.at('small'));
  stop.abort();
  await expect(writing).rejects.toThrow();
  await writer.abort();
});
