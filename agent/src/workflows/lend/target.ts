const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/** How names of disks begin: those of virtio with vd, those of SCSI and SATA with sd. */
export type TargetPrefix = 'vd' | 'sd';

/** The name of the disk with that number, counted from 0: vda … vdz, vdaa … */
export function targetAt(index: number, prefix: TargetPrefix = 'vd'): string {
  let name = '';
  for (let rest = index + 1; rest > 0; rest = Math.floor((rest - 1) / LETTERS.length))
    name = LETTERS[(rest - 1) % LETTERS.length] + name;
  return `${prefix}${name}`;
}

/**
 * The first free name for a disk.
 * @param taken names of the running domain and of its definition; both get the disk
 */
export function freeTarget(taken: Iterable<string>, prefix: TargetPrefix = 'vd'): string {
  const names = new Set(taken);
  let index = 0;
  while (names.has(targetAt(index, prefix))) index += 1;
  return targetAt(index, prefix);
}
