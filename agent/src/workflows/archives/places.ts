/**
 * Where the files of a backup were on the node. A converted one has no such places (specification 2.1 rule 6): its files were never on a
 * node, and a restore puts all of them into the chosen pool, or into the one that holds the backup. Pure.
 */
import { basename } from 'node:path';
import type { Manifest } from '../../archive/index.ts';

/** The same with files that were nowhere. Of an image the name stays, by which it is called again. */
export function withoutPlaces<Part extends Pick<Manifest, 'disks' | 'isos'>>(manifest: Part): Part {
  const nowhere = { poolId: null, poolName: null };
  return {
    ...manifest,
    disks: manifest.disks.map(disk => ({
      ...{ ...disk, ...nowhere, formerPath: '' },
      layers: disk.layers.map(layer => ({ ...layer, formerPath: null })),
    })),
    isos: manifest.isos.map(iso => ({ ...iso, ...nowhere, formerPath: basename(iso.formerPath) })),
  };
}

/** Agents of before wrote down for a converted backup the places where its files would have lain in the pool of the conversion. */
export function withTruePlaces(manifest: Manifest): Manifest {
  return isConverted(manifest) ? withoutPlaces(manifest) : manifest;
}

/** It has no options of a backup, and each of its disks a name that ours have as qcow2 images, and was none. */
function isConverted({ options, disks }: Manifest): boolean {
  if (options.exclude_vdisks !== undefined || disks.length === 0) return false;
  return disks.every(
    ({ id, formerFormat, formerPath }) => formerFormat === 'raw' && basename(formerPath) === `${id}.qcow2`,
  );
}
