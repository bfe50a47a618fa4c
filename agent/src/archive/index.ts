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

export type { GrowthLimits } from './format/bounds.ts';
export { requireReadable, type TarSize, tarSizeOf, whyGrown, whyTooLarge } from './format/growth.ts';
export {
  formatVersionOf,
  isHashed,
  leftOutOf,
  type Manifest,
  type ManifestDisk,
  type ManifestLayer,
  type ManifestSavedState,
  type ManifestState,
  type MemberRecord,
  manifestFault,
  ON_REQUEST,
} from './format/manifest.ts';
export {
  isNameTooLong,
  MEMBER_KINDS,
  type MemberKind,
  memberNames,
  nameFault,
  partialPathOf,
  partialPathsOf,
  sha256PathOf,
} from './format/names.ts';
export { neededMembers, needsOf, restorableStates } from './format/restorable.ts';
export type { Seal, SignManifest } from './format/seal.ts';
export { ArchiveSigner, type SignerOptions, type SigningIdentity } from './format/signer.ts';
export { flattened, type ReadAt as ReadTar, type WalkedMember, walkTar } from './format/tar-format.ts';
export type { ArchiveTrust, JudgeArchive, Judgement } from './format/trust.ts';
export type {
  AppenderOptions,
  ArchiveProblem,
  FinishedArchive,
  FinishOptions,
  Sealed,
  Throttle,
  VerifyResult,
} from './format/types.ts';
export type { Holding } from './read/inspect.ts';
export { missingHashes, unhashedBytes } from './read/missing-hashes.ts';
export { type Archive, openArchive, verifyArchive } from './read/reader.ts';
export { type FileLock, lockFile, whenLocksAreMissing } from './system/file-lock.ts';
export { keepName, publishNew } from './system/publish.ts';
export { ReadOnce } from './system/read-once.ts';
export { DEFAULT_LEVEL } from './threads/codec.ts';
export { ArchiveAppender } from './write/append.ts';
export { ArchiveConverter, type ConvertOptions } from './write/convert.ts';
export { hasTailToPutBack, putTailsBack, removeTails } from './write/left-tails.ts';
export { convertToQcow2, measureQcow2, type RawContent } from './write/raw.ts';
export { removeArchive } from './write/remove.ts';
export { moveHashFile, replaceArchive } from './write/replace.ts';
export { freeName, ownsName, reserveName } from './write/reserve.ts';
export type { RawDisk } from './write/side-by-side.ts';
export { undoAppend } from './write/tail.ts';
export { ArchiveWriter, publishWithHashes } from './write/writer.ts';
