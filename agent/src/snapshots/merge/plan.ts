/**
 * Deleting a saved state, decided without doing it.
 *
 * A state keeps one file per disk; its deletion leaves that file to nobody. When one other file stands on it, that one is
 * merged into it (so the first file of a disk keeps its name) and takes its place; when several do, because the domain was
 * reverted, nothing may change: it waits as a *loose layer* until branches go away. Loose layers stand in the domain's own
 * metadata from before the state is forgotten until they are merged, so whoever looks next goes on where the last one
 * stopped. The state is forgotten first, because from the first merged byte on its content is gone.
 */
import type { DomainMetadata, LooseLayer } from '../../domain-xml/index.ts';
import { isInternal, type SavedState } from '../chain.ts';
import { savedStateId } from '../state-id.ts';
import { nextStepOfAutomatic, uppersOfAutomatic } from './automatic.ts';
import { blockJobOf } from './jobs.ts';
import { forgetState, stepOfLayer, strandedLayers } from './layers.ts';
import { forgetGone } from './lent.ts';
import { type ChainPicture, heldReason, innerReason, isRemovable, keptFiles, readersOf } from './picture.ts';
import type { MergeGoal, MergeStep } from './step.ts';

/** The next step on the way to the goal. */
export function nextMergeStep(picture: ChainPicture, goal: MergeGoal, now: Date): MergeStep {
  if (goal.stateFiles) return nextStepOfAutomatic(picture, goal, goal.stateFiles);
  const state = picture.states.find(({ name }) => name === goal.name);
  if (state) return stepOfState(picture, state, goal, now);
  for (const loose of picture.metadata.looseLayers ?? []) {
    const step = stepOfLayer(picture, loose);
    if (step) return step;
  }
  const forget = forgetGone(picture);
  if (forget) return forget;
  const left = strandedLayers(picture);
  return left.length > 0 ? { do: 'done', left } : { do: 'done' };
}

/**
 * Before a deletion begins: the files that it will merge into the ones below them, and those that it removes first. Both
 * are empty when it has begun already.
 */
export function uppersOf(
  picture: ChainPicture,
  goal: MergeGoal,
): [uppers: readonly string[], freed: readonly string[]] {
  const { name, stateFiles } = goal;
  if (stateFiles) return [uppersOfAutomatic(picture, goal, stateFiles), []];
  const state = picture.states.find(candidate => candidate.name === name);
  if (!state || isNative(state)) return [[], []];
  const readers = keptFiles(state).map(({ path }) => readersOf(picture, path));
  const uppers = readers.flatMap(found => (found.length === 1 ? found : []));
  const merged = uppers.filter(path => !picture.inner.has(path));
  return [merged, state.memoryPath === null ? [] : [state.memoryPath]];
}

/** Deleted by libvirt itself. */
function isNative(state: SavedState): boolean {
  return state.deleting || isInternal(state);
}

function stepOfState(picture: ChainPicture, state: SavedState, goal: MergeGoal, now: Date): MergeStep {
  const kept = isNative(state) ? [] : keptFiles(state);
  // without the state nobody knows any more whose the file is into which another one was merged
  for (const loose of picture.metadata.looseLayers ?? []) {
    const isInto = loose.merging !== undefined && kept.some(({ path }) => path === loose.path);
    const step = isInto ? stepOfLayer(picture, loose) : undefined;
    if (step) return step;
  }
  const layers = kept.map(file => ({ ...file, overlay: typeof picture.files.get(file.path) === 'string' }));
  const id = savedStateId(picture.domainId, state);
  const statesDeleted = goal.countsAsDeletion ? { statesDeleted: now } : {};
  const metadata = withRemoved({ ...picture.metadata, ...statesDeleted }, id, layers);
  if (metadata) return { do: 'note', metadata };
  if (isNative(state)) return { do: 'native_delete', name: state.name };
  const { memoryPath } = state;
  if (memoryPath !== null && isRemovable(picture, memoryPath))
    return { do: 'remove_memory', path: memoryPath };
  return forgetState(picture, state);
}

/** The metadata with the deletion in it; undefined when it is there already. */
function withRemoved(metadata: DomainMetadata, id: string, layers: LooseLayer[]): DomainMetadata | undefined {
  const { removedStates = [], looseLayers = [] } = metadata;
  const missing = layers.filter(layer => !looseLayers.some(loose => loose.path === layer.path));
  if (removedStates.includes(id) && missing.length === 0) return undefined;
  return {
    ...metadata,
    removedStates: [...removedStates.filter(other => other !== id), id],
    looseLayers: [...looseLayers, ...missing],
  };
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
  for (const { targetDev, path } of keptFiles(state)) {
    const top = picture.live.get(targetDev)?.path ?? picture.config.get(targetDev);
    // its pool may only not be mounted: the state would be forgotten, and nothing be found that is to be merged
    if (top !== undefined && !picture.files.has(top))
      return `${top}, which may stand on what "${state.name}" keeps, is not there`;
    if (ARCHIVE.test(path)) return `"${state.name}" stands directly on the archive ${path}`;
    const readers = readersOf(picture, path);
    const inner = readers.length === 1 ? innerReason(picture, readers[0]!) : null;
    if (inner !== null) return inner;
    for (const file of [path, ...readers]) {
      const user = picture.foreign.get(file);
      if (user !== undefined)
        return `${file}, which "${state.name}" keeps or has below it, is used by ${user}`;
    }
  }
  return null;
}
