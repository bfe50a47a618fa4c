/** zfs: the driver of its datasets and volumes. Knows neither domains nor libvirt. */
export { type Clone, type Properties, type Snapshot, ZfsDriver, type ZfsPlace } from './driver.ts';
export { cloneIdOf, cloneNameFor, isDatasetName, isSnapshotName, poolOf } from './names.ts';
export { localTools, type ZfsAnswer, type ZfsTools } from './tools.ts';
