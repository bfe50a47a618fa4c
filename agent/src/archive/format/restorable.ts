import type { Manifest } from './manifest.ts';
import type { ArchiveProblem } from './types.ts';

/** A member of which one of these is said cannot be used; an unexpected one harms nobody. */
const HARMLESS: ReadonlySet<ArchiveProblem['problem']> = new Set(['unexpected']);

/** A state and the names of the members that restoring it reads. */
export interface StateNeeds {
  number: number;
  members: string[];
}

/** What a manifest's own state, its last, needs. */
export const needsOf = (manifest: Manifest): StateNeeds => ({
  number: manifest.states.at(-1)!.number,
  members: neededMembers(manifest),
});

/**
 * The numbers of the states that can still be restored, oldest first: those whose own manifest can be read and all
 * of whose members are sound. Damage that concerns no member (a torn tail, something behind the end) takes no state.
 * @param needs of those whose manifest can be read
 */
export function restorableStates(
  needs: readonly StateNeeds[],
  problems: readonly Pick<ArchiveProblem, 'member' | 'problem'>[],
): number[] {
  const unsound = new Set(
    problems.filter(({ problem }) => !HARMLESS.has(problem)).map(({ member }) => member),
  );
  return needs
    .filter(({ members }) => members.every(name => !unsound.has(name)))
    .map(({ number }) => number)
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
