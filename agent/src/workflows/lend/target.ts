const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/** The name of the virtio disk with that number, counted from 0: vda … vdz, vdaa … */
export function virtioTarget(index: number): string {
  let name = '';
  for (let rest = index + 1; rest > 0; rest = Math.floor((rest - 1) / LETTERS.length))
    name = LETTERS[(rest - 1) % LETTERS.length] + name;
  return `vd${name}`;
}

/**
 * The first free name for a virtio disk.
 * @param taken names of the running domain and of its definition; both get the disk
 */
export function freeTarget(taken: Iterable<string>): string {
  const names = new Set(taken);
  let index = 0;
  while (names.has(virtioTarget(index))) index += 1;
  return virtioTarget(index);
}
