/**
 * The archive: a backup file as a POSIX tar, plain or as many zstd frames.
 *
 * Knows paths, bytes and qemu-img; nothing of libvirt or pools. The format, and why it is so, is written in
 * docs/archive-format.md; what is here can be read back by tar, zstd and qemu-img alone.
 *
 * Which operations may meet on one file: any number of readers, beside nothing that writes. A writer or a conversion
 * works on a partial file of its own until it is published, so it meets nobody; an extension works in the file itself
 * and meets nobody by its caller's exclusive lock. What it overwrites is saved first (tail.ts).
 */

export { ArchiveAppender } from './append.ts';
export type { GrowthLimits } from './bounds.ts';
export { ArchiveConverter } from './convert.ts';
export { whyGrown } from './growth.ts';
export type {
  Manifest,
  ManifestDisk,
  ManifestLayer,
  ManifestSavedState,
  ManifestState,
  MemberRecord,
} from './manifest.ts';
export { type MemberKind, memberNames, partialPathOf, sha256PathOf } from './names.ts';
export { type Archive, openArchive, verifyArchive } from './reader.ts';
export { undoAppend } from './tail.ts';
export type { ArchiveProblem, FinishedArchive, FinishOptions, VerifyResult } from './types.ts';
export { ArchiveWriter } from './writer.ts';
