/** How many disks of a foreign VM are converted at a time; pure. */
import { COMPRESSED_SHARE } from '../archives/conversion.ts';

/** More of them wait for each other's reads. */
const MOST_AT_ONCE = 4;

export interface ConversionLimits {
  /** Conversions that run at a time. */
  atOnce: number;
  /** Spare files that there are at a time; 0: each disk is converted where it stays. */
  spares: number;
}

export interface Room {
  freeBytes: number;
  processors: number;
  /** Each disk goes through a spare file. */
  compress: boolean;
}

/** Conversions at a time, where there is room for them. */
export const mostAtOnce = (disks: number, processors: number): number =>
  Math.max(1, Math.min(processors, MOST_AT_ONCE, disks));

/**
 * As many at a time as there are processors for, and room: a disk that is converted before its turn needs a spare file. Where there is no
 * room for one it is one after another, which needs the least.
 * @param sizesBytes what each disk's image takes, at most
 */
export function limitsOf(
  sizesBytes: readonly number[],
  { freeBytes, processors, compress }: Room,
): ConversionLimits {
  const most = mostAtOnce(sizesBytes.length, processors);
  const largest = sizesBytes.toSorted((one, other) => other - one);
  const sum = (sizes: readonly number[]) => sizes.reduce((total, size) => total + size, 0);
  const archiveBytes = sum(sizesBytes) * (compress ? COMPRESSED_SHARE : 1);
  for (let atOnce = most; atOnce >= 1; atOnce--) {
    // one more is being compressed
    const spares = compress ? atOnce + 1 : atOnce;
    const isAhead = compress ? sizesBytes.length > 1 : atOnce > 1;
    if (isAhead && archiveBytes + sum(largest.slice(0, spares)) <= freeBytes) return { atOnce, spares };
  }
  return { atOnce: 1, spares: compress ? 1 : 0 };
}
