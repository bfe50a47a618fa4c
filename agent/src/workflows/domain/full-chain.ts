/** How many layers states that stay may give a disk. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { MOST_LAYERS } from '../../disks/index.ts';

/** The others are left for states that are there for a while: of plain backups and of lent disks. */
const MOST_LASTING_LAYERS = MOST_LAYERS - 10;

/**
 * Each state that stays adds a layer to each disk. The one too many libvirt refuses while the VM runs; of a VM that is off it makes that, too,
 * and then the VM does not start any more (9.0, measured).
 * @param disks what a state would freeze, with all layers; none for one that was not read
 * @throws VirtkeepError snapshot_in_use
 */
export function refuseFullChain(
  domain: string,
  disks: readonly { targetDev: string; layers: readonly unknown[] }[],
): void {
  const disk = disks.find(({ layers }) => layers.length >= MOST_LASTING_LAYERS);
  if (!disk) return;
  const count = `its disk ${disk.targetDev} has ${disk.layers.length} layers, and libvirt takes ${MOST_LAYERS} at most`;
  const reason = `${count}, so none is added that stays; delete saved states first`;
  throw new VirtkeepError('snapshot_in_use', { domain, reason });
}
