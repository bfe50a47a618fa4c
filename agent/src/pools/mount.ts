/**
 * A pool whose file system is not mounted looks like an empty local directory: a backup written there fills the node's
 * root disk and is hidden by the next mount, and every file that is looked for seems to be gone. So a marker file is put
 * on each pool that lies on a file system of its own (of the network, of a LUN, of a USB disk) when it is first seen
 * mounted; afterwards the pool counts as mounted only while the marker is there. A pool on the node's root file system
 * needs none: what it lies on cannot be absent.
 */
import { access, constants, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '@virtkeep/shared/errors';
import { fsFacts, isDirectory } from './fs-kind.ts';
import { isMountPoint, mountPointOf, ROOT_MOUNT } from './mount-table.ts';

export const MARKER = '.virtkeep-pool';

export interface MountFacts {
  mounted: boolean;
  /** The marker file is there (it may just have been made). */
  marker: boolean;
  /** The file system is mounted read-only. */
  readonly: boolean;
  /** Word for the network file system under the directory. */
  network?: string | undefined;
  /** Where the file system of the directory is mounted: "/" for the node's own. */
  mountPoint: string;
}

export interface MountProbe {
  id: string;
  path: string;
  /** libvirt's type. What it mounts itself (fs, netfs) must be a mount point. */
  type: string;
  /** A marker was put there before. */
  hadMarker: boolean;
  /** Where its file system was mounted when the pool was last seen: a read-only one bears no marker. */
  formerMountPoint?: string | undefined;
  /** A marker may be put there: the pool is in use. */
  mayMark: boolean;
}

/** Looks at a pool's directory and marks it when its own file system is seen for the first time. @throws VirtkeepError io_failed */
export async function probeMount(probe: MountProbe): Promise<MountFacts> {
  const { path, type, hadMarker, formerMountPoint = ROOT_MOUNT } = probe;
  const mountPoint = await mountPointOf(path);
  if (!(await isDirectory(path))) return { mounted: false, marker: false, readonly: false, mountPoint };
  const readonly = await isReadOnly(path);
  const { network } = await fsFacts(path);
  const marker = await hasMarker(path);
  const facts = { marker, readonly, network, mountPoint };
  if ((type === 'netfs' || type === 'fs') && !(await isMountPoint(path))) return { ...facts, mounted: false };
  if (hadMarker || marker) return { ...facts, mounted: marker };
  if (isAbove(mountPoint, formerMountPoint)) return { ...facts, mounted: false };
  if (mountPoint === ROOT_MOUNT && network === undefined) return { ...facts, mounted: true };
  return { ...facts, mounted: true, marker: probe.mayMark && !readonly && (await putMarker(probe)) };
}

/** Whether the marker is in a pool's directory. Asks its file system. */
export async function hasMarker(path: string): Promise<boolean> {
  return access(join(path, MARKER)).then(
    () => true,
    () => false,
  );
}

/** What was mounted below is not: the directory belongs to the file system above. */
const isAbove = (mountPoint: string, former: string): boolean =>
  former !== mountPoint && `${former}/`.startsWith(mountPoint === ROOT_MOUNT ? '/' : `${mountPoint}/`);

async function putMarker(probe: MountProbe): Promise<boolean> {
  const text = `${JSON.stringify({ pool: probe.id })}\nThis file shows that the data pool is mounted. Do not delete it.\n`;
  return writeFile(join(probe.path, MARKER), text, { flag: 'wx' }).then(
    () => true,
    error => errnoOf(error) === 'EEXIST',
  );
}

/** access(2) tells a read-only mount even to root. */
async function isReadOnly(path: string): Promise<boolean> {
  return access(path, constants.W_OK).then(
    () => false,
    error => errnoOf(error) === 'EROFS',
  );
}
