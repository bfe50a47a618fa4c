import type { FileHandle } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { readAt } from '@virtkeep/shared/file-bytes';
import { MAX_MANIFEST_BYTES } from '../format/bounds.ts';
import { frameAt, type SeekTable } from '../format/seek-table.ts';
import type { ReadAt } from '../format/tar-format.ts';
import { Decompressor } from '../threads/codec.ts';
import { FaultError } from '../threads/fault.ts';

/** Largest frame of a foreign seekable file that is decompressed into memory; ours hold 4 MiB. */
const MAX_FRAME_BYTES = 32 * 1024 * 1024;

/** Random access to the bytes of the uncompressed tar, for the small reads of headers, XML and manifest. */
export interface TarSource {
  readonly tarBytes: number;
  /** At most `lengthBytes` from `offset`; fewer only at the end. */
  read(offset: number, lengthBytes: number): Promise<Buffer>;
  /** Offsets at which to begin looking for the manifest, the last member; nearest to the end first. */
  tailStarts(): number[];
}

/** How much of the tail of a plain tar is read first, then, and at most. */
const TAIL_BYTES = [64 * 1024, 512 * 1024, MAX_MANIFEST_BYTES + 64 * 1024];
/** Our last frames: the manifest's header, one to four of its content, the end of the archive. */
const TAIL_FRAMES = [3, 4, 5, 6];

/** The source as a walk reads it: a fired signal ends the walk. */
export function readerOf(source: TarSource, signal: AbortSignal): ReadAt {
  return async (offset, lengthBytes) => {
    throwIfAborted(signal);
    return await source.read(offset, lengthBytes);
  };
}

/** How much of the end of a file is read at once: seek table, manifest and XML of all but huge archives lie in it. */
const TAIL_CACHE_BYTES = 256 * 1024;

/** A file opened for reading. Its tail is read once and kept, so that opening an archive costs two reads. */
export class ArchiveFile {
  readonly handle: FileHandle;
  readonly path: string;
  readonly sizeBytes: number;
  /** Closes the file and gives back what it is held by; harmless when repeated. */
  readonly close: () => Promise<void>;
  #tail: Buffer | undefined;

  constructor(handle: FileHandle, path: string, sizeBytes: number, close: () => Promise<void>) {
    this.handle = handle;
    this.path = path;
    this.sizeBytes = sizeBytes;
    this.close = close;
  }

  /** Reads a range; fewer bytes only at the end of the file. @throws VirtkeepError io_failed */
  async read(offset: number, lengthBytes: number): Promise<Buffer> {
    const tailStart = Math.max(0, this.sizeBytes - TAIL_CACHE_BYTES);
    if (offset < tailStart) return await this.#readFromDisk(offset, lengthBytes);
    this.#tail ??= await this.#readFromDisk(tailStart, this.sizeBytes - tailStart);
    return this.#tail.subarray(offset - tailStart, offset - tailStart + lengthBytes);
  }

  async #readFromDisk(offset: number, lengthBytes: number): Promise<Buffer> {
    try {
      return await readAt(this.handle, offset, lengthBytes);
    } catch (error) {
      throw fromIoError(error, 'reading', this.path);
    }
  }
}

export class PlainSource implements TarSource {
  readonly tarBytes: number;
  readonly #file: ArchiveFile;

  constructor(file: ArchiveFile) {
    this.#file = file;
    this.tarBytes = file.sizeBytes;
  }

  read(offset: number, lengthBytes: number): Promise<Buffer> {
    const length = Math.max(0, Math.min(lengthBytes, this.tarBytes - offset));
    return this.#file.read(offset, length);
  }

  tailStarts(): number[] {
    return TAIL_BYTES.map(tailBytes => Math.max(0, this.tarBytes - tailBytes));
  }
}

/** A zstd file with a seek table: decompresses the frames a read touches and keeps the last one. */
export class SeekableSource implements TarSource {
  readonly tarBytes: number;
  readonly #file: ArchiveFile;
  readonly #table: SeekTable;
  readonly #decompressor = new Decompressor();
  #cached: { frame: number; bytes: Buffer } | undefined;

  constructor(file: ArchiveFile, table: SeekTable) {
    this.#file = file;
    this.#table = table;
    this.tarBytes = table.rawOffsets[table.frameCount]!;
  }

  async read(offset: number, lengthBytes: number): Promise<Buffer> {
    const end = Math.min(offset + lengthBytes, this.tarBytes);
    const pieces: Buffer[] = [];
    for (let at = offset; at < end; ) {
      const frame = frameAt(this.#table, at);
      const bytes = await this.#frame(frame);
      const start = this.#table.rawOffsets[frame]!;
      const piece = bytes.subarray(at - start, end - start);
      pieces.push(piece);
      at += piece.length;
    }
    return Buffer.concat(pieces);
  }

  /** By whole frames, so that damage of the data before the manifest does not hide it. */
  tailStarts(): number[] {
    const { frameCount, rawOffsets } = this.#table;
    return TAIL_FRAMES.filter(count => count <= frameCount).map(count => rawOffsets[frameCount - count]!);
  }

  async #frame(frame: number): Promise<Buffer> {
    if (this.#cached?.frame === frame) return this.#cached.bytes;
    const { fileOffsets, rawOffsets } = this.#table;
    const rawBytes = rawOffsets[frame + 1]! - rawOffsets[frame]!;
    const fileBytes = fileOffsets[frame + 1]! - fileOffsets[frame]!;
    if (rawBytes > MAX_FRAME_BYTES || fileBytes > MAX_FRAME_BYTES * 2)
      throw new VirtkeepError('archive_unsupported', {
        path: this.#file.path,
        reason: 'a zstd frame is too large',
      });
    const compressed = await this.#file.read(fileOffsets[frame]!, fileBytes);
    const bytes = Buffer.alloc(rawBytes);
    try {
      this.#decompressor.frame(bytes, compressed);
    } catch (error) {
      if (!(error instanceof FaultError)) throw error;
      throw new VirtkeepError('archive_damaged', { path: this.#file.path, reason: error.message });
    }
    this.#cached = { frame, bytes };
    return bytes;
  }
}

/** What was kept of a stream while it was read once: the beginnings of its members, by their data's offsets. */
export class HeadSource implements TarSource {
  readonly tarBytes = Number.MAX_SAFE_INTEGER;
  readonly #heads: ReadonlyMap<number, Uint8Array>;
  readonly #path: string;

  constructor(heads: ReadonlyMap<number, Uint8Array>, path: string) {
    this.#heads = heads;
    this.#path = path;
  }

  async read(offset: number, lengthBytes: number): Promise<Buffer> {
    if (lengthBytes === 0) return Buffer.alloc(0);
    const head = this.#heads.get(offset);
    if (head === undefined) {
      const reason = 'it holds too much to be read without a seek table: pack it anew, uncompressed';
      throw new VirtkeepError('archive_unsupported', { path: this.#path, reason });
    }
    return Buffer.from(head.subarray(0, lengthBytes));
  }

  tailStarts(): number[] {
    return [];
  }
}
