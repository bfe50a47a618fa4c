/**
 * Removing a state that an operation made for itself, decided without doing it: the temporary one of a backup, or one that
 * was not to stay. Nothing of it remains, as if it had never existed. The operation's journal has the paths of its files, and the
 * state those of disks that it took in besides; every way that a state can be created only in part is expected.
 *
 * Each overlay is merged into the file below it by the same steps as a deleted state's layers: noted in the domain's metadata
 * as a merge under way before its first byte, followed wherever the file is used by then (the disk may have another target,
 * or another layer on it), and removed when nobody uses it.
 *
 * The content of an overlay that is not used and was not noted is unknown. It is removed when nothing was written to it, and
 * merged when its disk was detached and not written to since. Otherwise it stays and is named in a warning, because it may hold
 * the newest data of a disk. When the operation says that nobody but itself wrote to unused overlays, they are removed: only
 * unfinished work of that operation is lost.
 *
 * An overlay in which somebody made an internal state is noted and waits until that is gone: it is told of, and nothing of it is merged.
 *
 * Nothing is merged for a domain that is off when a file below an overlay was written to since: another node has run the domain
 * from that file, and its disks are newer than the overlays.
 */
import type { LooseLayer } from '../../domain-xml/index.ts';
import type { SavedState } from '../chain.ts';
import { AUTOMATIC_PREFIX } from '../plan.ts';
import { foreignJobOn } from './jobs.ts';
import { forgetState, stepOfLayer, withoutLoose } from './layers.ts';
import {
  allStates,
  type ChainPicture,
  filesFrom,
  isRemovable,
  isTop,
  keepersOf,
  liveDiskOf,
  readersOf,
} from './picture.ts';
import { firstStage } from './stage.ts';
import type { MergeGoal, MergeStep, StateFiles } from './step.ts';

/** An overlay that exists, and the file that it stands on. */
interface Overlay {
  targetDev: string;
  path: string;
  /** Null: the file is empty. */
  layer: string | null;
  /** This domain writes to it, has it below another one, or keeps it by another state. */
  used: boolean;
  /** The file below it is used without it. */
  layerUsed: boolean;
  noted: boolean;
}

/** The next step of removing the state of an operation. */
export function nextStepOfAutomatic(picture: ChainPicture, goal: MergeGoal, declared: StateFiles): MergeStep {
  const memoryPath =
    declared.memoryPath !== undefined && isRemovable(picture, declared.memoryPath)
      ? declared.memoryPath
      : null;
  const state = ownState(picture, goal, declared);
  const stateFiles = withTakenIn(declared, state);
  // once ours is in the list, what is being saved is somebody else's
  if (picture.saving) return { do: memoryPath !== null && !state ? 'abort_save' : 'wait_for_state' };
  if (state?.deleting) return { do: 'native_delete', name: state.name };
  const rest = without(picture, state);
  const overlays = existing(rest, stateFiles);
  return (
    waitForJob(rest, overlays, stateFiles) ??
    note(rest, overlays, stateFiles) ??
    stepOfNoted(rest, stateFiles) ??
    stepOfUnused(rest, overlays, stateFiles) ??
    (memoryPath === null ? undefined : { do: 'remove_memory', path: memoryPath }) ??
    // last: as long as it stands there, whoever has lost the journal knows what is to be merged
    (state && forgetState(picture, state)) ?? {
      do: 'done',
      left: leftOf(picture, unexplained(picture, overlays, goal)),
    }
  );
}

/** The overlays that will be merged, before any is. */
export function uppersOfAutomatic(picture: ChainPicture, goal: MergeGoal, declared: StateFiles): string[] {
  const state = ownState(picture, goal, declared);
  const stateFiles = withTakenIn(declared, state);
  const rest = without(picture, state);
  const overlays = existing(rest, stateFiles);
  const uppers = toBeNoted(rest, overlays, stateFiles).map(({ path }) => path);
  return uppers.filter(path => !picture.inner.has(path));
}

