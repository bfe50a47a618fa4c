/** The uploads of this node: which there are, what runs for each, and when one is given up. */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { Logger } from '@virtkeep/shared/log';
import { PathGate, type PoolRecord, readablePool, type Settings } from '../../../pools/index.ts';
import type { Workflow } from '../../context.ts';
import { idleAt, idleMsAt, type Moment, steadyNow } from './idle.ts';
import { makePartial, newUploadPlace, removePartial } from './place.ts';
import { MAX_UPLOAD_BYTES, type Part, Receiver } from './receiver.ts';
import { type UploadRecord, UploadRecords } from './record.ts';
import { type LookAtFile, uploadFile } from './upload-file.ts';

export interface UploadsDependencies {
  settings: Settings;
  pools(signal: AbortSignal): Promise<PoolRecord[]>;
  nodeName: string;
  filesChanged(poolId: string): void;
  look: LookAtFile;
  log: Logger;
  /** An upload without a byte for so long is given up. */
  expiryMs: number;
  now?: () => Moment;
}

export interface NewUpload {
  id: string;
  owner: string;
  poolId: string;
  filename: string;
  /** undefined: not known. */
  sizeBytes: number | undefined;
  sha256: string;
  isOneWrite: boolean;
}

/** An upload and the operation that runs for it. */
interface Live {
  operationId: string;
  receiver: Receiver;
}

/** Uploads that have not ended, in all and of one owner. */
const MAX_OPEN = 100;
const MAX_OPEN_OF_OWNER = 50;
/** Of those that are done so many are remembered, for who lost the answer. */
const MAX_DONE = 100;
/** So often the idle time is written down, for a node that is stopped again and again. */
const NOTED_MS = 600_000;
const RETRY_S = 60;
const POOLS_MS = 30_000;

export class Uploads {
  readonly #dependencies: UploadsDependencies;
  readonly #records: UploadRecords;
  readonly #live = new Map<string, Live>();
  readonly #gate = new PathGate();
  /** By id: whoever makes, goes on with or removes an upload is alone with it. */
  readonly turns = new KeyedQueue();
  readonly #now: () => Moment;

  constructor(dependencies: UploadsDependencies) {
    this.#dependencies = dependencies;
    this.#records = new UploadRecords(dependencies.settings);
    this.#now = dependencies.now ?? steadyNow;
  }

  /** @throws VirtkeepError upload_not_found */
  get(id: string): UploadRecord {
    const record = this.#records.find(id);
    if (!record || record.isGivenUp) throw new VirtkeepError('upload_not_found', { id });
    return record;
  }

  /** The operation that runs for it; undefined when none does. */
  operationOf(id: string): string | undefined {
    return this.#live.get(id)?.operationId;
  }

