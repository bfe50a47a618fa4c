import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Manifest, MemberRecord } from './manifest.ts';
import type { MemberKind } from './names.ts';
import type {
  AppenderOptions,
  ArchiveFormat,
  ArchiveMember,
  FinishedArchive,
  FinishOptions,
  MemberOptions,
} from './types.ts';

const unwritten = () => new VirtkeepError('not_available', { field: 'extend', what: 'Extending an archive' });

/** Extends an archive in place. */
export class ArchiveAppender {
  readonly path: string;
  readonly format: ArchiveFormat;
  /** Newest manifest before the extension. */
  readonly manifest: Manifest;
  /** Members before the extension, in file order, the manifests included. */
  readonly members: readonly ArchiveMember[];

  private constructor(path: string, format: ArchiveFormat, manifest: Manifest, members: ArchiveMember[]) {
    this.path = path;
    this.format = format;
    this.manifest = manifest;
    this.members = members;
  }

  /**
   * Reads an archive and changes nothing.
   * @throws VirtkeepError archive_damaged, archive_unsupported (foreign), invalid_field (level), io_failed, canceled
   */
  static open(_options: AppenderOptions): Promise<ArchiveAppender> {
    return Promise.reject(unwritten());
  }

  /** Saves the old end to `tailPath`, durably. Call it once, after the effect was declared and before adding. */
  begin(_tailPath: string): Promise<void> {
    return Promise.reject(unwritten());
  }

  addFile(
    _name: string,
    _kind: MemberKind,
    _srcPath: string,
    _options: MemberOptions = {},
  ): Promise<MemberRecord> {
    return Promise.reject(unwritten());
  }

  addBytes(
    _name: string,
    _kind: MemberKind,
    _bytes: Uint8Array,
    _options: MemberOptions = {},
  ): Promise<MemberRecord> {
    return Promise.reject(unwritten());
  }

  addRaw(
    _name: string,
    _srcPath: string,
    _virtualSizeBytes: number,
    _options: MemberOptions = {},
  ): Promise<MemberRecord> {
    return Promise.reject(unwritten());
  }

  /**
   * Writes the new manifest and the end, makes all durable, then the sidecar. `options.manifest` gets the records of
   * all members of the file in order, the old manifests included. The tail file stays: remove it after the commit.
   */
  finish(_options: FinishOptions): Promise<FinishedArchive> {
    return Promise.reject(unwritten());
  }

  /** Puts the old end back when anything was begun, removes the tail file; harmless after finish and when repeated. */
  abort(): Promise<void> {
    return Promise.resolve();
  }
}

/**
 * Puts back the end an archive had before it was extended, as `tailPath` keeps it, and removes that file. Idempotent;
 * without the file nothing was overwritten yet.
 */
export async function undoAppend(path: string, tailPath: string): Promise<void> {
  throw new Error(`not written yet: ${path} ${tailPath}`);
}
