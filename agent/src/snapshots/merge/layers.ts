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
  innerReason,
  isTop,
  keepersOf,
  keptFiles,
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
  // what is not there may only not be mounted
  const absent = [path, merging].find(file => file !== undefined && !picture.files.has(file));
  if (absent !== undefined && isNamed(picture, absent)) return undefined;
  if (!picture.files.has(path)) return withoutLoose(picture, loose);
  if (merging !== undefined && picture.files.has(merging))
    return stepOfMerge(picture, { ...loose, merging }, merging);
  if (isTop(picture, path) || keepersOf(picture, path).length > 0) return withoutLoose(picture, loose);
  const readers = readersOf(picture, path);
  // a disk's first file is not ours to remove
  const isFirst = picture.files.get(path) === null;
  if (merging !== undefined) {
    if (readers.length > 0) return noteLoose(picture, loose, withoutMerging(loose));
    // it may have what the removed one had, and whoever used that may come back
    return isFirst && loose.stage === 'merged' ? withoutLoose(picture, loose) : undefined;
  }
  // what is on its way into the layer below must not change any more
  const isMerging = (picture.metadata.looseLayers ?? []).some(other => other.merging === path);
  if (isMerging || picture.foreign.has(path) || readers.length > 1) return undefined;
  const [above] = readers;
  if (above === undefined) {
    // the end of a branch that nobody came back to
    if (isFirst) return withoutLoose(picture, loose);
    return absentFile(picture) === undefined ? { do: 'remove_file', path } : undefined;
  }
  if (picture.foreign.has(above) || picture.inner.has(above) || !isNeeded(picture, above)) return undefined;
  return noteLoose(picture, loose, { ...loose, merging: above, stage: firstStage(picture, above) });
}

/**
 * Layers that stay although nothing merges them any more, each with the reason: it may hold what was written last.
 * - The upper file of a merge that was not done when others put the lower one in its place. Whoever lets the disk be the upper file
 *   again has the merge go on.
 * - The lower file, when the upper one is not there and somebody still names it, or when nobody uses either.
 * - One that nobody stands on, while a file of the domain is not there that may.
 */
export function strandedLayers(picture: ChainPicture): string[] {
  return (picture.metadata.looseLayers ?? []).flatMap(loose => {
    const { path, merging } = loose;
    if (!picture.files.has(path)) return [];
    if (merging === undefined) {
      const absent = readersOf(picture, path).length === 0 ? absentFile(picture) : undefined;
      return absent === undefined ? [] : [`${path} (${absent}, which may stand on it, is not there)`];
    }
    if (picture.foreign.has(merging)) return [];
    if (!picture.files.has(merging))
      return [`${path} (${merging}, which was to be merged into it, is not there)`];
    const isInPlace = isTop(picture, path) || readersOf(picture, path).some(reader => reader !== merging);
    return isInPlace && !isMerged(picture, loose) ? [`${merging} (${path} is used without it)`] : [];
  });
}

/** A layer that nothing names any more when its state is forgotten. */
export interface UnnamedLayer {
  path: string;
  /** What the running VM's definition has in its place, while the VM writes to it. */
  instead?: string;
  /** Why it is not merged. */
  reason: string;
}

/**
 * The overlays of a state that only it names: others have put the file below in their place, or none. An overlay that the VM runs with
 * counts when the next start is from the file below; else it is merged into that.
 */
export function unnamedWithout(picture: ChainPicture, state: SavedState): UnnamedLayer[] {
  const { config, live, persistent, metadata } = picture;
  const next = persistent ? [...config.values()] : [...live.values()].map(({ path }) => path);
  const kept = allStates(picture)
    .filter(other => other !== state)
    .flatMap(({ overlays, frozen }) => [...Object.values(overlays), ...Object.values(frozen)]);
  const noted = (metadata.looseLayers ?? []).flatMap(({ path, merging = path }) => [path, merging]);
  const named = new Set([...[...next, ...kept].flatMap(top => filesFrom(picture, top)), ...noted]);
  const absent = absentFile(picture);
  const reason =
    absent === undefined
      ? 'no disk and no other state names it'
      : `${absent}, which may stand on it, is not there`;
  return keptFiles(state).flatMap(({ targetDev, path: below }): UnnamedLayer[] => {
    const path = state.overlays[targetDev]!;
    if (picture.files.get(path) !== below || picture.foreign.has(path) || named.has(path)) return [];
    if (liveDiskOf(picture, path) === undefined) return [{ path, reason }];
    return next.includes(below) ? [{ path, reason, instead: below }] : [];
  });
}

/** Why layers that are to be merged are not now: internal states lie in the upper ones. */
export function innerReasons(picture: ChainPicture): string[] {
  return (picture.metadata.looseLayers ?? []).flatMap(({ path, merging, stage }) => {
    const readers = readersOf(picture, path);
    const above = merging ?? (readers.length === 1 ? readers[0]! : undefined);
    if (above === undefined || stage === 'merged' || !readers.includes(above)) return [];
    const isMeant = merging !== undefined || isNeeded(picture, above);
    return isMeant ? (innerReason(picture, above) ?? []) : [];
  });
}