/** The declared state; a state of the same name that somebody else has created is another one. */
function ownState(
  picture: ChainPicture,
  { name }: MergeGoal,
  stateFiles: StateFiles,
): SavedState | undefined {
  const state = allStates(picture).find(candidate => candidate.name === name);
  if (!state || state.name.startsWith(AUTOMATIC_PREFIX)) return state;
  const own = [...stateFiles.overlays.map(({ path }) => path), stateFiles.memoryPath];
  const files = [...Object.values(state.overlays), state.memoryPath];
  return own.some(path => path !== undefined && files.includes(path)) ? state : undefined;
}

/** With the overlays of disks that the domain got before the state was made: libvirt takes them in unasked, and they are in no journal. */
function withTakenIn(stateFiles: StateFiles, state: SavedState | undefined): StateFiles {
  const declared = new Set(stateFiles.overlays.map(({ path }) => path));
  const takenIn = Object.entries(state?.overlays ?? {}).filter(([, path]) => !declared.has(path));
  const overlays = takenIn.map(([targetDev, path]) => ({ targetDev, path }));
  return { ...stateFiles, overlays: [...stateFiles.overlays, ...overlays] };
}

/** The picture without that state; its files stay in it. */
function without(picture: ChainPicture, state: SavedState | undefined): ChainPicture {
  const others = (states: readonly SavedState[]) => states.filter(other => other !== state);
  return { ...picture, states: others(picture.states), automatic: others(picture.automatic) };
}

function existing(picture: ChainPicture, stateFiles: StateFiles): Overlay[] {
  const isKept = (path: string) => keepersOf(picture, path).length > 0;
  return stateFiles.overlays.flatMap(({ targetDev, path }) => {
    const layer = picture.files.get(path);
    if (layer === undefined) return [];
    const isUsed = (file: string, by: string[]) => isTop(picture, file) || by.length > 0 || isKept(file);
    return {
      targetDev,
      path,
      layer,
      used: isUsed(path, readersOf(picture, path)),
      layerUsed:
        layer !== null &&
        (picture.foreign.has(layer) ||
          isUsed(
            layer,
            readersOf(picture, layer).filter(reader => reader !== path),
          )),
      noted: (picture.metadata.looseLayers ?? []).some(loose => loose.merging === path),
    };
  });
}

/** A block job of somebody else may end with another file on top of the disk, or with other content below: it is waited for. */
function waitForJob(
  picture: ChainPicture,
  overlays: Overlay[],
  stateFiles: StateFiles,
): MergeStep | undefined {
  for (const { path, layer } of overlays) {
    const targetDev = liveDiskOf(picture, path);
    const job = targetDev === undefined ? null : foreignJobOn(picture, targetDev);
    if (job === null) continue;
    const { path: top, mirror } = picture.live.get(targetDev!)!;
    const isThatMerge = mirror?.job === 'active-commit' && top === path && mirror.path === layer;
    // an agent of an earlier version noted its merges in the journal only, with the overlays
    if (stateFiles.noted === true || !isThatMerge) return { do: 'wait_for_job', targetDev: targetDev!, job };
  }
  return undefined;
}

/** Overlays in use are merged all or none: disks of two different moments together are no consistent state. */
function toBeNoted(picture: ChainPicture, overlays: Overlay[], stateFiles: StateFiles): Overlay[] {
  // an agent of an earlier version has written to the files below with nothing noted
  const isStale = stateFiles.noted === true && overlays.some(overlay => wentOnBelow(picture, overlay));
  return overlays.filter(overlay => !(isStale && overlay.used) && isToBeNoted(picture, overlay, stateFiles));
}

/** The definition names the overlay, but the file below has newer data: the domain was started elsewhere and writes there. */
function wentOnBelow({ power, since }: ChainPicture, { path, used, noted }: Overlay): boolean {
  return power === 'off' && used && !noted && since.get(path) === 'written';
}

/**
 * Whether the overlay can be merged by the steps of a deleted layer. The file below must still have the disk's content of that
 * time: only the domain's own definitions may name it, which are changed with the merge.
 */
