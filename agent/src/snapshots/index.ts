/**
 * Saved states and disk chains of VMs.
 *
 * `chain.ts` is the chain as plain data, `plan.ts` decides how a state is made, `merge/` deletes one: it looks, plans (pure)
 * and acts, step by step. The one rule behind all of it: what merges does so one layer deep, from a file that is named into
 * one that is named.
 */
export {
  buildChain,
  type ChainFile,
  isInternal,
  keptOf,
  type Layer,
  presentBranch,
  type SavedState,
} from './chain.ts';
export { createAutomaticState, createState } from './create.ts';
export { incrementTag, isUserState, parseIncrementTag } from './increment-tag.ts';
export { leftoverStates, loadStates, readDiskFiles } from './load.ts';
export { editMemoryFile, memoryFileXml } from './memory-file.ts';
export { blockJobOf } from './merge/jobs.ts';
export { noteLent } from './merge/lent-moved.ts';
export { foreignFiles, lookAt } from './merge/look.ts';
export { markedBelow, markOf } from './merge/mark.ts';
export { type MergeRequest, mergeState, removeAutomaticState } from './merge/merge.ts';
export { type ChainPicture, heldReason } from './merge/picture.ts';
export { removalRefusal } from './merge/plan.ts';
export { requireRoomToMerge } from './merge/room.ts';
export type { AutomaticState } from './merge/step.ts';
export {
  AUTOMATIC_PREFIX,
  type DiskToFreeze,
  isStateOverlay,
  LENDING_STATE,
  planAutomaticState,
  planState,
  type StateMode,
  type StatePlan,
} from './plan.ts';
export { type StateFacts, savedStateMessage } from './record.ts';
export {
  defineReverted,
  makeOverlays,
  type RevertToUndo,
  removeUnusedLayers,
  revertedDomain,
  startReverted,
  stopDomain,
  undoRevert,
} from './revert.ts';
export { planRevert, type RevertPlan, revertedMetadata, revertRefusal } from './revert-plan.ts';
export { savedStateId } from './state-id.ts';
export { diskStates, savedStateOf, withSources } from './state-xml.ts';
export { writeMetadata } from './write-metadata.ts';
export { writeState } from './write-state.ts';
export {
  asSavedState,
  CLONE_KEYS,
  type Instant,
  instantProperties,
  releaseZfs,
  snapshotNameOf,
  type ZfsHoldings,
  type ZfsInstant,
  zfsHoldings,
  zfsInstants,
} from './zfs-instants.ts';
