/**
 * How the layers of a long life become files; pure.
 *
 * An archive may hold thousands of layers of a disk. QEMU opens chains in a time that grows with the square of their
 * length, and dies of some that are longer than 600; libvirt takes 200. So of a disk with more layers than a restored
 * one may have, layers that no saved state parts become one file, and the oldest states that increments made are left
 * out until few enough are parted.
 */

/** Most files a restored disk consists of: room is left for the states that the VM gets from now on. */
export const MAX_RESTORED_FILES = 100;

/** A layer that a saved state keeps. */
export interface KeptLayer {
  /** Target of the disk in the restored VM. It may be on another target now than when the saved state was made. */
  disk: string;
  /** Index in the disk's `layers`. */
  index: number;
  /** The state made no layer above it and may be inside of it: merged into another file it would be lost. */
  isNamedOnly?: true;
}

/** A saved state, and per key what it keeps. */
export interface Keeping {
  /** Made by an increment and not on the VM when the state was made. */
  merged: boolean;
  frozen: ReadonlyMap<string, KeptLayer>;
}

interface Layered {
  target: string;
  layers: readonly unknown[];
}

/** The states that come back, in their order: the first merged ones go until each disk can have so few files. */
export function withinReach<T extends Keeping>(
  disks: readonly Layered[],
  states: readonly T[],
  limit = MAX_RESTORED_FILES,
): T[] {
  let staying = [...states];
  const isTooLong = () => disks.some(disk => fileStarts(disk, staying, limit).length > limit);
  while (isTooLong()) {
    const first = staying.find(({ merged }) => merged);
    if (first === undefined) return staying;
    staying = staying.filter(state => state !== first);
  }
  return staying;
}

/**
 * The index of the first layer of each file that a disk consists of: every layer is one while they are few, else a new
 * one begins above each layer that a saved state keeps, and with one that it only names.
 */
export function fileStarts(
  { target, layers }: Layered,
  states: readonly Keeping[],
  limit = MAX_RESTORED_FILES,
): number[] {
  if (layers.length <= limit) return [...layers.keys()];
  const starts = states
    .flatMap(({ frozen }) => [...frozen.values()])
    .filter(({ disk }) => disk === target)
    .flatMap(({ index, isNamedOnly }) => (isNamedOnly ? [index, index + 1] : [index + 1]))
    .filter(start => start < layers.length);
  return [...new Set([0, ...starts])].toSorted((a, b) => a - b);
}
