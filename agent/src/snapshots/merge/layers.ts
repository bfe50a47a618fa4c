/**
 * The files that a deleted state leaves, and how they are merged into each other: the part of every merge that is the same.
 * A *loose layer* is a file that no state keeps any more; with `merging` it is the file into which the named one goes.
 */
import type { LooseLayer } from '../../domain-xml/index.ts';
import type { SavedState } from '../chain.ts';
import { foreignJobOn } from './jobs.ts';
import { allStates, type ChainPicture, isTop, keepersOf, liveDiskOf, readersOf } from './picture.ts';
import type { MergeStep } from './step.ts';

/** Takes the state from libvirt's list, after its children have got its parent. */
export function forgetState(picture: ChainPicture, state: SavedState): MergeStep {
  // forgetting a state with children, libvirt lets them keep what it kept, as if it had merged (measured on 9.0)
  const children = allStates(picture).filter(({ parent }) => parent === state.name);
  if (children.length > 0)
    return { do: 'reparent', states: children.map(({ name }) => name), parent: state.parent };
  return { do: 'forget', name: state.name };
}

/** The next step about a loose layer; undefined when nothing can be done about it now. */
export function stepOfLayer(picture: ChainPicture, loose: LooseLayer): MergeStep | undefined {
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
  if (picture.foreign.has(above)) return undefined;
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
    const foreign = foreignJobOn(picture, targetDev);
    if (foreign !== null) return { do: 'wait_for_job', targetDev, job: foreign };
    if (job === null)
      return { do: path === above ? 'commit_active' : 'commit_middle', targetDev, layer, above };
    // the mirror of another of our merges on this disk is brought to its end before this one begins
    return { do: mirror?.ready ? 'pivot' : 'wait', targetDev };
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

/** The metadata without that layer. */
export function withoutLoose({ metadata }: ChainPicture, loose: LooseLayer): MergeStep {
  const looseLayers = metadata.looseLayers!.filter(layer => layer !== loose);
  return { do: 'note', metadata: { ...metadata, looseLayers } };
}
