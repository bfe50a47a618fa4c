import { closeSync, openSync, readSync } from 'node:fs';
import koffi from 'koffi';
import zstd from 'zstd-napi/binding.js';
import { type BenchRow, median } from './lib.ts';

const BLOCK_BYTES = 4 * 1024 * 1024;
/** Blocks of the image that are compressed in each round. */
const BLOCKS = 16;

/** A compressor as both libraries offer it: one frame at level 3 with checksum into a given buffer. */
type Compress = (into: Buffer, bytes: Buffer) => number;

function napi(): Compress {
  const context = new zstd.CCtx();
  context.setParameter(zstd.CParameter.compressionLevel, 3);
  context.setParameter(zstd.CParameter.checksumFlag, 1);
  return (into, bytes) => context.compress2(into, bytes);
}

function system(): Compress | undefined {
  try {
    const library = koffi.load('libzstd.so.1');
    const create = library.func('void *ZSTD_createCCtx()');
    const set = library.func('size_t ZSTD_CCtx_setParameter(void *, int, int)');
    const compress = library.func('size_t ZSTD_compress2(void *, void *, size_t, void *, size_t)');
    const context: unknown = create();
    set(context, zstd.CParameter.compressionLevel, 3);
    set(context, zstd.CParameter.checksumFlag, 1);
    return (into, bytes) => Number(compress(context, into, into.length, bytes, bytes.length));
  } catch {
    return undefined;
  }
}

/** What the system's libzstd, called through koffi, would gain over zstd-napi; a comparison only. */
export async function libzstdRow(image: string, rounds: number): Promise<BenchRow> {
  const name = 'one thread: system libzstd through koffi / zstd-napi';
  const other = system();
  if (other === undefined) return { name, value: Number.NaN, unit: '×', note: 'no libzstd.so.1 here' };
  const blocks = readBlocks(image);
  const into = Buffer.alloc(zstd.compressBound(BLOCK_BYTES));
  const times: Record<'napi' | 'system', number[]> = { napi: [], system: [] };
  const mine = napi();
  for (let round = 0; round < rounds; round++) {
    times.napi.push(timeOf(mine, blocks, into));
    times.system.push(timeOf(other, blocks, into));
  }
  const [own, theirs] = [median(times.napi), median(times.system)];
  const speed = (elapsedMs: number) => `${((BLOCKS * 4 * 1000) / elapsedMs).toFixed(0)} MiB/s`;
  return { name, value: theirs / own, unit: '×', note: `${speed(theirs)} against ${speed(own)}` };
}

function readBlocks(image: string): Buffer[] {
  const fd = openSync(image, 'r');
  const blocks = Array.from({ length: BLOCKS }, (_, index) => {
    const block = Buffer.alloc(BLOCK_BYTES);
    readSync(fd, block, 0, BLOCK_BYTES, index * BLOCK_BYTES);
    return block;
  });
  closeSync(fd);
  return blocks;
}

function timeOf(compress: Compress, blocks: readonly Buffer[], into: Buffer): number {
  const start = performance.now();
  for (const block of blocks) compress(into, block);
  return performance.now() - start;
}
