/**
 * A network pool that is not mounted looks like an empty local directory, and a backup written there fills the node's
 * root disk and is hidden by the next mount. So a marker file is put on each network pool when it is first seen
 * mounted; afterwards the pool counts as mounted only while the marker is there.
 */
import { access, constants, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '@virtkeep/shared/errors';
import { fsFacts, isDirectory, isMountPoint } from './fs-kind.ts';

export const MARKER = '.virtkeep-pool';

export interface MountFacts {
  mounted: boolean;
  /** The marker file is there (it may just have been made). */
  marker: boolean;
  /** The file system is mounted read-only. */
  readonly: boolean;
  /** Word for the network file system under the directory. */
  network?: string;
}

export interface MountProbe {
  id: string;
  path: string;
  /** libvirt's type. What it mounts itself (fs, netfs) must be a mount point. */
  type: string;
  /** A marker was put there before. */
  hadMarker: boolean;
}

/** Looks at a pool's directory and marks it when it is a network pool seen for the first time. @throws VirtkeepError io_failed */
export async function probeMount(probe: MountProbe): Promise<MountFacts> {
  const { path, type, hadMarker } = probe;
  const netfs = type === 'netfs';
  if (!(await isDirectory(path))) return { mounted: false, marker: false, readonly: false };
  const readonly = await isReadOnly(path);
  const { network } = await fsFacts(path);
  const marker = await exists(join(path, MARKER));
  if ((netfs || type === 'fs') && !(await isMountPoint(path)))
    return { mounted: false, marker, readonly, network };
  if (hadMarker || marker) return { mounted: marker, marker, readonly, network };
  if (!netfs && network === undefined) return { mounted: true, marker: false, readonly };
  return { mounted: true, marker: !readonly && (await putMarker(probe)), readonly, network };
}

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

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
