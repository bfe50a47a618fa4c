/**
 * The rest of an instant restore while the VM is off. qemu-img takes the chain from headers alone, so the upper layers are
 * taken out of the archive and joined properly; the lowest one, which stands on nothing, is read in its place.
 */
import { openArchive } from '../../../archive/index.ts';
import { qemuImg, rebaseUnsafe } from '../../../disks/index.ts';
import { removePieces } from '../../../images/index.ts';
import type { InstantDisk } from '../../effect.ts';
import { bottomBacking } from './chain.ts';

/** Where the upper layers are while they are needed, bottom to top. */
const piecesOf = (disk: InstantDisk): { member: string; path: string }[] =>
  disk.slices
    .slice(1)
    .map(({ member }, index) => ({ member, path: `${disk.overlayPath}.layer${index + 1}` }));

/**
 * Copies what the overlay does not hold yet into it; then it stands on nothing. QEMU's image locks keep the VM from
 * starting on it meanwhile. May be repeated after an interruption: nothing that the guest wrote is ever overwritten.
 * @throws VirtkeepError qemu_img_failed, archive_damaged, disk_full, io_failed, canceled
 */
export async function pullOffline(
  archivePath: string,
  disk: InstantDisk,
  signal: AbortSignal,
): Promise<void> {
  await removeUpperLayers(disk, signal);
  let below = bottomBacking(archivePath, disk.slices[0]!);
  // what the VM was restored from stands before what an increment may have left half done since
  const archive = await openArchive(archivePath, signal, { salvage: true });
  try {
    for (const { member, path } of piecesOf(disk)) {
      await archive.extractMember(member, path, { signal, checkHash: true });
      await rebaseUnsafe(path, { path: below, format: 'qcow2' }, { signal });
      below = path;
    }
  } finally {
    await archive.close();
  }
  await rebaseUnsafe(disk.overlayPath, { path: below, format: 'qcow2' }, { signal });
  await qemuImg('rebase', ['-q', '-f', 'qcow2', '-b', '', disk.overlayPath], { signal });
  await removeUpperLayers(disk, signal);
}

/** Removes what an earlier try left. @throws VirtkeepError image_in_use, io_failed */
export async function removeUpperLayers(disk: InstantDisk, signal: AbortSignal): Promise<void> {
  const paths = piecesOf(disk).map(({ path }) => path);
  await removePieces(paths, signal);
}
