import { writeFile } from 'node:fs/promises';
import { fromIoError } from '@virtkeep/shared/errors';
import type { MemberRecord } from './manifest.ts';
import { sha256PathOf } from './names.ts';

/**
 * The sidecar: one line a member, so that it can be checked with `sha256sum -c` in the directory where the tar was
 * unpacked, and so that an increment adds lines instead of hashing the whole file again.
 * @returns its path
 * @throws VirtkeepError io_failed, disk_full
 */
export async function writeHashes(archivePath: string, members: readonly MemberRecord[]): Promise<string> {
  const path = sha256PathOf(archivePath);
  const lines = members.map(({ sha256, name }) => `${sha256}  ${name}\n`).join('');
  try {
    await writeFile(path, lines, { mode: 0o600, flush: true });
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
  return path;
}