function isToBeNoted(
  picture: ChainPicture,
  { path, layer, used, layerUsed, noted }: Overlay,
  { unusedIsNothing = false }: StateFiles,
): boolean {
  if (noted || layer === null || !picture.files.has(layer) || picture.foreign.has(path)) return false;
  if (!used)
    return !unusedIsNothing && !layerUsed && picture.since.get(path) === 'same' && !picture.empty.has(path);
  // a second definition of the same disk is as before by the merge, a disk that was moved is not
  if (picture.foreign.has(layer) && !isBelowTop(picture, path)) return false;
  const others = readersOf(picture, layer).filter(reader => reader !== path);
  return (
    others.length === 0 && liveTopOf(picture, layer) === undefined && keepersOf(picture, layer).length === 0
  );
}

function isBelowTop(picture: ChainPicture, path: string): boolean {
  const tops = [...[...picture.live.values()].map(top => top.path), ...picture.config.values()];
  return tops.some(top => filesFrom(picture, top).includes(path));
}

function liveTopOf(picture: ChainPicture, path: string): string | undefined {
  return [...picture.live].find(([, top]) => top.path === path)?.[0];
}

function note(picture: ChainPicture, overlays: Overlay[], stateFiles: StateFiles): MergeStep | undefined {
  const { metadata } = picture;
  const missing = toBeNoted(picture, overlays, stateFiles);
  if (missing.length === 0) return undefined;
  // what was the top of a disk is not removed, also when nobody has the disk any more
  const layers = missing.map(
    ({ targetDev, path, layer }): LooseLayer => ({
      ...{ targetDev, path: layer!, overlay: false, merging: path },
      stage: firstStage(picture, path),
    }),
  );
  const replaced = new Set(layers.map(({ path }) => path));
  const kept = (metadata.looseLayers ?? []).filter(({ path }) => !replaced.has(path));
  return { do: 'note', metadata: { ...metadata, looseLayers: [...kept, ...layers] } };
}

function stepOfNoted(picture: ChainPicture, stateFiles: StateFiles): MergeStep | undefined {
  const paths = new Set(stateFiles.overlays.map(({ path }) => path));
  for (const loose of picture.metadata.looseLayers ?? []) {
    if (loose.merging === undefined || !paths.has(loose.merging)) continue;
    if (!picture.files.has(loose.merging)) return withoutLoose(picture, loose);
    const step = stepOfLayer(picture, loose);
    if (step) return step;
  }
  return undefined;
}

function stepOfUnused(
  picture: ChainPicture,
  overlays: Overlay[],
  { unusedIsNothing = false }: StateFiles,
): MergeStep | undefined {
  for (const { targetDev, path, layer, used, layerUsed, noted } of overlays) {
    if (picture.foreign.has(path)) continue;
    if (layer !== null && isLeftBehind(picture, path, layer))
      return { do: 'move_readers', targetDev, layer, above: path, readers: [] };
    if (used || picture.inner.has(path)) continue;
    const isNothing = picture.empty.has(path) || (unusedIsNothing && !noted);
    if (layer === null || isNothing) return { do: 'remove_file', path };
    if (!layerUsed && noted) return { do: 'commit_detached', layer, above: path };
  }
  return undefined;
}

/** The guest runs with the lower file: at the next start the definition must not put the older upper file on top of it. */
function isLeftBehind(picture: ChainPicture, path: string, layer: string): boolean {
  return (
    [...picture.config.values()].includes(path) &&
    liveTopOf(picture, layer) !== undefined &&
    liveDiskOf(picture, path) === undefined &&
    readersOf(picture, path).length === 0
  );
}

/** One that waits, noted, for an internal state to be deleted is told of as that. */
const unexplained = ({ inner }: ChainPicture, overlays: Overlay[], { staying }: MergeGoal): Overlay[] =>
  overlays.filter(({ path, noted }) => !staying?.has(path) && !(noted && inner.has(path)));

function leftOf(picture: ChainPicture, overlays: Overlay[]): string[] {
  return overlays.map(({ path, layer, layerUsed }) => {
    const user = picture.foreign.get(path);
    if (user !== undefined) return `${path} (used by ${user})`;
    if (layer !== null && !picture.files.has(layer)) return `${path} (${layer}, which it stands on, is gone)`;
    if (!layerUsed && picture.since.get(path) === 'same')
      return `${path} (another disk of then was written to without its layer)`;
    return `${path} (${layer} ${layerUsed ? 'is used' : 'was written to'} without it)`;
  });
}
