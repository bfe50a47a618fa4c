/**
 * The archive: a backup file as a POSIX tar, plain or as many zstd frames.
 *
 * Knows paths, bytes and qemu-img; nothing of libvirt or pools. The format, and why it is so, is written in
 * docs/archive-format.md; what is here can be read back by tar, zstd and qemu-img alone.
 *
 * Which operations may meet on one file: any number of readers, beside nothing that writes. Whoever opens an archive here
 * locks it, so that this holds among all nodes that see the file (file-lock.ts). A writer works on a partial file of its
 * own until it is published, under a name that it reserved (reserve.ts); an extension works in the file itself, and what it
 * overwrites is saved first (tail.ts).
 */

export { ArchiveAppender } from './append.ts';
export type { GrowthLimits } from './bounds.ts';
export { ArchiveConverter, type ConvertOptions } from './convert.ts';
export { type FileLock, lockFile, whenLocksAreMissing } from './file-lock.ts';
export { requireReadable, type TarSize, tarSizeOf, whyGrown, whyTooLarge } from './growth.ts';
export type { Holding } from './inspect.ts';
export { hasTailToPutBack, putTailsBack, removeTails } from './left-tails.ts';
export {
  formatVersionOf,
  type Manifest,
  type ManifestDisk,
  type ManifestLayer,
  type ManifestSavedState,
  type ManifestState,
  type MemberRecord,
} from './manifest.ts';
export { type MemberKind, memberNames, partialPathOf, partialPathsOf, sha256PathOf } from './names.ts';
export { type Archive, openArchive, verifyArchive } from './reader.ts';
export { removeArchive } from './remove.ts';
export { freeName, ownsName, reserveName } from './reserve.ts';
export type { Seal, SignManifest } from './seal.ts';
export { ArchiveSigner, type SignerOptions, type SigningIdentity } from './signer.ts';
export { undoAppend } from './tail.ts';
export type { ArchiveTrust, JudgeArchive, Judgement } from './trust.ts';
export type {
  AppenderOptions,
  ArchiveProblem,
  FinishedArchive,
  FinishOptions,
  Sealed,
  VerifyResult,
} from './types.ts';
export { ArchiveWriter } from './writer.ts';
