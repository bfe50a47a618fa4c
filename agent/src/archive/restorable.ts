import type { Manifest } from './manifest.ts';
import type { ArchiveProblem } from './types.ts';

/** A member of which one of these is said cannot be used; an unexpected one harms nobody. */
const HARMLESS: ReadonlySet<ArchiveProblem['problem']> = new Set(['unexpected']);

/**
 * The numbers of the states that can still be restored, oldest first: those whose own manifest can be read and all
 * of whose members are sound. Damage that concerns no member (a torn tail, something behind the end) takes no state.
 * @param manifests those that can be read, each describing the state that is its last one
 */
export function restorableStates(
  manifests: readonly Manifest[],
  problems: readonly Pick<ArchiveProblem, 'member' | 'problem'>[],
): number[] {
  const unsound = new Set(
    problems.filter(({ problem }) => !HARMLESS.has(problem)).map(({ member }) => member),
  );
  return manifests
    .filter(manifest => neededMembers(manifest).every(name => !unsound.has(name)))
    .map(manifest => manifest.states.at(-1)!.number)
    .sort((one, other) => one - other);
}

/** Names of the members that restoring a manifest's own state, its last, reads. */
export function neededMembers(manifest: Manifest): string[] {
  const sides = [manifest.states.at(-1)!, ...manifest.snapshots].flatMap(entry => [
    entry.xmlMember,
    entry.memoryMember,
    entry.nvram?.member,
    entry.tpm?.member,
  ]);
  const layers = manifest.disks.flatMap(disk => disk.layers.map(layer => layer.member));
  const isos = manifest.isos.map(iso => iso.member);
  const names = [...sides, ...layers, ...isos].filter(name => name !== null && name !== undefined);
  return [...new Set(names)];
}
