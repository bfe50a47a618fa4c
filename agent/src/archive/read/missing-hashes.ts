/** Hashes for an archive that was made without, when a later increment asks for them. */
import { throwIfAborted } from '@virtkeep/shared/abort';
import { digestOf, type Manifest, type MemberRecord } from '../format/manifest.ts';
import type { FileLock } from '../system/file-lock.ts';
import { openArchive } from './reader.ts';

/** Bytes that {@link missingHashes} has to read. */
export const unhashedBytes = ({ members }: Pick<Manifest, 'members'>): number =>
  members.filter(lacksHash).reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);

/**
 * SHA-256 by name of the members that have none, read from the archive as it is now; what a checksum of a frame finds damaged gets none.
 * @param lock of the archive, which stays the caller's
 * @throws VirtkeepError archive_damaged, archive_unsupported, io_failed, canceled
 */
export async function missingHashes(
  path: string,
  lock: FileLock,
  { signal, onProgress }: { signal: AbortSignal; onProgress: (bytesDone: number) => void },
): Promise<Map<string, string>> {
  const archive = await openArchive(path, signal, { holding: lock });
  const found = new Map<string, string>();
  let done = 0;
  try {
    for (const member of archive.manifest?.members ?? []) {
      throwIfAborted(signal);
      if (!lacksHash(member)) continue;
      found.set(member.name, await archive.sha256Of(member.name, signal, bytes => onProgress(done + bytes)));
      done += member.sizeBytes;
    }
    return found;
  } finally {
    await archive.close();
  }
}

/** A member with its hash: what a signature stands for has had one all along. */
export function hashedMember(member: MemberRecord, hashes: ReadonlyMap<string, string>): MemberRecord {
  if (member.sha256 !== null) return member;
  const { digest, ...rest } = member;
  if (digest !== undefined) return { ...rest, sha256: digest };
  const sha256 = hashes.get(member.name);
  return sha256 === undefined ? member : { ...rest, sha256, hashedLater: true };
}

const lacksHash = (member: MemberRecord): boolean => digestOf(member) === null;