  /** ms until it is given up when no byte comes. */
  expiresInMs({ idle }: UploadRecord): number {
    return Math.max(0, this.#dependencies.expiryMs - idleMsAt(idle, this.#now()));
  }

  /**
   * Makes the file of a new upload, in a turn of its id; of one that was made already it is that one.
   * @throws VirtkeepError as `newUploadPlace` and `makePartial`; too_many_requests, body_too_large
   */
  async create(upload: NewUpload, signal: AbortSignal): Promise<UploadRecord> {
    const { id, owner, poolId, sizeBytes = 0, sha256, isOneWrite } = upload;
    if (sizeBytes > MAX_UPLOAD_BYTES)
      throw new VirtkeepError('body_too_large', { limit_bytes: MAX_UPLOAD_BYTES });
    const known = this.#records.find(id);
    if (known?.partial.made !== undefined) return this.get(id);
    // the agent was stopped before there was a file
    if (known) await this.#discard(id);
    this.#requirePlace(owner);
    const pools = await this.#dependencies.pools(signal);
    const promised = this.#stillToCome(poolId);
    const wanted = { poolId, filename: upload.filename, sizeBytes: sizeBytes + promised };
    const { nodeName } = this.#dependencies;
    const place = await newUploadPlace(pools, wanted, { nodeName, gate: this.#gate });
    this.#requirePlace(owner);
    await makePartial(this.#records, {
      id,
      owner,
      poolId,
      poolPath: place.pool.path,
      filename: place.filename,
      path: place.path,
      partial: { type: 'file', path: place.partial },
      claim: '',
      madeDirectory: false,
      sizeBytes: upload.sizeBytes ?? null,
      sha256,
      isVerified: false,
      durableBytes: 0,
      isOneWrite,
      idle: { ...this.#now(), idleMs: 0 },
      isDone: false,
      isGivenUp: false,
    });
    return this.get(id);
  }

  /** The workflow that ends the upload; who asks for it starts it, or calls `giveUp`. */
  workflow(id: string, operationId: string): Workflow {
    const receiver = new Receiver(this.get(id), this.#records, this.#now);
    this.#live.set(id, { operationId, receiver });
    const run = uploadFile({
      id,
      records: this.#records,
      receiver,
      discard: () => this.#abandon(id),
      filesChanged: this.#dependencies.filesChanged,
      look: this.#dependencies.look,
    });
    return async context => {
      try {
        await run(context);
      } finally {
        this.giveUp(id, operationId);
      }
    };
  }

  /** Its operation does not run any more, or was not started. */
  giveUp(id: string, operationId: string): void {
    if (this.operationOf(id) === operationId) this.#live.delete(id);
  }

  /**
   * Takes bytes. When they break off, those of an upload in one go are given up.
   * @returns whether all has come now
   * @throws VirtkeepError upload_not_found, upload_busy, and as `Receiver.take`
   */
  async take(id: string, part: Part, signal: AbortSignal): Promise<boolean> {
    const { isOneWrite, isDone } = this.get(id);
    const live = this.#live.get(id);
    if (isDone && !live) return true;
    if (!live) throw new VirtkeepError('upload_busy', { id });
    try {
      await live.receiver.take(part, signal);
    } catch (error) {
      if (isOneWrite && !hasKey(error, 'upload_busy')) live.receiver.end(asFailure(error));
      throw error;
    }
    const { sizeBytes, durableBytes } = this.get(id);
    return sizeBytes === durableBytes;
  }

  /**
   * Removes one for which no operation runs, in a turn of its id. A file that has its name already stays: it is whole, and others may use it.
   * @throws VirtkeepError as `removePartial` and `readablePool`: then it is given up, and goes later; upload_not_found, upload_busy
   */
  async remove(id: string): Promise<void> {
    const record = this.get(id);
    if (this.#live.has(id)) throw new VirtkeepError('upload_busy', { id });
    if (record.isDone) return this.#records.remove(id);
    this.#records.change(id, { isGivenUp: true });
    await this.#discard(id);
  }

  /** Ends those that had no byte for too long, and what was sent in one go to an agent that was stopped. What cannot be removed now is tried again. */
  async sweep(signal: AbortSignal): Promise<void> {
    for (const record of this.#records.all()) {
      if (signal.aborted) return;
      await this.turns
        .run(record.id, () => this.#look(record.id))
        .catch((error: unknown) =>
          this.#dependencies.log.warn('an upload that is over could not be removed yet', {
            upload: record.id,
            error,
          }),
        );
    }
  }

  /** Lets the operations end, for a stop of the agent: what has come stays. */
  pause(): void {
    for (const { receiver } of this.#live.values()) receiver.end(new VirtkeepError('interrupted'));
  }

  async #look(id: string): Promise<void> {
    const record = this.#records.find(id);
    if (!record) return;
    const { idle, isOneWrite, isDone, isGivenUp } = record;
    const live = this.#live.get(id);
    if (isGivenUp && !live) return this.#discard(id);
    if (live?.receiver.isBusy) return;
    const idleMs = idleMsAt(idle, this.#now());
    const isLeft = isOneWrite && !isDone && !live;
    if (idleMs < this.#dependencies.expiryMs && !isLeft) {
      const notedMs = idle.bootId === this.#now().bootId ? idle.idleMs : -NOTED_MS;
      if (idleMs - notedMs >= NOTED_MS) this.#records.change(id, { idle: idleAt(idle, this.#now()) });
      return;
    }
    // its operation removes it
    if (live) live.receiver.end(new VirtkeepError('upload_not_found', { id }));
    else await this.remove(id);
  }

  /** What is in the way now is tried again by `sweep`. */
  async #abandon(id: string): Promise<void> {
    this.#records.change(id, { isGivenUp: true });
    await this.#discard(id).catch((error: unknown) =>
      this.#dependencies.log.warn('an upload that is over could not be removed yet', { upload: id, error }),
    );
  }

  /** While its pool is not mounted nothing is there to be removed, but will be. @throws VirtkeepError as `removePartial` and `readablePool` */
  async #discard(id: string): Promise<void> {
    const record = this.#records.find(id)!;
    const pools = await this.#dependencies.pools(AbortSignal.timeout(POOLS_MS));
    readablePool(pools, record.poolId, this.#dependencies.nodeName);
    await removePartial(this.#records, record);
  }

  /** Bytes for which there must be room in a pool. */
  #stillToCome(poolId: string): number {
    const open = this.#records.all().filter(record => record.poolId === poolId && !record.isDone);
    return open.reduce(
      (sum, { sizeBytes, durableBytes }) => sum + Math.max(0, (sizeBytes ?? 0) - durableBytes),
      0,
    );
  }

  #requirePlace(owner: string): void {
    const all = this.#records.all();
    const open = all.filter(({ isDone, isGivenUp }) => !isDone && !isGivenUp);
    const own = open.filter(record => record.owner === owner);
    if (open.length >= MAX_OPEN || own.length >= MAX_OPEN_OF_OWNER)
      throw new VirtkeepError('too_many_requests', { seconds: RETRY_S });
    const done = all.filter(({ isDone }) => isDone);
    for (const { id } of done.slice(0, Math.max(0, done.length - MAX_DONE + 1))) this.#records.remove(id);
  }
}

const asFailure = (error: unknown): VirtkeepError =>
  error instanceof VirtkeepError
    ? error
    : new VirtkeepError('bad_request', { reason: 'the body broke off' }, { cause: error });
