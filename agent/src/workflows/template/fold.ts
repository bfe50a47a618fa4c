/** A template's new image: its former one with a clone's changes. Neither of the two is opened for writing. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { checkImage, qemuImg, readImageHeader, rebaseUnsafe, shareExtents } from '../../disks/index.ts';
import type { OperationContext } from '../context.ts';
import { makeNewFile } from '../new-file.ts';
import { type NewTemplateDisk, virtualSizeOf } from './change-plan.ts';
import { copyImage, makeDurable } from './images.ts';

/**
 * Makes the new image, durably. Where the file system shares extents, only the changes are written.
 * @param onProgress share of the work done, 0–1
 * @throws VirtkeepError pool_no_space, qemu_img_failed, canceled
 */
export async function foldChanges(
  context: OperationContext,
  disk: NewTemplateDisk,
  onProgress: (share: number) => void,
): Promise<void> {
  const { former, changed, from } = disk;
  const { signal } = context;
  const { format } = former;
  await makeNewFile(context, from, true, { stack: from });
  if (!(await foldShared(context, disk))) {
    const source = { path: changed.path, format: changed.format, layers: changed.layers };
    await copyImage(source, { path: from, format }, signal, onProgress);
  }
  if (format === 'qcow2') {
    const found = await checkImage(from, { signal, format });
    if (!found.ok) throw failed('check', `${from} has ${found.corruptions} errors in its metadata`);
    const { virtualSize, backingFile } = await readImageHeader(from);
    if (virtualSize !== virtualSizeOf(changed) || backingFile !== undefined)
      throw failed('check', `${from} is not what it should be`);
  }
  onProgress(1);
}

/** @returns false where extents cannot be shared; what is in the file then is written over */
async function foldShared(
  context: OperationContext,
  { former, changed, from }: NewTemplateDisk,
): Promise<boolean> {
  const { signal } = context;
  if (former.format !== 'qcow2' || changed.format !== 'qcow2') return false;
  if (!(await shareExtents(former.realPath, from))) return false;
  // the clone's image names the former one, and must not be written to: a copy is merged in its place
  const copy = `${from}.changes`;
  await makeNewFile(context, copy, false, { stack: from });
  if (!(await shareExtents(changed.realPath, copy))) return false;
  await rebaseUnsafe(copy, { path: from, format: 'qcow2' }, { signal });
  await qemuImg('commit', ['-d', '-q', '-f', 'qcow2', '-b', from, copy], { signal });
  const size = virtualSizeOf(changed);
  if ((await readImageHeader(from)).virtualSize !== size)
    await qemuImg('resize', ['-q', '--shrink', '-f', 'qcow2', from, String(size)], { signal });
  await makeDurable(from);
  return true;
}

const failed = (command: string, reason: string) => new VirtkeepError('qemu_img_failed', { command, reason });
