import { fromIoError } from '@virtkeep/shared/errors';
import { replaceWhole, writeFresh } from '@virtkeep/shared/foreign-file';
import type { MemberRecord } from '../format/manifest.ts';
import { sha256PathOf } from '../format/names.ts';

/**
 * The sidecar: one line a member, so that it can be checked with `sha256sum -c` in the directory where the tar was
 * unpacked, and so that an increment adds lines instead of hashing the whole file again.
 * @returns its path
 * @throws VirtkeepError io_failed, disk_full
 */
export async function writeHashes(archivePath: string, members: readonly MemberRecord[]): Promise<string> {
  const path = sha256PathOf(archivePath);
  try {
    await writeFresh(path, linesOf(members));
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
  return path;
}

/** Replaces the sidecar of an extended archive: at every moment there is a whole one. Errors as above. */
export async function replaceHashes(
  archivePath: string,
  members: readonly MemberRecord[],
  temporary: string,
): Promise<string> {
  const path = sha256PathOf(archivePath);
  try {
    await replaceWhole(path, linesOf(members), temporary);
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
  return path;
}

/** Members that were added before hashes were asked for have none. */
const linesOf = (members: readonly MemberRecord[]): string =>
  members
    .filter(({ sha256 }) => sha256 !== null)
    .map(({ sha256, name }) => `${sha256}  ${name}\n`)
    .join('');
