/** zfs: the driver of its datasets and volumes. Knows neither domains nor libvirt. */
export { type Clone, type Snapshot, ZfsDriver, type ZfsPlace } from './driver.ts';
export { cloneIdOf, cloneNameFor } from './names.ts';
export { localTools } from './tools.ts';
