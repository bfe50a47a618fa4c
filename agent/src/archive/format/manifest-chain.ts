import { isDeepStrictEqual } from 'node:util';
import { type Continued, formatVersionOf, type Manifest, type ManifestPart } from './manifest.ts';

/**
 * Manifests that continue an earlier one instead of repeating it; pure.
 *
 * What an increment writes must not grow with the archive's age, and opening an archive must not mean reading all of its
 * manifests. So each manifest says only what came since an earlier one, and these form short chains: manifests whose
 * number is a multiple of {@link GROUP} reach back far, the further the rounder their number is, and the others to the
 * multiple before the last. An archive of 2,000 states is opened by reading some twenty manifests.
 *
 * The others skip the last multiple so that none is indispensable: when a manifest is damaged, each of the seven that
 * follow says the same (manifest-reader.ts), and only the state it describes is lost, as when every manifest was whole.
 */

/** Up to this number of states manifests are whole, as earlier readers know them. */
export const WHOLE_UNTIL = 32;
export const GROUP = 8;
/** No manifest repeats more than so many groups. */
const MAX_GROUPS = 16;

/**
 * Numbers of the manifests that the one of this state may continue, the best first; null stands for none: it is whole.
 */
export function baseNumbers(stateNumber: number): (number | null)[] {
  if (stateNumber <= WHOLE_UNTIL) return [null];
  const group = Math.floor(stateNumber / GROUP);
  const nearest = (group - 1) * GROUP;
  const isRound = stateNumber % GROUP === 0;
  const reach = isRound ? Math.min(group & -group, MAX_GROUPS) : 1;
  const best = group === reach ? null : (group - reach) * GROUP;
  return best === nearest ? [best] : [best, nearest];
}

/** Where a manifest stands in the file. */
export type ManifestPlace = Pick<Continued, 'manifest' | 'dataOffset' | 'sizeBytes' | 'sha256'>;

/** The manifest without what stands in `base`. */
export function partOf(manifest: Manifest, base: Manifest, place: ManifestPlace): ManifestPart {
  const members = commonLength(manifest.members, base.members);
  const states = commonLength(manifest.states, base.states);
  const snapshots = commonLength(manifest.snapshots, base.snapshots);
  const layers: Continued['layers'] = [];
  const formers = byId(base.disks);
  const shared = sharedIds(manifest.disks);
  const disks = manifest.disks.map(disk => {
    // of two with the same id it could not be told which one continues
    const former = shared.has(disk.id) ? undefined : formers.get(disk.id);
    const count = former ? commonLength(disk.layers, former.layers) : 0;
    if (count > 0) layers.push({ disk: disk.id, count });
    return { ...disk, layers: disk.layers.slice(count) };
  });
  const continues = { ...place, stateNumber: base.states.at(-1)!.number, members, states, snapshots, layers };
  return {
    ...manifest,
    formatVersion: formatVersionOf({ continues, disks }),
    continues,
    disks,
    members: manifest.members.slice(members),
    states: manifest.states.slice(states),
    snapshots: manifest.snapshots.slice(snapshots),
  };
}

/** The whole manifest again; a text says why `base` is not what it continues. */
export function wholeOf({ continues, ...part }: ManifestPart, base: Manifest): Manifest | string {
  if (continues === undefined) return part;
  if (base.backupId !== part.backupId) return 'a manifest continues that of another backup';
  const { members, states, snapshots } = continues;
  const isShort =
    base.members.length < members || base.states.length < states || base.snapshots.length < snapshots;
  if (isShort) return 'a manifest continues more than there is';
  const counts = new Map(continues.layers.map(({ disk, count }) => [disk, count]));
  const formers = byId(base.disks);
  const whole = [...base.members.slice(0, members), ...part.members];
  const firsts = new Set(whole.filter(({ kind }) => kind === 'disk').map(({ name }) => name));
  const shared = sharedIds(part.disks);
  const disks: Manifest['disks'] = [];
  for (const disk of part.disks) {
    const [first] = disk.layers;
    // earlier versions continued one of two with the same id: not the one that has its first layer here
    const isWhole = shared.has(disk.id) && first !== undefined && firsts.has(first.member);
    const count = isWhole ? 0 : (counts.get(disk.id) ?? 0);
    const former = count === 0 ? [] : (formers.get(disk.id)?.layers ?? []);
    if (former.length < count) return `a manifest continues more of the disk ${disk.target} than there is`;
    disks.push({ ...disk, layers: [...former.slice(0, count), ...disk.layers] });
  }
  return {
    ...part,
    formatVersion: formatVersionOf({ disks }),
    disks,
    members: whole,
    states: [...base.states.slice(0, states), ...part.states],
    snapshots: [...base.snapshots.slice(0, snapshots), ...part.snapshots],
  };
}

/** Of two with the same id the first counts. */
const byId = (disks: Manifest['disks']): Map<string, Manifest['disks'][number]> =>
  new Map(disks.toReversed().map(disk => [disk.id, disk]));

/** Ids that several disks have. */
function sharedIds(disks: Manifest['disks']): Set<string> {
  const groups = Map.groupBy(disks, ({ id }) => id);
  return new Set([...groups].filter(([, sharers]) => sharers.length > 1).map(([id]) => id));
}

/** How many entries two lists begin with alike. */
function commonLength<T>(one: readonly T[], other: readonly T[]): number {
  let length = 0;
  while (length < one.length && length < other.length && same(one[length], other[length])) length++;
  return length;
}

const same = (one: unknown, other: unknown): boolean => one === other || isDeepStrictEqual(one, other);
