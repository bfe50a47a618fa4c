/**
 * May QEMU read the archive, and can it not write to it? An instant restore makes the archive a part of a running VM's
 * disks, and libvirt is told not to touch its owner.
 */
import { chmod, chown, stat } from 'node:fs/promises';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type { OperationContext } from '../../context.ts';

interface User {
  uid: number;
  gid: number;
}

/**
 * Lets QEMU's user read the archive while the restore goes on, when it cannot yet.
 * @throws VirtkeepError instant_restore_unsupported when that user could write to it, io_failed
 */
export async function allowReading(
  context: OperationContext,
  libvirt: Libvirt,
  path: string,
  file: string,
): Promise<void> {
  const user = qemuUser(await libvirt.capabilities());
  // root reads and writes everything: QEMU opens the layers for reading only
  if (!user || user.uid === 0) return;
  try {
    const { uid, gid, mode } = await stat(path);
    if (mayWrite({ uid, gid, mode }, user)) {
      const reason = 'the user that VMs run as may write to the file';
      throw new VirtkeepError('instant_restore_unsupported', { file, reason });
    }
    if (mode & 0o004 || (gid === user.gid && mode & 0o040)) return;
    context.effects.begin({ type: 'archive_access', path, gid, mode: mode & 0o777 }, 'always');
    await chown(path, uid, user.gid);
    await chmod(path, ((mode & 0o777) | 0o040) & ~0o020);
  } catch (error) {
    throw fromIoError(error, 'changing the permissions of', path);
  }
}

/** Gives the archive its former group and permissions; a file that is gone needs none. */
export async function restoreAccess({
  path,
  gid,
  mode,
}: {
  path: string;
  gid: number;
  mode: number;
}): Promise<void> {
  try {
    await chown(path, (await stat(path)).uid, gid);
    await chmod(path, mode);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw fromIoError(error, 'changing the permissions of', path);
  }
}

/** True when a user may write to a file of these permissions. */
export function mayWrite(file: { uid: number; gid: number; mode: number }, user: User): boolean {
  if (file.uid === user.uid) return true;
  return (file.mode & 0o002) !== 0 || (file.gid === user.gid && (file.mode & 0o020) !== 0);
}

/** The user that libvirt runs QEMU as, from the host's capabilities; null when libvirt does not manage owners. */
export function qemuUser(capabilities: string): User | null {
  const model = /<model>dac<\/model>([\s\S]*?)<\/secmodel>/.exec(capabilities)?.[1] ?? '';
  const label = /<baselabel type=['"](?:kvm|qemu)['"]>\+(\d+):\+(\d+)</.exec(model);
  return label && { uid: Number(label[1]), gid: Number(label[2]) };
}
