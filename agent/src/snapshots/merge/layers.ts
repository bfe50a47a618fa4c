/**
 * The files that a deleted state leaves, and how they are merged into each other: the part of every merge that is the same.
 * A *loose layer* is a file that no state keeps any more; with `merging` it is the file into which the named one goes.
 */
import type { LooseLayer, MergeStage } from '../../domain-xml/index.ts';
import type { SavedState } from '../chain.ts';
import { foreignJobOn } from './jobs.ts';
import {
  allStates,
  type ChainPicture,
  filesFrom,
  isTop,
  keepersOf,
  liveDiskOf,
  readersOf,
} from './picture.ts';
import { firstStage, isMerged } from './stage.ts';
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
  if (merging !== undefined && picture.files.has(merging))
    return stepOfMerge(picture, { ...loose, merging }, merging);
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
  return noteLoose(picture, loose, { ...loose, merging: above, stage: firstStage(picture, above) });
}

/**
 * Upper files of merges that were not done when others put the lower file in their place, with the reason. They stay: they hold
 * what was written last. Whoever lets the disk be the upper file again has the merge go on.
 */
export function strandedLayers(picture: ChainPicture): string[] {
  return (picture.metadata.looseLayers ?? []).flatMap(loose => {
    const { path, merging } = loose;
    const isThere = merging !== undefined && picture.files.has(path) && picture.files.has(merging);
    if (!isThere || picture.foreign.has(merging) || isMerged(picture, loose)) return [];
    const isInPlace = isTop(picture, path) || readersOf(picture, path).some(reader => reader !== merging);
    return isInPlace ? [`${merging} (${path} is used without it)`] : [];
  });
}

type Merging = LooseLayer & { merging: string };

/** Somebody of this domain needs the file. A detached disk's is its owner's, and what it stands on stays as it is. */
function isAskedFor(picture: ChainPicture, path: string): boolean {
  return (
    isTop(picture, path) ||
    keepersOf(picture, path).length > 0 ||
    (picture.metadata.looseLayers ?? []).some(loose => loose.path === path)
  );
}

function stepOfMerge(picture: ChainPicture, loose: Merging, above: string): MergeStep | undefined {
  const { path: layer, targetDev, stage } = loose;
  if (picture.foreign.has(above)) return undefined;
  const readers = readersOf(picture, above);
  const others = readersOf(picture, layer).filter(reader => reader !== above);
  const states = keepersOf(picture, above).map(state => state.name);
  const offline = { do: 'commit_offline', targetDev, layer, above, readers, states } as const;
  if (isTop(picture, above) || readers.length > 0)
    return stepOfUsed(picture, loose, offline, others.length > 0);
  const isInPlace = isTop(picture, layer) || others.length > 0;
  const merged = isMerged(picture, loose);
  if (isInPlace && !merged) return undefined;
  if (states.length > 0)
    return isInPlace
      ? { do: 'rename', states, layer, above }
      : (noteStage(picture, loose, 'begun') ?? offline);
  const isDone = stage === 'merged' || isInPlace || (merged && keepersOf(picture, layer).length > 0);
  const isLoose = (picture.metadata.looseLayers ?? []).some(other => other.path === above);
  return isDone || isLoose ? { do: 'remove_file', path: above, heirs: [layer, ...others] } : undefined;
}

/** The upper file is still written to or stood upon. */
function stepOfUsed(
  picture: ChainPicture,
  loose: Merging,
  offline: Extract<MergeStep, { do: 'commit_offline' }>,
  isMovedInPart: boolean,
): MergeStep | undefined {
  const { targetDev: recorded, layer, above, readers } = offline;
  const targetDev = liveDiskOf(picture, above);
  if (targetDev !== undefined) {
    const { path, mirror, job } = picture.live.get(targetDev)!;
    const foreign = foreignJobOn(picture, targetDev);
    if (foreign !== null) return { do: 'wait_for_job', targetDev, job: foreign };
    if (job === null) return stepOfRunning(picture, loose, { targetDev, layer, above });
    // the mirror of another of our merges on this disk is brought to its end before this one begins
    if (!mirror?.ready) return { do: 'wait', targetDev };
    return { do: 'pivot', targetDev, layer: mirror.path!, above: path };
  }
  const isInPlace = isMovedInPart || liveDiskOf(picture, layer) !== undefined;
  if (!isInPlace) return noteStage(picture, loose, 'begun') ?? offline;
  return isMerged(picture, loose)
    ? { do: 'move_readers', targetDev: recorded, layer, above, readers }
    : undefined;
}

/** Before it begins, how its end will be known is noted. */
function stepOfRunning(
  picture: ChainPicture,
  loose: Merging,
  merge: { targetDev: string; layer: string; above: string },
): MergeStep {
  const chain = filesFrom(picture, picture.live.get(merge.targetDev)!.path);
  const reader = chain[chain.indexOf(merge.above) - 1];
  return reader === undefined
    ? (noteStage(picture, loose, 'live') ?? { do: 'commit_active', ...merge })
    : (noteStage(picture, loose, 'begun', reader) ?? { do: 'commit_middle', ...merge });
}

/** Undefined when it is noted already. */
function noteStage(
  picture: ChainPicture,
  loose: Merging,
  stage: MergeStage,
  reader?: string,
): MergeStep | undefined {
  if (loose.stage === stage && loose.reader === reader) return undefined;
  const begun = { ...withoutMerging(loose), merging: loose.merging, stage };
  return noteLoose(picture, loose, reader === undefined ? begun : { ...begun, reader });
}

function withoutMerging({ targetDev, path, overlay }: LooseLayer): LooseLayer {
  return { targetDev, path, overlay };
}

function noteLoose(picture: ChainPicture, old: LooseLayer, next: LooseLayer): MergeStep {
  const { metadata } = picture;
  const looseLayers = metadata.looseLayers!.map(layer => (layer.path === old.path ? next : layer));
  return { do: 'note', metadata: { ...metadata, looseLayers } };
}

/** The metadata without that layer. */
export function withoutLoose({ metadata }: ChainPicture, loose: LooseLayer): MergeStep {
  const looseLayers = metadata.looseLayers!.filter(layer => layer !== loose);
  return { do: 'note', metadata: { ...metadata, looseLayers } };
}
