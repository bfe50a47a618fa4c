/**
 * What comes in of one upload, while the agent runs: bytes go into its hidden file and through SHA-256. What is told to anybody as having
 * come is on the disk and in the record, so a stop of anything at any moment takes nothing of it back.
 */
import { createHash, type Hash, timingSafeEqual } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { orAborted, throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { readAt } from '@virtkeep/shared/file-bytes';
import { GiB, MiB } from '@virtkeep/shared/units';
import { openUnfinished, syncUnfinished, writeUnfinished } from '../unfinished.ts';
import { type Moment, steadyNow } from './idle.ts';
import type { UploadRecord, UploadRecords } from './record.ts';

/** Larger than any backup. */
export const MAX_UPLOAD_BYTES = 64 * 1024 * GiB;
/** So much, or so long, may come before it is made durable. */
const SYNC_BYTES = 64 * MiB;
const SYNC_MS = 5_000;
const READ_BYTES = MiB;

/** A part that somebody sends. */
export interface Part {
  offset: number;
  /** Of this part. */
  checksum?: { algorithm: 'sha256' | 'sha1'; digest: Uint8Array };
  /** It is the last one, also where the size was not known. */
  last: boolean;
  bytes: AsyncIterator<Uint8Array>;
}

/** The hash of all bytes up to a position, as far as this run of the agent has seen them all. */
interface Seen {
  hash: Hash;
  bytes: number;
}

export class Receiver {
  readonly #id: string;
  readonly #records: UploadRecords;
  readonly #now: () => Moment;
  readonly #whole = Promise.withResolvers<void>();
  readonly #ended = new AbortController();
  #file: FileHandle | undefined;
  #seen: Seen = { hash: createHash('sha256'), bytes: 0 };
  #position: number;
  #syncedMs = performance.now();
  #writing = false;
  #isWhole = false;
  /** What has come since the last time could not be made durable: the system tells that once, and would call it durable the next time. */
  #isInDoubt = false;
  /** Told of each byte that came. */
  progressed: (bytes: number) => void = () => {};

  constructor(record: UploadRecord, records: UploadRecords, now: () => Moment = steadyNow) {
    this.#id = record.id;
    this.#records = records;
    this.#now = now;
    this.#position = record.durableBytes;
    // nobody need wait for it
    this.#whole.promise.catch(() => {});
    if (record.sizeBytes === record.durableBytes) this.#complete();
  }

  /** All has come. Rejects with the reason of `end`. */
  get whole(): Promise<void> {
    return this.#whole.promise;
  }

  /** Somebody sends, or all has come and is looked at. */
  get isBusy(): boolean {
    return this.#writing || this.#isWhole;
  }

  get #record(): UploadRecord {
    return this.#records.find(this.#id)!;
  }

  /** Takes no more, and stops who sends. */
  end(reason: VirtkeepError): void {
    this.#ended.abort(reason);
    this.#whole.reject(reason);
  }

  /** Closes the file, when nobody writes it any more. */
  async close(): Promise<void> {
    this.end(new VirtkeepError('interrupted'));
    while (this.#writing) await new Promise(resolve => setImmediate(resolve));
    await this.#file?.close();
    this.#file = undefined;
  }

  /**
   * Takes a part. What came before it broke off stays, unless it has a checksum.
   * @throws VirtkeepError upload_busy, upload_offset, upload_checksum, bad_request for too many or too few bytes, body_too_large,
   *   disk_full, io_failed, journal_failed, canceled; what the bytes throw
   */
  async take(part: Part, signal: AbortSignal): Promise<void> {
    throwIfAborted(this.#ended.signal);
    if (this.#writing) throw new VirtkeepError('upload_busy', { id: this.#id });
    this.#writing = true;
    try {
      // less may be there than was told: that is what counts
      if (!this.#isWhole) await this.#open();
      const { durableBytes: offset } = this.#record;
      if (part.offset !== offset)
        throw new VirtkeepError('upload_offset', { id: this.#id, offset, given: part.offset });
      if (this.#isWhole) return;
      await this.#takeAlone(part, AbortSignal.any([signal, this.#ended.signal]));
    } finally {
      this.#writing = false;
    }
  }

  async #takeAlone(part: Part, signal: AbortSignal): Promise<void> {
    const file = await this.#open();
    const before: Seen = { hash: this.#seen.hash.copy(), bytes: this.#seen.bytes };
    try {
      await this.#copy(file, part, signal);
      await this.#keep(file);
    } catch (error) {
      // where even that fails it is opened anew, which cuts it off as well
      await this.#breakOff(file, before, part.checksum !== undefined).catch(() => this.#letGo());
      throw error;
    }
    const { sizeBytes, durableBytes } = this.#record;
    if (part.last && sizeBytes !== null && sizeBytes !== durableBytes)
      throw new VirtkeepError('bad_request', { reason: 'less came than was announced' });
    if (part.last && sizeBytes === null) this.#records.change(this.#id, { sizeBytes: durableBytes });
    if (this.#record.sizeBytes === durableBytes) this.#complete();
  }

  async #copy(file: FileHandle, { bytes, checksum }: Part, signal: AbortSignal): Promise<void> {
    const hash = checksum && createHash(checksum.algorithm);
    for (;;) {
      const next = await orAborted(bytes.next(), signal);
      if (next.done) break;
      await this.#write(file, next.value);
      hash?.update(next.value);
      if (!hash && this.#isDue()) await this.#keep(file);
    }
    throwIfAborted(signal);
    if (checksum && !isSame(hash!.digest(), checksum.digest))
      throw new VirtkeepError('upload_checksum', { algorithm: checksum.algorithm });
  }

  async #write(file: FileHandle, data: Uint8Array): Promise<void> {
    const { sizeBytes, path } = this.#record;
    const end = this.#position + data.length;
    if (sizeBytes !== null && end > sizeBytes)
      throw new VirtkeepError('bad_request', { reason: 'more came than was announced' });
    if (end > MAX_UPLOAD_BYTES) throw new VirtkeepError('body_too_large', { limit_bytes: MAX_UPLOAD_BYTES });
    await writeUnfinished(file, path, data, this.#position);
    if (this.#seen.bytes === this.#position) {
      this.#seen.hash.update(data);
      this.#seen.bytes = end;
    }
    this.#position = end;
    this.progressed(end);
  }

  #isDue(): boolean {
    const waiting = this.#position - this.#record.durableBytes;
    return waiting >= SYNC_BYTES || performance.now() - this.#syncedMs >= SYNC_MS;
  }

  /** From here on it has come. */
  async #keep(file: FileHandle): Promise<void> {
    this.#isInDoubt = true;
    await syncUnfinished(file, this.#record.path);
    this.#isInDoubt = false;
    this.#records.change(this.#id, {
      durableBytes: this.#position,
      idle: { ...this.#now(), idleMs: 0 },
    });
    this.#syncedMs = performance.now();
  }

  /** What came stays where it can; what does not is cut off, so that a full disk has room again. */
  async #breakOff(file: FileHandle, before: Seen, mustGo: boolean): Promise<void> {
    if (!mustGo && !this.#isInDoubt) {
      const isKept = await this.#keep(file).then(
        () => true,
        () => false,
      );
      if (isKept) return;
    }
    const { durableBytes } = this.#record;
    this.#position = durableBytes;
    if (before.bytes <= durableBytes) this.#seen = before;
    await file.truncate(durableBytes);
    this.#isInDoubt = false;
  }

  async #letGo(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close().catch(() => {});
  }

  async #open(): Promise<FileHandle> {
    if (this.#file) return this.#file;
    const { partial, durableBytes } = this.#record;
    const file = await openUnfinished({ path: partial.path, mark: partial.made! });
    try {
      const { size } = await file.stat();
      // less is there than was on the disk once: the device lost it
      if (size < durableBytes) this.#records.change(this.#id, { durableBytes: size });
      else await file.truncate(durableBytes);
      this.#position = Math.min(size, durableBytes);
      this.#isInDoubt = false;
    } catch (error) {
      await file.close();
      throw error;
    }
    this.#file = file;
    return file;
  }

  #complete(): void {
    this.#isWhole = true;
    this.#whole.resolve();
  }

  /**
   * SHA-256 of the whole file, lower-case hex. What this run of the agent has not seen is read again.
   * @throws VirtkeepError io_failed, canceled
   */
  async sha256(signal: AbortSignal, progressed: (bytes: number) => void): Promise<string> {
    const file = await this.#open();
    const { sizeBytes } = this.#record;
    const { hash, bytes } = this.#seen;
    for (let at = bytes; at < sizeBytes!; ) {
      throwIfAborted(signal);
      const data = await readAt(file, at, Math.min(READ_BYTES, sizeBytes! - at));
      if (data.length === 0)
        throw new VirtkeepError('io_failed', {
          operation: 'reading',
          path: this.#record.partial.path,
          reason: 'it became shorter',
        });
      hash.update(data);
      at += data.length;
      progressed(at);
    }
    this.#seen = { hash: hash.copy(), bytes: sizeBytes! };
    return hash.digest('hex');
  }
}

const isSame = (a: Buffer, b: Uint8Array): boolean => a.length === b.length && timingSafeEqual(a, b);
