/** Which archives can be started from in place, and the images that stand on them. */
import { chmod } from 'node:fs/promises';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { createImage, imageInfo, readImageHeader } from '../../../disks/index.ts';
import type { FoundFile } from '../../archives/find-file.ts';
import type { OpenedBackup } from '../../archives/source.ts';
import type { OperationContext } from '../../context.ts';
import type { InstantDisk, Slice } from '../../effect.ts';
import { makeNewFile } from '../../new-file.ts';
import type { RestorePlan } from '../check.ts';
import { guestBytes } from '../files.ts';
import { MAX_RESTORED_FILES } from '../fold.ts';
import { sliceSource, UNFINISHED_BACKING } from './chain.ts';

/** QEMU reads an image in place with O_DIRECT only when it begins at such a multiple, as those of our archives do. */
const ALIGN = 4096;

/**
 * The disks as layers of the archive, each layer judged as one that is restored is: by our own reading of its header and
 * by qemu-img under bounds. Their content is not read: verify an archive before that is in doubt.
 * @throws VirtkeepError instant_restore_unsupported, archive_damaged, qemu_img_failed, canceled
 */
export async function instantDisks(
  { archive }: OpenedBackup,
  file: FoundFile,
  plan: RestorePlan,
  signal: AbortSignal,
): Promise<InstantDisk[]> {
  const refuse = (reason: string) =>
    new VirtkeepError('instant_restore_unsupported', { file: file.filename, reason });
  if (archive.format !== 'tar') throw refuse('it is compressed');
  if (plan.bases.size > 0) throw refuse('it is the backup of a thin clone');
  const encrypted = plan.config.disks.find(disk => disk.encrypted);
  if (encrypted) throw refuse(`the disk ${encrypted.targetDev} is encrypted`);
  const members = new Map(archive.members.map(member => [member.name, member]));
  const disks: InstantDisk[] = [];
  for (const { disk, layers } of plan.placement.disks) {
    if (disk.layers.length > MAX_RESTORED_FILES)
      throw refuse(`the disk ${disk.target} has ${disk.layers.length} layers, more than QEMU opens at once`);
    const slices = disk.layers.map(({ member: name }): Slice => {
      const { dataOffset, sizeBytes } = members.get(name)!;
      if (dataOffset % ALIGN !== 0)
        throw refuse(`the layer ${name} does not begin at a multiple of ${ALIGN}`);
      return { member: name, offset: dataOffset, sizeBytes };
    });
    const top = await judgeLayers(archive.path, slices, refuse, signal);
    const recorded = guestBytes(disk);
    if (top !== recorded)
      throw new VirtkeepError('archive_damaged', {
        path: archive.path,
        reason: `the disk ${disk.target} has ${top} bytes, ${recorded} are recorded`,
      });
    disks.push({ targetDev: disk.target, overlayPath: layers[0]!.path, slices });
  }
  return disks;
}

/** @returns bytes that the guest sees through the top layer */
async function judgeLayers(
  path: string,
  slices: Slice[],
  refuse: (reason: string) => VirtkeepError,
  signal: AbortSignal,
): Promise<number> {
  let virtualSize = 0;
  for (const [index, slice] of slices.entries()) {
    const damaged = (reason: string) =>
      new VirtkeepError('archive_damaged', { path, reason: `${slice.member} ${reason}` });
    const header = await readImageHeader(path, slice.offset);
    if (header.format !== 'qcow2') throw damaged('is not a qcow2 image');
    if (header.dataFile || header.unknownFeatures)
      throw damaged('names another file, or uses features that are not known');
    if (index === 0 && header.backingFile !== undefined)
      throw damaged('has a backing file that does not belong to it');
    const info = await imageInfo(sliceSource(path, slice), { signal, untrusted: true });
    if (info.corrupt) throw damaged('is marked as corrupt');
    if (header.encrypted) throw refuse(`the layer ${slice.member} is encrypted`);
    virtualSize = header.virtualSize;
  }
  return virtualSize;
}

/**
 * Makes the empty images that the VM writes to. Until their data are pulled in, their headers name nothing that can be
 * opened; the chain stands in the VM's definition.
 * @throws VirtkeepError file_exists, disk_full, qemu_img_failed, canceled
 */
export async function makeOverlays(
  context: OperationContext,
  plan: RestorePlan,
  disks: InstantDisk[],
): Promise<void> {
  const { signal } = context;
  for (const { overlayPath, targetDev } of disks) {
    const virtualSize = guestBytes(plan.placement.disks.find(({ disk }) => disk.target === targetDev)!.disk);
    await makeNewFile(context, overlayPath, true, { inPool: true });
    const backing = { path: UNFINISHED_BACKING, format: 'qcow2' };
    await createImage(overlayPath, { signal, format: 'qcow2', backing, virtualSize });
    await chmod(overlayPath, 0o600).catch(error => {
      throw fromIoError(error, 'making', overlayPath);
    });
  }
}
