import type { FileLock } from '../system/file-lock.ts';
import type { Manifest, MemberRecord } from './manifest.ts';
import type { MemberKind } from './names.ts';
import type { Seal, Signing, SignManifest } from './seal.ts';

/** 'tar', or the same tar as many zstd frames. */
export type ArchiveFormat = 'tar' | 'tar.zst';

/** Holds up who reads too fast. */
export interface Throttle {
  /** Waits until so many bytes may be read; when it is cancelled, no longer. */
  take(bytes: number, signal: AbortSignal): Promise<void>;
  /** For work that keeps to a rate by itself, which stays the same to its end; 0: any rate. */
  atFixedRate<T>(work: (bytesPerSecond: number) => Promise<T>): Promise<T>;
  /**
   * Read or written at once by a thread now, at the most, bytes, a multiple of 4096: others get on in between. Undefined: anything. To be
   * asked each time.
   */
  pieceBytes?(): number | undefined;
}

export interface WriterOptions {
  /** Where the archive is published; must not exist. */
  path: string;
  /** Recognises the partial file; the manifest's backupId. */
  backupId: string;
  /** Null for a plain tar; level 1..9, default 3. */
  compression: { level?: number } | null;
  /** Most frames of a compressed one; default what readers take. */
  maxFrames?: number;
  /** SHA-256 of every member, in the manifest and the sidecar. */
  hash: boolean;
  /** Signs the manifests; undefined: nobody vouches for the archive. */
  sign?: SignManifest | undefined;
  /** Of an archive of several states: the signer's own, since all that is in it was. */
  isOwn?: boolean;
  /** Threads that read and compress, 1..8; default one a core, at most 4. */
  workers?: number;
  /** For the reading of files and devices. */
  throttle?: Throttle | undefined;
  signal: AbortSignal;
  /** Source bytes done since creation; called at most about ten times a second. */
  onProgress?: (bytesDone: number) => void;
}

export interface AppenderOptions {
  /** An archive of this product. */
  path: string;
  /** An exclusive lock of it, which stays the caller's; undefined: one is taken until the end. */
  lock?: FileLock;
  /** SHA-256 of the new members; default: when those of the archive have one. */
  hash?: boolean;
  /** With `hash`: what was found of members that have none ({@link missingHashes}); they have theirs from then on. */
  hashes?: ReadonlyMap<string, string> | undefined;
  /** Decides for the archive as it was before whether the new manifest is signed. */
  signer?: ((archive: Sealed) => Signing | undefined) | undefined;
  /** Of a .tar.zst: 1..9, default 3. */
  level?: number;
  /** As {@link WriterOptions.maxFrames}. */
  maxFrames?: number;
  /** As {@link WriterOptions.workers}. */
  workers?: number;
  /** As {@link WriterOptions.throttle}. */
  throttle?: Throttle | undefined;
  signal: AbortSignal;
  /** Source bytes done since opening; called at most about ten times a second. */
  onProgress?: (bytesDone: number) => void;
}

export interface MemberOptions {
  /** The part of the file that is copied; default: all of it. */
  part?: { offset: number; lengthBytes: number } | undefined;
  /** Where the file was on the node; recorded. Null: nowhere. */
  formerPath?: string | null | undefined;
  /** Of its header; default: when the archive was begun. */
  modified?: Date | undefined;
  /**
   * Hears how many bytes were copied, from the start: they are not read again. Not told while the file system shares them: that may end in the
   * middle, and all is copied then.
   */
  onCopied?: ((bytesDone: number) => void) | undefined;
  /** It is made of members that had no hash, or got theirs later. */
  hashedLater?: boolean | undefined;
}

export interface FinishOptions {
  /** Number of the newest state: the prefix of the manifest's name. */
  stateNumber: number;
  /** Gets the records of all members in order; returns the manifest with them inside. */
  manifest: (members: MemberRecord[]) => Manifest;
}

export interface FinishedArchive {
  path: string;
  sizeBytes: number;
  /** The sidecar's path, null without hash. */
  sha256Path: string | null;
  manifest: Manifest;
}

/** A member as the reader lists it. */
export interface ArchiveMember {
  name: string;
  kind: MemberKind;
  sizeBytes: number;
  /** Where its data starts in the uncompressed tar; for a plain tar the offset in the file itself. */
  dataOffset: number;
  sha256: string | null;
  /** As in the manifest. */
  digest?: string | undefined;
  hashedLater?: true | undefined;
  formerPath: string | null;
  /** A link, a sparse file or another that is listed and never extracted. */
  isSpecial?: true;
}

/** A member as its manifest records it, or a header of the tar tells. */
export function listedMember(
  member: Partial<ArchiveMember> & Pick<ArchiveMember, 'name' | 'sizeBytes' | 'dataOffset'>,
): ArchiveMember {
  const { name, kind = 'other', sizeBytes, dataOffset, sha256 = null, formerPath = null } = member;
  const { digest, hashedLater } = member;
  const more = { ...(digest && { digest }), ...(hashedLater && { hashedLater }) };
  return { name, kind, sizeBytes, dataOffset, sha256, ...more, formerPath };
}

/** An archive as its newest manifest describes it, with what tells who vouches for that. */
export interface Sealed {
  manifest: Manifest | null;
  seal: Seal | null;
}

export interface ExtractOptions {
  signal: AbortSignal;
  /** Member bytes done. */
  onProgress?: (bytesDone: number) => void;
  /** Permission bits of the new file; default 0o600. */
  mode?: number;
  /** The file is there, empty, and the caller's: it is written to, and stays on failure. */
  existing?: boolean;
  /** What tells that file from another that somebody put under its name, which is not written to. */
  mark?: { inode: string; bornNs: string };
  /** Compare what was written with the recorded SHA-256, when there is one; on a reflinked copy that costs a whole read. */
  checkHash?: boolean;
}

export interface VerifyOptions {
  signal: AbortSignal;
  /** Told of the archive once it is open. */
  onOpened?: (archive: Sealed) => void;
  /** Told once how many uncompressed bytes there are to check. */
  onTotal?: (bytes: number) => void;
  /** Uncompressed bytes checked. */
  onProgress?: (bytesDone: number) => void;
}

/**
 * One thing found wrong; `member` is null when it concerns the file as a whole. `torn_tail`: the end of the archive is
 * gone or unfinished, and what an earlier manifest describes can be read.
 */
export interface ArchiveProblem {
  member: string | null;
  problem:
    | 'damaged'
    | 'hash_mismatch'
    | 'missing'
    | 'unexpected'
    | 'wrong_order'
    | 'truncated'
    | 'torn_tail'
    | 'structure';
  text: string;
}

export interface VerifyResult {
  problems: ArchiveProblem[];
  /** Members whose content was proved by a hash or a frame checksum. */
  provenMembers: number;
  /** Members whose content nothing in the archive can prove (plain tar without hash). */
  unprovenMembers: number;
  /** Numbers of the states that can still be restored, oldest first; none of an archive that is not ours. */
  restorableStates: number[];
  /** Every member has a recorded SHA-256. */
  hashed: boolean;
}
