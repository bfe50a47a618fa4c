/**
 * Deleting a saved state, decided without doing it.
 *
 * A state keeps one file per disk; its deletion leaves that file to nobody. When one other file stands on it, that one is
 * merged into it (so the first file of a disk keeps its name) and takes its place; when several do, because the domain was
 * reverted, nothing may change: it waits as a *loose layer* until branches go away. Loose layers stand in the domain's own
 * metadata from before the state is forgotten until they are merged, so whoever looks next goes on where the last one
 * stopped. The state is forgotten first, because from the first merged byte on its content is gone.
 */
import type { DomainMetadata, LooseLayer } from '../domain-xml/index.ts';
import type { SavedState } from './chain.ts';
import {
  type ChainPicture,
  heldReason,
  isTop,
  keepersOf,
  keptFiles,
  liveDiskOf,
  readersOf,
} from './picture.ts';
import { savedStateId } from './state-id.ts';

export type MergeStep =
  /** Writes the domain's metadata. */
  | { do: 'note'; metadata: DomainMetadata }
  | { do: 'remove_memory'; path: string }
  /** libvirt's own deletion: of internal states, and of one that it was interrupted in. */
  | { do: 'native_delete'; name: string }
  /** Makes states the children of another one, or (null) first ones. */
  | { do: 'reparent'; states: string[]; parent: string | null }
  /** Removes the state, which has no children, from libvirt's list. */
  | { do: 'forget'; name: string }
  /** Merges the top of a running disk into the file below it; ends with `pivot`. */
  | { do: 'commit_active'; targetDev: string; layer: string; above: string }
  /** Merges a file below the top of a running disk; ends by itself. */
  | { do: 'commit_middle'; targetDev: string; layer: string; above: string }
  | { do: 'wait'; targetDev: string }
  | { do: 'pivot'; targetDev: string }
  /** Merges by qemu-img, and lets everything that stood on the upper file, or kept it, use the lower one. */
  | {
      do: 'commit_offline';
      targetDev: string;
      layer: string;
      above: string;
      readers: string[];
      states: string[];
    }
  /** The data are merged already: only what stands on the upper file is to be moved. */
  | { do: 'move_readers'; targetDev: string; layer: string; above: string; readers: string[] }
  /** Lets states keep the lower file instead of the upper one. */
  | { do: 'rename'; states: string[]; layer: string; above: string }
  | { do: 'remove_file'; path: string }
  | { do: 'done' };

export interface MergeGoal {
  /** The state to be deleted; null: only what was begun is completed. */
  name: string | null;
  /** A deletion by the user, after which older archives cannot be extended. */
  countsAsDeletion: boolean;
}

/** The next step on the way to the goal. */
export function nextMergeStep(picture: ChainPicture, goal: MergeGoal, now: Date): MergeStep {
  const state = picture.states.find(({ name }) => name === goal.name);
  if (state) return stepOfState(picture, state, goal, now);
  for (const loose of picture.metadata.looseLayers ?? []) {
    const step = stepOfLayer(picture, loose);
    if (step) return step;
  }
  return { do: 'done' };
}

/**
 * Before a deletion begins: the files that it will merge into the ones below them, and those that it removes first. Both
 * are empty when it has begun already.
 */
export function uppersOf(
  picture: ChainPicture,
  { name }: MergeGoal,
): [uppers: readonly string[], freed: readonly string[]] {
  const state = picture.states.find(candidate => candidate.name === name);
  if (!state || isNative(state)) return [[], []];
  const readers = keptFiles(state).map(({ path }) => readersOf(picture, path));
  const uppers = readers.flatMap(found => (found.length === 1 ? found : []));
  return [uppers, state.memoryPath === null ? [] : [state.memoryPath]];
}

/** Deleted by libvirt itself. */
function isNative({ deleting, internalDisks, memory }: SavedState): boolean {
  return deleting || internalDisks.length > 0 || memory === 'internal';
}

function stepOfState(picture: ChainPicture, state: SavedState, goal: MergeGoal, now: Date): MergeStep {
  const kept = isNative(state) ? [] : keptFiles(state);
  const layers = kept.map(file => ({ ...file, overlay: typeof picture.files.get(file.path) === 'string' }));
  const metadata = withRemoved(picture, state, goal, now, layers);
  if (metadata) return { do: 'note', metadata };
  if (isNative(state)) return { do: 'native_delete', name: state.name };
  const { memoryPath } = state;
  if (memoryPath !== null && picture.files.has(memoryPath)) return { do: 'remove_memory', path: memoryPath };
  // forgetting a state with children, libvirt lets them keep what it kept, as if it had merged (measured on 9.0)
  const children = picture.states.filter(({ parent }) => parent === state.name);
  if (children.length > 0)
    return { do: 'reparent', states: children.map(({ name }) => name), parent: state.parent };
  return { do: 'forget', name: state.name };
}

/** The metadata with the deletion in it; undefined when it is there already. */
function withRemoved(
  { metadata, domainId }: ChainPicture,
  state: SavedState,
  goal: MergeGoal,
  now: Date,
  layers: LooseLayer[],
): DomainMetadata | undefined {
  const id = savedStateId(domainId, state);
  const { removedStates = [], looseLayers = [] } = metadata;
  const missing = layers.filter(layer => !looseLayers.some(loose => loose.path === layer.path));
  if (removedStates.includes(id) && missing.length === 0) return undefined;
  return {
    ...metadata,
    ...(goal.countsAsDeletion ? { statesDeleted: now } : {}),
    removedStates: [...removedStates.filter(known => known !== id), id],
    looseLayers: [...looseLayers, ...missing],
  };
}

