import { read, write } from 'node:fs';
import { promisify } from 'node:util';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { BLOCK_BYTES, blockLength, DATA_ALIGN, roundUp } from '../format/layout.ts';
import type { Throttle } from '../format/types.ts';
import { dontNeedAside, type FilePlace, leaveDirect } from '../system/syscalls.ts';
import { type BlockSource, HoleFinder } from '../threads/block-source.ts';
import { FaultError } from '../threads/fault.ts';
import { giveRingMemory, type Range, Ring, takeRingMemory } from '../threads/ring.ts';
import type { FaultPaths } from '../threads/thread.ts';

const readAsync = promisify(read);
const writeAsync = promisify(write);

/**
 * Data up to this size is copied without threads: starting them takes as long as writing some 50 MiB. Measured: 26 ms of
 * processor time for an empty one, three are needed.
 */
export const HERE_BYTES = 128 * 1024 * 1024;

/**
 * Copies a part of a file to an aligned place of another one that is opened for direct output, leaving out holes and zeros.
 * Reading, writing and looking for holes take place in libuv's threads, one block is read while the one before is written;
 * the event loop compares blocks with zeros. What is written may reach up to 4095 zeros further
 * than the data.
 * @returns bytes that were not holes
 * @throws VirtkeepError disk_full, io_failed, canceled
 */
export async function copyHere(
  source: BlockSource,
  to: FilePlace,
  paths: FaultPaths,
  {
    signal,
    onProgress,
    throttle,
  }: { signal: AbortSignal; onProgress: (bytesDone: number) => void; throttle?: Throttle | undefined },
): Promise<number> {
  const memory = takeRingMemory(1);
  const ring = new Ring(memory);
  ring.reset();
  const mayRead = (bytes: number) => throttle?.take(bytes, signal);
  const from = { source, holes: new HoleFinder(source), path: paths.source, mayRead };
  let writing: Promise<void> = Promise.resolve();
  let allocatedBytes = 0;
  try {
    for (let index = 0; index * BLOCK_BYTES < source.lengthBytes; index++) {
      throwIfAborted(signal);
      const bytes = ring.raw(index);
      const start = index * BLOCK_BYTES;
      const pieceBytes = throttle?.pieceBytes?.() ?? Number.POSITIVE_INFINITY;
      const ranges = await readBlock(from, index, { bytes, pieceBytes });
      await writing;
      onProgress(start);
      const length = blockLength(source.lengthBytes, index);
      const dataRanges = ranges.filter(({ start, end }) => !isZero(bytes.subarray(start, end), ring.zeros));
      allocatedBytes += dataRanges.reduce((sum, range) => sum + Math.min(range.end, length) - range.start, 0);
      const place = { fd: to.fd, offset: to.offset + start, path: paths.target, pieceBytes };
      writing = writeRanges(bytes, dataRanges, place);
      // Its failure is seen at the next await; until then it must not count as unhandled.
      writing.catch(() => {});
    }
    await writing;
    return allocatedBytes;
  } finally {
    await writing.catch(() => {});
    giveRingMemory(memory);
  }
}

const isZero = (bytes: Buffer, zeros: Buffer): boolean => bytes.equals(zeros.subarray(0, bytes.length));

interface ReadFrom {
  source: BlockSource;
  holes: HoleFinder;
  path: string;
  mayRead: (bytes: number) => Promise<void> | undefined;
}

/** Reads the parts of a block that may hold data; the last one is filled up with zeros to a multiple of 4096. */
async function readBlock(
  { source, holes, path, mayRead }: ReadFrom,
  index: number,
  { bytes, pieceBytes }: { bytes: Buffer; pieceBytes: number },
): Promise<Range[]> {
  const start = source.offset + index * BLOCK_BYTES;
  try {
    const ranges = await holes.rangesAside(index);
    for (const range of ranges) {
      await mayRead(range.end - range.start);
      await readAll(source.fd, bytes.subarray(range.start, range.end), start + range.start, pieceBytes);
      const end = roundUp(range.end, DATA_ALIGN);
      bytes.fill(0, range.end, end);
      range.end = end;
    }
    await dontNeedAside(source.fd, start, BLOCK_BYTES);
    return ranges;
  } catch (error) {
    if (error instanceof FaultError) throw becameShorter(path);
    throw fromIoError(error, 'reading', path);
  }
}

const becameShorter = (path: string) =>
  new VirtkeepError('io_failed', { operation: 'reading', path, reason: 'it ended before its length' });

async function readAll(fd: number, into: Buffer, offset: number, pieceBytes: number): Promise<void> {
  for (let done = 0; done < into.length; ) {
    const length = Math.min(into.length - done, pieceBytes);
    const { bytesRead } = await readAsync(fd, into, done, length, offset + done);
    if (bytesRead === 0) throw new FaultError({ kind: 'source_short', reason: 'it ended before its length' });
    done += bytesRead;
  }
}

async function writeRanges(
  bytes: Buffer,
  ranges: readonly Range[],
  { fd, offset, path, pieceBytes }: { fd: number; offset: number; path: string; pieceBytes: number },
): Promise<void> {
  try {
    for (const { start, end } of ranges)
      for (let done = start; done < end; )
        done += await writeSome(fd, bytes.subarray(done, Math.min(done + pieceBytes, end)), offset + done);
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
}

/** Where the file system refuses direct output in the middle of it, the file goes on buffered. */
async function writeSome(fd: number, bytes: Buffer, offset: number): Promise<number> {
  try {
    return (await writeAsync(fd, bytes, 0, bytes.length, offset)).bytesWritten;
  } catch (error) {
    if (errnoOf(error) !== 'EINVAL' || !leaveDirect(fd)) throw error;
    return (await writeAsync(fd, bytes, 0, bytes.length, offset)).bytesWritten;
  }
}
