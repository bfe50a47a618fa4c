import { VirtkeepError } from '@virtkeep/shared/errors';
import type { MemberRecord } from './manifest.ts';
import type { MemberKind } from './names.ts';
import type { FinishedArchive, FinishOptions, MemberOptions, WriterOptions } from './types.ts';

/** Writes one archive under a partial name and publishes it. Calls are made one after another. */
export class ArchiveWriter {
  static create(_options: WriterOptions): Promise<ArchiveWriter> {
    return Promise.reject(new VirtkeepError('internal'));
  }
  /** Copies a file or block device as it is (a frozen layer, an image, a memory file). */
  addFile(
    _name: string,
    _kind: MemberKind,
    _srcPath: string,
    _options?: MemberOptions,
  ): Promise<MemberRecord> {
    return Promise.reject(new VirtkeepError('internal'));
  }
  /** Small content from memory, at most 16 MiB. */
  addBytes(
    _name: string,
    _kind: MemberKind,
    _bytes: Uint8Array,
    _options?: MemberOptions,
  ): Promise<MemberRecord> {
    return Promise.reject(new VirtkeepError('internal'));
  }
  /** Converts a raw file or block device to a qcow2 member of the same virtual size. */
  addRaw(
    _name: string,
    _srcPath: string,
    _virtualSizeBytes: number,
    _options?: MemberOptions,
  ): Promise<MemberRecord> {
    return Promise.reject(new VirtkeepError('internal'));
  }
  /** Writes the manifest and the end, syncs, and gives the file its name, never over an existing one. */
  finish(_options: FinishOptions): Promise<FinishedArchive> {
    return Promise.reject(new VirtkeepError('internal'));
  }
  /** Stops the threads and removes the partial file; harmless after finish and when repeated. */
  abort(): Promise<void> {
    return Promise.resolve();
  }
}
