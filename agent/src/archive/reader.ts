import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Manifest } from './manifest.ts';
import type { ArchiveFormat, ArchiveMember, ExtractOptions, VerifyOptions, VerifyResult } from './types.ts';

/** An open archive; close it when done. */
export interface Archive {
  readonly path: string;
  readonly format: ArchiveFormat;
  readonly sizeBytes: number;
  /** Null for a tar that this product did not write. */
  readonly manifest: Manifest | null;
  /** In file order, the manifests included. */
  readonly members: readonly ArchiveMember[];
  /** A small member whole. @throws member_not_found, archive_damaged, archive_unsupported when above `maxBytes` (16 MiB) */
  readMember(name: string, signal: AbortSignal, maxBytes?: number): Promise<Buffer>;
  /** Writes a member to a new file, sparse where it has zeros, fdatasync included; removes the file on failure. */
  extractMember(name: string, destPath: string, options: ExtractOptions): Promise<void>;
  /** Reads everything and reports damage; throws only for cancellation and for errors of the disk itself. */
  verify(options: VerifyOptions): Promise<VerifyResult>;
  close(): Promise<void>;
}

/** @throws VirtkeepError archive_damaged, archive_unsupported, io_failed */
export function openArchive(path: string, _signal: AbortSignal): Promise<Archive> {
  return Promise.reject(new VirtkeepError('archive_unsupported', { path, reason: 'not yet' }));
}
