/**
 * The one way in which libvirt is made to write down a saved state, new or changed.
 *
 * When libvirt 9 cannot write one down, because its directory is full, it drops the state from its list at once. States that
 * were made after it point at freed memory then: no state of the domain can be listed any more, and libvirtd may crash, until it
 * is started anew. So none is written without room.
 */
import type { Domain, Snapshot } from '@virtkeep/node-libvirt';
import { LIBVIRT_PLACES, requireRoomIn } from '../libvirt/room.ts';

/** As `Domain.createSnapshot`. @throws VirtkeepError disk_full, io_failed, then libvirt was not asked; LibvirtError */
export async function writeState(
  domain: Domain,
  ...request: Parameters<Domain['createSnapshot']>
): Promise<Snapshot> {
  await requireRoomForStates();
  return domain.createSnapshot(...request);
}

/** To be asked before anything is done that needs a state to be written. @throws VirtkeepError disk_full, io_failed */
export async function requireRoomForStates(): Promise<void> {
  await requireRoomIn(LIBVIRT_PLACES.states);
}
