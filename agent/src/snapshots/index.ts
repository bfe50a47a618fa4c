/**
 * Saved states and disk chains of VMs.
 *
 * `chain.ts` is the picture (plain data), `plan.ts` decides (pure), the rest reads from and talks to libvirt. The one
 * rule behind all of it: what merges does so one layer deep and only into files the automatic state itself froze.
 */
export { buildChain, type ChainFile, keptOf, type Layer, presentBranch, type SavedState } from './chain.ts';
export { createAutomaticState, createState } from './create.ts';
export { incrementTag, parseIncrementTag } from './increment-tag.ts';
export { leftoverStates, loadStates, readDiskFiles } from './load.ts';
export { foreignFiles, lookAt } from './look.ts';
export { editMemoryFile, memoryFileXml } from './memory-file.ts';
export { type MergeRequest, mergeState, writeMetadata } from './merge.ts';
export { blockJobOf, removalRefusal } from './merge-plan.ts';
export { requireRoomToMerge } from './merge-room.ts';
export { type ChainPicture, heldReason } from './picture.ts';
export {
  AUTOMATIC_PREFIX,
  type DiskToFreeze,
  LENDING_STATE,
  planAutomaticState,
  planState,
  type StateMode,
  type StatePlan,
} from './plan.ts';
export { type StateFacts, savedStateMessage, savedStateRecord } from './record.ts';
export { type AutomaticState, removeAutomaticState } from './remove.ts';
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
export { planRevert, type RevertPlan, revertRefusal } from './revert-plan.ts';
export { savedStateId } from './state-id.ts';
export { diskStates, savedStateOf } from './state-xml.ts';