type Merging = LooseLayer & { merging: string };

/**
 * Whether this domain needs the file. The file of a detached disk belongs to its owner, and what it stands on stays as it is; a
 * loose layer on which nothing stands, but for what is to be merged into it first, is removed on its own.
 */
function isNeeded(picture: ChainPicture, path: string): boolean {
  if (isTop(picture, path) || keepersOf(picture, path).length > 0) return true;
  const loose = picture.metadata.looseLayers?.find(layer => layer.path === path);
  return loose !== undefined && readersOf(picture, path).some(reader => reader !== loose.merging);
}

const isLoose = ({ metadata }: ChainPicture, path: string): boolean =>
  (metadata.looseLayers ?? []).some(loose => loose.path === path);

/**
 * A file that the domain has or a state keeps, and that is not there: nobody knows what it stands on. An overlay of a state stands on what
 * that keeps, be it there or not: a revert to an older state removes it and leaves its name.
 */
function absentFile(picture: ChainPicture): string | undefined {
  const tops = [...[...picture.live.values()].map(({ path }) => path), ...picture.config.values()];
  const kept = allStates(picture).flatMap(({ overlays, frozen }) =>
    Object.entries(overlays).map(([target, overlay]) => frozen[target] ?? overlay),
  );
  return [...tops, ...kept].find(path => !picture.files.has(path));
}

/** A disk, a state or a file names it, be it there or not. */
const isNamed = (picture: ChainPicture, path: string): boolean =>
  isTop(picture, path) || keepersOf(picture, path).length > 0 || readersOf(picture, path).length > 0;

function stepOfMerge(picture: ChainPicture, loose: Merging, above: string): MergeStep | undefined {
  const { path: layer, targetDev, stage } = loose;
  if (picture.foreign.has(above)) return undefined;
  const readers = readersOf(picture, above);
  const others = readersOf(picture, layer).filter(reader => reader !== above);
  const states = keepersOf(picture, above).map(state => state.name);
  const offline = { do: 'commit_offline', targetDev, layer, above, readers, states } as const;
  const isUsed = isTop(picture, above) || readers.length > 0;
  // the lower one was itself merged meanwhile: a commit would go into what is below
  if (picture.files.get(above) !== layer && (isUsed || states.length > 0))
    return noteLoose(picture, loose, withoutMerging(loose));
  if (isUsed) return stepOfUsed(picture, loose, offline, others.length > 0);
  const isInPlace = isTop(picture, layer) || others.length > 0;
  const merged = isMerged(picture, loose);
  if (isInPlace && !merged) return undefined;
  if (states.length > 0)
    return isInPlace
      ? { do: 'rename', states, layer, above }
      : begin(picture, loose, { stage: 'begun' }, offline);
  const isKept = keepersOf(picture, layer).length > 0;
  const isDone = stage === 'merged' || isInPlace || (merged && isKept);
  // states have kept both, and nobody uses either: ends of a branch
  if (isLoose(picture, above) && (!isDone || !(isInPlace || isKept)))
    return noteLoose(picture, loose, withoutMerging(loose));
  if (!isDone) return undefined;
  // durably, in the definition that no longer names it: what only libvirt remembers is gone with libvirt
  const removal: MergeStep = { do: 'remove_file', path: above, heirs: [layer, ...others] };
  return noteStage(picture, loose, 'merged', loose.reader) ?? removal;
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
  if (!isInPlace) return begin(picture, loose, { stage: 'begun' }, offline);
  return isMerged(picture, loose)
    ? { do: 'move_readers', targetDev: recorded, layer, above, readers }
    : undefined;
}

/** Before it begins, how its end will be known is noted. */
function stepOfRunning(
  picture: ChainPicture,
  loose: Merging,
  merge: { targetDev: string; layer: string; above: string },
): MergeStep | undefined {
  const chain = filesFrom(picture, picture.live.get(merge.targetDev)!.path);
  const reader = chain[chain.indexOf(merge.above) - 1];
  return reader === undefined
    ? begin(picture, loose, { stage: 'live' }, { do: 'commit_active', ...merge })
    : begin(picture, loose, { stage: 'begun', reader }, { do: 'commit_middle', ...merge });
}

/**
 * Every merge of a noted layer begins here, with the note of how its end will be known; also one that broke off. Not while an internal
 * state lies in the upper file, be it made since: then the note is that of a merge which only its own end can complete.
 */
function begin(
  picture: ChainPicture,
  loose: Merging,
  { stage, reader }: { stage: MergeStage; reader?: string },
  commit: MergeStep,
): MergeStep | undefined {
  if (picture.inner.has(loose.merging)) return noteStage(picture, loose, 'begun', loose.reader);
  return noteStage(picture, loose, stage, reader) ?? commit;
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
