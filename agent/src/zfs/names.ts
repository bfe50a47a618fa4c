import { VirtkeepError } from '@virtkeep/shared/errors';
import { isUuid } from '@virtkeep/shared/ids';

/** Longest name of a dataset or snapshot, bytes (ZFS_MAX_DATASET_NAME_LEN without its closing zero). */
const MAX_NAME = 255;
/** What zfs allows between two slashes. A leading "-" would be taken for an option. */
const COMPONENT = /^[A-Za-z0-9_][A-Za-z0-9_.: -]*$/;
const CLONE_PREFIX = 'virtkeep-';

/** True for a name of a dataset, volume or clone: components with slashes between them, the first one the pool. */
export function isDatasetName(name: string): boolean {
  return (
    name.length <= MAX_NAME && name.split('/').every(part => COMPONENT.test(part) && !/^\.\.?$/.test(part))
  );
}

/** True for `dataset@snapshot`. */
export function isSnapshotName(name: string): boolean {
  const [dataset, snapshot, ...more] = name.split('@');
  if (name.length > MAX_NAME || more.length > 0 || !dataset || !snapshot) return false;
  return isDatasetName(dataset) && COMPONENT.test(snapshot);
}

/** @throws VirtkeepError zfs_failed */
export function requireDataset(name: string): string {
  if (isDatasetName(name)) return name;
  throw new VirtkeepError('zfs_failed', { command: 'name', reason: `"${name}" is not a name of a dataset` });
}

/** @throws VirtkeepError zfs_failed */
export function requireSnapshot(name: string): string {
  if (isSnapshotName(name)) return name;
  throw new VirtkeepError('zfs_failed', { command: 'name', reason: `"${name}" is not a name of a snapshot` });
}

/** The pool that a dataset or snapshot is in. */
export function poolOf(name: string): string {
  return name.split(/[/@]/, 1)[0]!;
}

/** Name of a clone with an id of its own: beside the dataset, or in the pool itself when that is the dataset. */
export function cloneNameFor(dataset: string, id: string): string {
  const parent = dataset.includes('/') ? dataset.slice(0, dataset.lastIndexOf('/')) : dataset;
  return requireDataset(`${parent}/${CLONE_PREFIX}${id}`);
}

/** The id in the name of a clone that we made, or undefined. */
export function cloneIdOf(dataset: string): string | undefined {
  const last = dataset.slice(dataset.lastIndexOf('/') + 1);
  const id = last.startsWith(CLONE_PREFIX) ? last.slice(CLONE_PREFIX.length) : '';
  return isUuid(id) ? id : undefined;
}
