/**
 * Whether an archive can be extended, proved from what is on the VM now; pure.
 *
 * The archive's last state must be a saved state of the VM, made for this archive and number, and each disk of the
 * archive must still be written in the overlay that this state made, or above it: then the files from that overlay up
 * are exactly what was written since. Disks are recognised by that overlay and not by name or path, so that they keep
 * their identity when targets are exchanged, the VM is renamed, or its files are moved. Their content is not looked at: what
 * somebody has merged by hand from that overlay into the file below is missed, as long as the overlay stays in the chain.
 *
 * | found                                                | so                                                        |
 * |------------------------------------------------------|-----------------------------------------------------------|
 * | the state's overlay in a disk's chain                | the files from it up go in                                |
 * | no overlay, and nothing of what the state froze      | another disk: it goes in whole                            |
 * | no overlay, but the file that the state froze        | refused: merged or reverted by hand, the data are unknown |
 * | a disk of the archive without any disk on the VM     | removed: absent from now on                               |
 */
import type { Manifest, ManifestDisk, ManifestLayer } from '../../archive/index.ts';
import { isUserState, parseIncrementTag, type SavedState } from '../../snapshots/index.ts';
import type { OwnChain } from './members.ts';

export interface ExtensionFacts {
  domainId: string;
  statesDeleted: Date | undefined;
  states: readonly SavedState[];
  template: Manifest['template'];
  /** Own layers per target of the disks to be copied. */
  chains: ReadonlyMap<string, OwnChain>;
}

/** A disk of the VM that the archive has already. */
export interface ContinuedDisk {
  id: string;
  /** Its layers in the archive, first one first. */
  layers: ManifestLayer[];
  /** Index of the first layer of its chain that is not in the archive. */
  from: number;
}

export type Proof = { disks: Map<string, ContinuedDisk> } | { reason: string };

/** Per target the disks to be continued, or why the archive cannot be extended (specification 3.2). */
export function proveExtension(manifest: Manifest, facts: ExtensionFacts): Proof {
  const last = manifest.states.at(-1)!;
  const state = facts.states.find(({ name }) => name === last.name);
  const reason = whyNot(manifest, facts, state);
  if (reason !== null) return { reason };
  const disks = new Map<string, ContinuedDisk>();
  for (const disk of manifest.disks) {
    const found = continuation(disk, state!, facts);
    if (typeof found === 'string') return { reason: found };
    if (found) disks.set(found.target, found.disk);
  }
  return { disks };
}

function whyNot(manifest: Manifest, facts: ExtensionFacts, state: SavedState | undefined): string | null {
  const last = manifest.states.at(-1)!;
  if (manifest.vm.uuid !== facts.domainId) return 'it is a backup of another VM';
  if (!manifest.incremental || last.name === null) return 'it was made without increment capability';
  if (hasLost(facts, last, state)) return 'a saved state of the VM was deleted or reverted to since';
  if (!state) return `the VM has no saved state "${last.name}" any more`;
  const tag = parseIncrementTag(state.description);
  if (tag?.backupId !== manifest.backupId || tag.state !== last.number)
    return `the saved state "${last.name}" is not the one that this backup made`;
  const gone = manifest.snapshots.find(snapshot => isUserState(snapshot) && !stillThere(snapshot, facts));
  if (gone) return `the saved state "${gone.name}" was deleted`;
  const [then, now] = [manifest.template, facts.template];
  if (then?.domainId !== now?.domainId || then?.version !== now?.version)
    return 'the template of the VM is another one, or has changed';
  return null;
}

/**
 * The saved state bears the domain's record of deletions as it was when the state was made, so no clock is asked whether
 * that record is newer. Without the state, the times say which of two reasons to tell.
 */
function hasLost(
  { statesDeleted }: ExtensionFacts,
  { created }: Manifest['states'][number],
  state: SavedState | undefined,
): boolean {
  if (state) return statesDeleted?.getTime() !== state.deletedBefore?.getTime();
  return statesDeleted !== undefined && statesDeleted >= new Date(created);
}

function stillThere(snapshot: Manifest['snapshots'][number], facts: ExtensionFacts): boolean {
  const seconds = snapshot.created === null ? null : Math.floor(Date.parse(snapshot.created) / 1000);
  return facts.states.some(
    ({ name, createdUnix }) => name === snapshot.name && (seconds === null || createdUnix === seconds),
  );
}

/** Null when the VM has the disk no more; a text when it is there and cannot be continued. */
function continuation(
  disk: ManifestDisk,
  state: SavedState,
  { chains }: ExtensionFacts,
): { target: string; disk: ContinuedDisk } | string | null {
  const overlay = state.overlays[disk.target];
  if (overlay === undefined) return unchanged(disk, chains);
  const frozen = state.frozen[disk.target];
  for (const [target, chain] of chains) {
    const paths = chain.layers.map(layer => layer.path);
    const from = paths.indexOf(overlay);
    if (from < 0) {
      if (frozen !== undefined && paths.includes(frozen))
        return `what was written to the disk ${target} since "${state.name}" is no longer in a layer of its own`;
      continue;
    }
    if (from === 0 || (frozen !== undefined && paths[from - 1] !== frozen))
      return `the layers of the disk ${target} below "${state.name}" were changed`;
    if (chain.layers.at(-1)!.virtualSize < disk.virtualSizeBytes)
      return `the disk ${target} is smaller than it was`;
    if (chain.base?.path !== disk.base?.path) return `the disk ${target} stands on another template disk`;
    return { target, disk: { id: disk.id, layers: frozenLayers(disk, state.name), from } };
  }
  return null;
}

/** What only the archive's last state froze was the top then, without a name: now that state is one among others. */
function frozenLayers(disk: ManifestDisk, stateName: string): ManifestLayer[] {
  return disk.layers.map((layer, index) =>
    index === disk.layers.length - 1 ? { ...layer, frozenBy: layer.frozenBy ?? stateName } : layer,
  );
}

/** A disk that the state did not hold, since nobody writes to it: in the archive when its files are the same still. */
function unchanged(
  disk: ManifestDisk,
  chains: ReadonlyMap<string, OwnChain>,
): { target: string; disk: ContinuedDisk } | null {
  for (const [target, { layers }] of chains) {
    const isSame =
      layers.length === disk.layers.length &&
      layers.every(
        ({ path, modified }, index) =>
          modified !== undefined &&
          disk.layers[index]!.formerPath === path &&
          disk.layers[index]!.modified === modified,
      );
    if (isSame) return { target, disk: { id: disk.id, layers: disk.layers, from: layers.length } };
  }
  return null;
}