/** Undefined when nothing can be done about it now. */
function stepOfLayer(picture: ChainPicture, loose: LooseLayer): MergeStep | undefined {
  const { path, merging } = loose;
  if (!picture.files.has(path)) return withoutLoose(picture, loose);
  if (merging !== undefined && picture.files.has(merging)) return stepOfMerge(picture, loose, merging);
  if (isTop(picture, path) || keepersOf(picture, path).length > 0) return withoutLoose(picture, loose);
  if (merging !== undefined) return noteLoose(picture, loose, withoutMerging(loose));
  const readers = readersOf(picture, path);
  // what is on its way into the layer below must not change any more
  const isMerging = picture.metadata.looseLayers!.some(other => other.merging === path);
  if (isMerging || picture.foreign.has(path) || readers.length > 1) return undefined;
  const [above] = readers;
  if (above === undefined) {
    // the end of a branch that nobody came back to; a disk's first file is not ours to remove
    const isOverlay = picture.files.get(path) !== null;
    return isOverlay ? { do: 'remove_file', path } : withoutLoose(picture, loose);
  }
  if (picture.foreign.has(above) || !isAskedFor(picture, above)) return undefined;
  return noteLoose(picture, loose, { ...loose, merging: above });
}

/** Somebody of this domain needs the file. A detached disk's is its owner's, and what it stands on stays as it is. */
function isAskedFor(picture: ChainPicture, path: string): boolean {
  return (
    isTop(picture, path) ||
    keepersOf(picture, path).length > 0 ||
    (picture.metadata.looseLayers ?? []).some(loose => loose.path === path)
  );
}

function stepOfMerge(picture: ChainPicture, loose: LooseLayer, above: string): MergeStep | undefined {
  const { path: layer, targetDev } = loose;
  const readers = readersOf(picture, above);
  const others = readersOf(picture, layer).filter(reader => reader !== above);
  const states = keepersOf(picture, above).map(state => state.name);
  const offline = { do: 'commit_offline', targetDev, layer, above, readers, states } as const;
  if (isTop(picture, above) || readers.length > 0) return stepOfUsed(picture, offline, others.length > 0);
  const isInPlace = isTop(picture, layer) || others.length > 0;
  if (states.length > 0) return isInPlace ? { do: 'rename', states, layer, above } : offline;
  const isDone = isInPlace || keepersOf(picture, layer).length > 0;
  const isLoose = (picture.metadata.looseLayers ?? []).some(other => other.path === above);
  return isDone || isLoose ? { do: 'remove_file', path: above } : undefined;
}

/** The upper file is still written to or stood upon. */
function stepOfUsed(
  picture: ChainPicture,
  offline: Extract<MergeStep, { do: 'commit_offline' }>,
  isMovedInPart: boolean,
): MergeStep {
  const { targetDev: recorded, layer, above, readers } = offline;
  const targetDev = liveDiskOf(picture, above);
  if (targetDev !== undefined) {
    const { path, mirror, job } = picture.live.get(targetDev)!;
    if (path !== above)
      return job ? { do: 'wait', targetDev } : { do: 'commit_middle', targetDev, layer, above };
    if (!mirror) return { do: 'commit_active', targetDev, layer, above };
    return mirror.ready ? { do: 'pivot', targetDev } : { do: 'wait', targetDev };
  }
  const isMerged = isMovedInPart || liveDiskOf(picture, layer) !== undefined;
  return isMerged ? { do: 'move_readers', targetDev: recorded, layer, above, readers } : offline;
}

function withoutMerging({ targetDev, path, overlay }: LooseLayer): LooseLayer {
  return { targetDev, path, overlay };
}

function noteLoose(picture: ChainPicture, old: LooseLayer, next: LooseLayer): MergeStep {
  const { metadata } = picture;
  const looseLayers = metadata.looseLayers!.map(layer => (layer === old ? next : layer));
  return { do: 'note', metadata: { ...metadata, looseLayers } };
}

function withoutLoose({ metadata }: ChainPicture, loose: LooseLayer): MergeStep {
  const looseLayers = metadata.looseLayers!.filter(layer => layer !== loose);
  return { do: 'note', metadata: { ...metadata, looseLayers } };
}

/** Names of backup archives; an instantly restored disk stands on one. */
const ARCHIVE = /\.tar(\.zst)?$/;

/**
 * Why a state must not be deleted now, or null. What several states or domains read is never merged, so only what the
 * deletion itself would change or remove counts.
 */
export function removalRefusal(picture: ChainPicture, state: SavedState): string | null {
  const busy = heldReason(picture) ?? blockJobOf(picture);
  if (busy !== null) return busy;
  for (const { path } of keptFiles(state)) {
    if (ARCHIVE.test(path)) return `"${state.name}" stands directly on the archive ${path}`;
    for (const file of [path, ...readersOf(picture, path)]) {
      const user = picture.foreign.get(file);
      if (user !== undefined)
        return `${file}, which "${state.name}" keeps or has below it, is used by ${user}`;
    }
  }
  return null;
}

/** A block job that is not one of ours, as a reason; null when there is none. */
export function blockJobOf(picture: ChainPicture): string | null {
  const own = new Set((picture.metadata.looseLayers ?? []).flatMap(({ merging }) => merging ?? []));
  for (const [targetDev, top] of picture.live) {
    const isOwn = [...own].some(path => liveDiskOf(picture, path) === targetDev);
    if ((top.mirror || top.job) && !isOwn)
      return `a ${top.mirror?.job ?? 'block'} job runs on the disk ${targetDev}`;
  }
  return null;
}
