/**
 * May QEMU read the archive, and can it not write to it? An instant restore makes the archive a part of a running VM's
 * disks, and libvirt is told not to touch its owner. Several restores may read one archive at once: each declares what it was before the
 * first of them, and the last one gives that back.
 */
import { chmod, chown, stat } from 'node:fs/promises';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { OperationContext } from '../../context.ts';
import type { WorkflowDependencies } from '../../dependencies.ts';
import type { Effect } from '../../effect.ts';

interface User {
  uid: number;
  gid: number;
}

type Access = Extract<Effect, { type: 'archive_access' }>;

/** Of one archive one after the other: who gives it back sees who reads it, and who is about to read it sees who gives it back. */
const turns = new KeyedQueue();

/**
 * Lets QEMU's user read the archive while the restore goes on, when it cannot yet, or can only as long as another restore does.
 * @throws VirtkeepError instant_restore_unsupported when that user could write to it, io_failed
 */
export async function allowReading(
  context: OperationContext,
  dependencies: Pick<WorkflowDependencies, 'libvirt' | 'pendingEffects'>,
  path: string,
  file: string,
): Promise<void> {
  const user = qemuUser(await dependencies.libvirt().capabilities());
  // root reads and writes everything: QEMU opens the layers for reading only
  if (!user || user.uid === 0) return;
  const allow = async () => {
    const { uid, gid, mode } = await stat(path);
    if (mayWrite({ uid, gid, mode }, user)) {
      const reason = 'the user that VMs run as may write to the file';
      throw new VirtkeepError('instant_restore_unsupported', { file, reason });
    }
    const [first] = accessesTo(path, dependencies);
    const isReadable = Boolean(mode & 0o004) || (gid === user.gid && Boolean(mode & 0o040));
    if (isReadable && !first) return;
    const former = first ?? { gid, mode: mode & 0o777 };
    context.effects.begin({ type: 'archive_access', path, gid: former.gid, mode: former.mode }, 'always');
    if (isReadable) return;
    await chown(path, uid, user.gid);
    await chmod(path, ((mode & 0o777) | 0o040) & ~0o020);
  };
  try {
    await turns.run(path, allow);
  } catch (error) {
    throw fromIoError(error, 'changing the permissions of', path);
  }
}

function accessesTo(
  path: string,
  { pendingEffects }: Pick<WorkflowDependencies, 'pendingEffects'>,
): Access[] {
  return pendingEffects('archive_access').filter(access => access.path === path);
}

/**
 * Gives the archive its former group and permissions, unless another restore reads it still, which does so then; a file that is gone
 * needs none.
 * @param amend notes that it was left to the others
 */
export async function restoreAccess(
  access: Access,
  dependencies: Pick<WorkflowDependencies, 'pendingEffects'>,
  amend: (left: Effect) => void,
): Promise<void> {
  const { path, gid, mode, isLeft = false } = access;
  const restore = async () => {
    const reading = accessesTo(path, dependencies).filter(other => !other.isLeft);
    const others = isLeft ? reading.length : reading.length - 1;
    if (others > 0) return isLeft ? undefined : amend({ ...access, isLeft: true });
    await chown(path, (await stat(path)).uid, gid);
    await chmod(path, mode);
  };
  try {
    await turns.run(path, restore);
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
