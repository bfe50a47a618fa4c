/**
 * Merging into a file that is larger than the one above it: the disk was made smaller in between. A merge only ever makes
 * the lower file grow, so what lies beyond the end would become visible again.
 */
import { stat } from 'node:fs/promises';
import { type Layer, qemuImg, readLayers } from '../../disks/index.ts';

/** Cuts the file below an upper one that was merged into it to the size of that one. Idempotent. */
export async function fitLower(upper: string, signal: AbortSignal): Promise<void> {
  const [above, below] = await readLayers(upper, 'qcow2');
  if (!above || !below || !(await isLarger(below, above))) return;
  const size = String(above.virtualSize);
  await qemuImg('resize', ['-q', '--shrink', '-f', below.format, below.path, size], { signal });
}

/** The first of these files that stands on a larger one, or undefined: QEMU cannot cut what a running guest writes to. */
export async function firstShrunk(uppers: readonly string[]): Promise<string | undefined> {
  for (const upper of uppers) {
    const [above, below] = await readLayers(upper, 'qcow2');
    if (above && below && (await isLarger(below, above))) return upper;
  }
  return undefined;
}

/** A device has the size it has. */
async function isLarger(below: Layer, above: Layer): Promise<boolean> {
  const size = below.format === 'raw' ? below.fileSize : below.virtualSize;
  return size > above.virtualSize && !(await stat(below.path)).isBlockDevice();
}
