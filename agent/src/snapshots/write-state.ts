/**
 * The one way in which libvirt is made to write down a saved state, new or changed.
 *
 * When libvirt 9 cannot write one down, because its directory is full, it drops the state from its list at once. States that
 * were made after it point at freed memory then: no state of the domain can be listed any more, and libvirtd may crash, until it
 * is started anew. So none is written without room.
 */
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Domain, Snapshot } from '@virtkeep/node-libvirt';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';

/** Where the system's libvirt keeps them; it is built with that path. */
const STATES_DIRECTORY = '/var/lib/libvirt/qemu/snapshot';
/** A state holds two definitions, some dozens of KiB; and libvirt is not alone there. */
const NEEDED_BYTES = MiB;

/** As `Domain.createSnapshot`. @throws VirtkeepError disk_full, io_failed, then libvirt was not asked; LibvirtError */
export async function writeState(
  domain: Domain,
  ...request: Parameters<Domain['createSnapshot']>
): Promise<Snapshot> {
  await requireRoomForStates();
  return domain.createSnapshot(...request);
}

/**
 * To be asked before anything is done that needs a state to be written.
 * @throws VirtkeepError disk_full, io_failed
 */
export async function requireRoomForStates(directory = STATES_DIRECTORY): Promise<void> {
  let path = directory;
  for (;;) {
    try {
      const { bavail, bsize, files, ffree } = await statfs(path);
      if (bavail * bsize < NEEDED_BYTES || (files > 0 && ffree === 0))
        throw new VirtkeepError('disk_full', { path: directory });
      return;
    } catch (error) {
      // libvirt makes it with the first state
      if (errnoOf(error) !== 'ENOENT' || path === dirname(path))
        throw fromIoError(error, 'writing', directory);
      path = dirname(path);
    }
  }
}
