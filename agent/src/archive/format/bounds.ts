/**
 * Every bound of an archive, in one place: what a reader takes, so that a forged file cannot keep it busy, and what an
 * archive may grow to, which is far below. An increment that finds an archive grown begins a new one, long before any
 * reader, this or an earlier one, would refuse what was written.
 */

/** Most members a reader takes. */
export const MAX_MEMBERS = 20_000;
/** Largest manifest that is written or read. */
export const MAX_MANIFEST_BYTES = 16 * 1024 * 1024;
/** Most bytes of manifests, and most of them, that are read because others continue them. */
export const MAX_CHAIN_BYTES = 64 * 1024 * 1024;
export const MAX_CHAIN_MANIFESTS = 1_000;
/** Most frames of a seek table: 32 TiB of data; the table takes 20 bytes of memory a frame. */
export const MAX_FRAMES = 8 * 1024 * 1024;
/** Most frames before an archive's manifest and end are written, which take a few more. */
export const MAX_DATA_FRAMES = MAX_FRAMES - 64;

/** So much any stream of zstd may hold, and so many times its own size a larger one. Zeros shrink to a 30,000th. */
const SMALL_STREAM_BYTES = 2 ** 40;
const STREAM_RATIO = 1000;
/** Most bytes that are unpacked of one stream of zstd, to see what it holds: above it is made to keep readers busy. */
export const mostUnpacked = (fileBytes: number): number => SMALL_STREAM_BYTES + STREAM_RATIO * fileBytes;
/** Most looks at such streams that wait for another to end. */
export const MAX_LOOKS_WAITING = 16;

/** Largest hash file: a line of every member. */
export const MAX_SIDECAR_BYTES = MAX_MEMBERS * 512;
/** Largest saved end of an archive: its seek table, its last frames, and its hash file. */
export const MAX_TAIL_FILE_BYTES = MAX_FRAMES * 12 + MAX_SIDECAR_BYTES + 64 * 1024 * 1024;

/** What makes an archive too long to be extended once more. */
export interface GrowthLimits {
  states: number;
  members: number;
  /** Bytes of a manifest that would list everything. */
  manifestBytes: number;
  /** Blocks of 4 MiB, which are frames when it is compressed, now or later. */
  frames: number;
}

export const GROWTH_LIMITS: GrowthLimits = {
  states: 3_000,
  members: 12_000,
  manifestBytes: 8 * 1024 * 1024,
  frames: 6 * 1024 * 1024,
};
