/**
 * Saved states and disk chains of VMs.
 *
 * `chain.ts` is the picture (plain data), `plan.ts` decides (pure), the rest reads from and talks to libvirt. The one
 * rule behind all of it: what merges does so one layer deep and only into files the automatic state itself froze.
 */
export {
  buildChain,
  type ChainFile,
  type DiskChain,
  keptOf,
  type Layer,
  layersSince,
  presentBranch,
  type SavedState,
  type VmChain,
} from './chain.ts';
export { createAutomaticState, createState } from './create.ts';
export { fromLibvirt, isNoDomain, patiently } from './failures.ts';
export { type IncrementTag, incrementTag, parseIncrementTag } from './increment-tag.ts';
export { leftoverStates, loadStates, readDiskFiles } from './load.ts';
export { foreignFiles, type Look, lookAt } from './look.ts';
export { editMemoryFile, memoryFileXml } from './memory-file.ts';
export { type MergeOptions, type MergeRequest, mergeState, writeMetadata } from './merge.ts';
export { blockJobOf, type MergeGoal, removalRefusal } from './merge-plan.ts';
export { type ChainPicture, keptFiles } from './picture.ts';
export {
  AUTOMATIC_PREFIX,
  automaticStateName,
  type DiskToFreeze,
  LENDING_STATE,
  planAutomaticState,
  planState,
  type StateMode,
  type StatePlan,
} from './plan.ts';
export { type StateFacts, savedStateMessage, savedStateRecord } from './record.ts';
export { type AutomaticState, type RemoveOptions, removeAutomaticState } from './remove.ts';
export {
  defineReverted,
  makeOverlays,
  type Reverted,
  removeUnusedLayers,
  revertedDomain,
  startReverted,
  stopDomain,
  undoRevert,
} from './revert.ts';
export { planRevert, type RevertPlan, revertRefusal } from './revert-plan.ts';
export { savedStateId } from './state-id.ts';
export { diskStates, savedStateOf, withSources } from './state-xml.ts';
