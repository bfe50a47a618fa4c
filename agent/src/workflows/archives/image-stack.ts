/** Images of an archive that stand on one another: judged, and merged, before anything else opens them. */
import type { VirtkeepError } from '@virtkeep/shared/errors';
import { mapLimited } from '@virtkeep/shared/limit';
import {
  assertSelfContained,
  checkImage,
  qemuImg,
  readImageHeader,
  rebaseUnsafe,
} from '../../disks/index.ts';

/** Layers that are merged at a time; with the files below them far from what QEMU can open. */
export const MERGED_AT_ONCE = 50;
/** Programs that look at layers side by side. */
const CHECKS_AT_ONCE = 2;

/** A member that was extracted. */
export interface MemberFile {
  member: string;
  path: string;
}

/** Puts images on one another, the first on `below`, once each is known to be what it must be. */
export async function judgeStack(
  stack: readonly MemberFile[],
  below: { path: string; format: string } | null,
  damaged: (reason: string) => VirtkeepError,
  signal: AbortSignal,
): Promise<void> {
  // all headers first: a check opens the layers below, too
  await mapLimited([...stack.keys()], CHECKS_AT_ONCE, async index => {
    const layer = stack[index]!;
    const header = await readImageHeader(layer.path);
    if (header.format !== 'qcow2') throw damaged(`${layer.member} is not a qcow2 image`);
    if (header.dataFile || header.unknownFeatures)
      throw damaged(`${layer.member} names another file, or uses features that are not known`);
    const under = index > 0 ? { path: stack[index - 1]!.path, format: 'qcow2' } : below;
    if (under) await rebaseUnsafe(layer.path, under, { signal });
    await assertSelfContained(layer.path, { signal, ...(under ? { allowedBacking: under.path } : {}) });
  });
  await mapLimited(stack, CHECKS_AT_ONCE, async layer => {
    // without its secret nothing but the header can be read, and QEMU asks for it when the VM starts
    if ((await readImageHeader(layer.path)).encrypted) return;
    const found = await checkImage(layer.path, { signal, format: 'qcow2', untrusted: true });
    if (!found.ok) throw damaged(`${layer.member} has ${found.corruptions} errors in its metadata`);
  });
}

/** Merges upper layers into the one they stand on: what they hold is written once more, that one not at all. */
export async function mergeImages(
  path: string,
  merged: readonly { path: string }[],
  signal: AbortSignal,
  onProgress: (share: number) => void,
): Promise<void> {
  const top = merged.at(-1)!;
  const { virtualSize } = await readImageHeader(top.path);
  const onPercent = (percent: number) => onProgress(percent / 100);
  await qemuImg('commit', ['-d', '-f', 'qcow2', '-b', path, top.path], { signal, onProgress: onPercent });
  const { virtualSize: found } = await readImageHeader(path);
  if (found !== virtualSize)
    await qemuImg('resize', ['-q', '--shrink', '-f', 'qcow2', path, String(virtualSize)], { signal });
}
