/**
 * Names of new archives are taken before anything is copied: by a small hidden file beside the archive's future place, made
 * exclusively, that names its owner. While the owner writes, it holds that file's lock, so a reservation of a writer that
 * died keeps nobody else from the name. It is removed after the commit: until then it proves whose the published file is.
 */
import { basename, dirname, join } from 'node:path';
import { link, open, rm } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError, hasKey } from '@virtkeep/shared/errors';
import { exists, removePath } from '@virtkeep/shared/files';
import { readForeign, writeFresh } from '@virtkeep/shared/foreign-file';
import { type FileLock, lockFile } from '../system/file-lock.ts';
import { lacksLinks } from '../system/publish.ts';

/** Longer ones are no reservations. */
const MAX_OWNER_BYTES = 256;

const reservationPathOf = (path: string): string => join(dirname(path), `.${basename(path)}.reserved`);
const unfinishedPathOf = (reservation: string, owner: string): string => `${reservation}.${owner}`;

/**
 * Takes the name for an owner, as long as the answered lock is held; null when it is taken, by an archive or by another
 * who is making one.
 * @param path where the archive is going to be
 * @param owner an id that nobody else uses
 * @throws VirtkeepError io_failed, disk_full, pool_read_only
 */
export async function reserveName(path: string, owner: string): Promise<FileLock | null> {
  if (await exists(path)) return null;
  const isNew = await createReservation(reservationPathOf(path), owner);
  const lock = await lockReservation(path);
  if (lock === null) return null;
  try {
    const isOwn = (await ownerIn(path)) === owner;
    // One that is there already is stale when it could be locked; where there are no locks that cannot be told.
    if (isOwn || (!isNew && lock.excludes)) {
      if (!isOwn) await write(lock, owner);
      if (!(await exists(path))) return lock;
      // published since it was looked for
      await removePath(reservationPathOf(path));
    }
  } catch (error) {
    await lock.release();
    throw error;
  }
  await lock.release();
  return null;
}

/** Whether the name is still this owner's: what was published under it is its own then. @throws VirtkeepError io_failed */
export async function ownsName(path: string, owner: string): Promise<boolean> {
  return (await ownerIn(path)) === owner;
}

/** Gives a name free that this owner took, unless it was given to another since. Idempotent. @throws VirtkeepError io_failed */
export async function freeName(path: string, owner: string): Promise<void> {
  await removePath(unfinishedPathOf(reservationPathOf(path), owner));
  const lock = await lockReservation(path);
  if (lock === null) return;
  try {
    if (await ownsName(path, owner)) await removePath(reservationPathOf(path));
  } finally {
    await lock.release();
  }
}

/**
 * False when there is one already. It is seen only with its owner in it: others take an empty one for that of a writer who
 * died, and what they write into it would be written over.
 */
async function createReservation(reservation: string, owner: string): Promise<boolean> {
  const unfinished = unfinishedPathOf(reservation, owner);
  try {
    await writeFresh(unfinished, owner);
    await link(unfinished, reservation).catch(async (error: unknown) => {
      if (!lacksLinks(error)) throw error;
      await writeNew(reservation, owner);
    });
    return true;
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false;
    throw fromIoError(error, 'reserving', reservation);
  } finally {
    await rm(unfinished, { force: true }).catch(() => {});
  }
}

async function writeNew(path: string, owner: string): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(owner);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Null when another has it, or when it is gone. */
async function lockReservation(path: string): Promise<FileLock | null> {
  const reservation = reservationPathOf(path);
  try {
    return (await exists(reservation)) ? await lockFile(reservation, 'exclusive') : null;
  } catch (error) {
    if (hasKey(error, 'file_busy') || !(await exists(reservation))) return null;
    throw error;
  }
}

async function write({ handle, path }: FileLock, owner: string): Promise<void> {
  try {
    await handle.truncate(0);
    await handle.write(owner, 0);
    await handle.sync();
  } catch (error) {
    throw fromIoError(error, 'reserving', path);
  }
}

/** Null when there is no reservation; empty for what is none, and for one that was cut off while it was made, where there are no hard links. */
async function ownerIn(path: string): Promise<string | null> {
  const reservation = reservationPathOf(path);
  try {
    return (await readForeign(reservation, MAX_OWNER_BYTES)).toString('utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null;
    if (hasKey(error, 'file_too_large')) return '';
    throw fromIoError(error, 'reading', reservation);
  }
}
