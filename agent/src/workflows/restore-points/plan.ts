/**
 * What is left of an archive that keeps its newest restore points only: which members stay, which layers become one, and what the
 * manifests say then; pure.
 *
 * A disk's layers form one row, of which each state has a beginning. Two neighbours become one image unless something that stays ends
 * between them:
 *
 * | the lower one is                                  | so                                                          |
 * |---------------------------------------------------|-------------------------------------------------------------|
 * | the top layer of a disk at a state that stays     | it ends an image: the state is restored from it             |
 * | kept by a saved state of the VM that comes back   | it ends an image: the saved state keeps its layer           |
 * | of a disk that nobody writes to                   | it ends an image: an increment knows it again by its layers |
 * | below another disk as well                        | it ends an image: it stays one for both                     |
 * | all others, those of dropped restore points       | joined with the one above                                   |
 *
 * An image bears the name and the former path of its lowest layer, by which a saved state of the VM knows what was written above it.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  formatVersionOf,
  type Manifest,
  type ManifestDisk,
  type ManifestLayer,
  type ManifestSavedState,
  MEMBER_KINDS,
  type MemberRecord,
  neededMembers,
} from '../../archive/index.ts';
import { parseIncrementTag } from '../../snapshots/index.ts';

/** Numbers of the states that stay and of those that go, oldest first. */
export interface KeptStates {
  kept: number[];
  dropped: number[];
}

/**
 * @param keepStates so many of the newest stay
 * @throws VirtkeepError nothing_to_trim
 */
export function keptStates(
  { states }: Pick<Manifest, 'states'>,
  keepStates: number,
  file: string,
): KeptStates {
  const numbers = states.map(({ number }) => number);
  if (numbers.length <= keepStates)
    throw new VirtkeepError('nothing_to_trim', { file, states: numbers.length, keep_states: keepStates });
  return { kept: numbers.slice(-keepStates), dropped: numbers.slice(0, -keepStates) };
}

/** A saved state that a dropped restore point made on the VM: of it nothing but its layers was in the archive, and these are joined. */
export function isDropped(
  { description }: ManifestSavedState,
  { backupId }: Manifest,
  first: number,
): boolean {
  const tag = parseIncrementTag(description ?? '');
  return tag?.backupId === backupId && tag.state < first;
}

/**
 * Names of the layers that end an image because of a state: the tops of its disks, what nobody writes to, and what several disks have: an
 * image of what is above that would be one disk's alone, under a name that the other has as well.
 */
export function endsOf({ disks }: Pick<Manifest, 'disks'>): string[] {
  const shared = membersOfSeveral(disks);
  return disks.flatMap(({ layers }) =>
    layers
      .filter((layer, index) => {
        const isTop = index === layers.length - 1;
        return isTop || layer.modified !== undefined || shared.has(layer.member);
      })
      .map(nameOf),
  );
}

function membersOfSeveral(disks: readonly ManifestDisk[]): Set<string> {
  const seen = new Set<string>();
  return new Set(
    disks.flatMap(({ layers }) => layers.map(nameOf)).filter(name => seen.size === seen.add(name).size),
  );
}

const nameOf = ({ member }: ManifestLayer): string => member;

/** The layers of a disk, those that become one image together. */
export function imagesOf(layers: readonly ManifestLayer[], ends: ReadonlySet<string>): ManifestLayer[][] {
  const images: ManifestLayer[][] = [[]];
  for (const layer of layers) {
    images.at(-1)!.push(layer);
    if (ends.has(layer.member)) images.push([]);
  }
  return images.filter(image => image.length > 0);
}

export interface TrimRules {
  /** Number of the oldest state that stays. */
  first: number;
  /** Names of the layers that end an image. */
  ends: ReadonlySet<string>;
}

/** The manifest of a state as it is in the new archive, but for the list of members. */
export function trimmedManifest(manifest: Manifest, { first, ends }: TrimRules): Manifest {
  const disks = manifest.disks.map(disk => trimmedDisk(disk, { first, ends }));
  return {
    ...manifest,
    formatVersion: formatVersionOf({ disks }),
    states: manifest.states.filter(({ number }) => number >= first),
    disks,
    snapshots: remaining(manifest, first),
  };
}

function trimmedDisk(disk: ManifestDisk, { first, ends }: TrimRules): ManifestDisk {
  const layers = imagesOf(disk.layers, ends).map(image => {
    const { member, formerPath } = image[0]!;
    const top = image.at(-1)!;
    return { ...top, member, formerPath, stateNumber: Math.max(first, top.stateNumber) };
  });
  return { ...disk, layers };
}

/** What stood on a dropped state stands on the nearest one below that stays; so does the VM, when it stood on one. */
function remaining(manifest: Manifest, first: number): ManifestSavedState[] {
  const all = new Map(manifest.snapshots.map(state => [state.name, state]));
  const stays = (name: string) => all.has(name) && !isDropped(all.get(name)!, manifest, first);
  const nearest = (name: string | null): string | null => {
    let at = name;
    for (let steps = 0; at !== null && !stays(at) && steps <= all.size; steps += 1)
      at = all.get(at)?.parent ?? null;
    return at !== null && stays(at) ? at : null;
  };
  const current = nearest(manifest.snapshots.find(state => state.current)?.name ?? null);
  return manifest.snapshots
    .filter(({ name }) => stays(name))
    .map(state => ({
      ...state,
      parent: state.parent !== null && all.has(state.parent) ? nearest(state.parent) : state.parent,
      current: state.name === current,
    }));
}

/**
 * The members that a state brings which stays: those that it needs and none before it has brought.
 * @param manifest as it is in the new archive
 * @param listed all members of the old one
 */
export function membersToBring(
  manifest: Manifest,
  listed: readonly MemberRecord[],
  brought: ReadonlySet<string>,
): MemberRecord[] {
  const needed = new Set(neededMembers(manifest).filter(name => !brought.has(name)));
  const rank = ({ kind }: MemberRecord) => MEMBER_KINDS.indexOf(kind);
  return listed.filter(({ name }) => needed.has(name)).toSorted((a, b) => rank(a) - rank(b));
}
