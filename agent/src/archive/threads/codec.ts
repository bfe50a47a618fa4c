import zstd from 'zstd-napi/binding.js';
import { FaultError } from './fault.ts';

const { CCtx, CParameter, DCtx } = zstd;

export const DEFAULT_LEVEL = 3;
/** Above 9 a compressor needs more than 20 MiB a thread for 4 MiB frames, which the agent's memory bound forbids. */
export const MAX_LEVEL = 9;
export const MIN_LEVEL = 1;

/**
 * Compresses whole frames into a given buffer, with the XXH64 checksum that zstd leaves out by default (without it
 * a flipped byte decompresses silently).
 */
export class Compressor {
  readonly #context = new CCtx();

  constructor(level: number) {
    this.#context.setParameter(CParameter.compressionLevel, level);
    this.#context.setParameter(CParameter.checksumFlag, 1);
  }

  /** @returns bytes written to `into`, which has room for ZSTD_compressBound */
  frame(into: Uint8Array, bytes: Uint8Array): number {
    return this.#context.compress2(into, bytes);
  }
}

/** Decompresses whole frames into a given buffer. */
export class Decompressor {
  readonly #context = new DCtx();

  /** Fills `into` exactly from one frame. @throws FaultError corrupt */
  frame(into: Uint8Array, bytes: Uint8Array): void {
    let count: number;
    try {
      count = this.#context.decompress(into, bytes);
    } catch (error) {
      throw new FaultError({
        kind: 'corrupt',
        reason: `a zstd frame is damaged (${(error as Error).message})`,
      });
    }
    if (count !== into.length)
      throw new FaultError({
        kind: 'corrupt',
        reason: 'a zstd frame has another size than the seek table says',
      });
  }
}
