/** What the node keeps of uploads in its durable settings: each stands there before anything of it is on a pool. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { OwnFile } from '../../../images/index.ts';
import type { Settings } from '../../../pools/index.ts';
import type { Idle } from './idle.ts';

export interface UploadRecord {
  id: string;
  /** Who sends it. */
  owner: string;
  poolId: string;
  poolPath: string;
  /** Relative to `backups/`. */
  filename: string;
  path: string;
  /** What is written to, and what proves that it is ours. */
  partial: OwnFile;
  /** The random name under which that was made; empty: not yet. */
  claim: string;
  /** Its directory was not there. */
  madeDirectory: boolean;
  /** null: not known yet. */
  sizeBytes: number | null;
  /** Of the whole file, as announced; once it was compared, as it is. Empty: not announced. */
  sha256: string;
  /** It was compared: from here on the file may have its name. */
  isVerified: boolean;
  /** On the disk, as far as was told to anybody. */
  durableBytes: number;
  isOneWrite: boolean;
  idle: Idle;
  isDone: boolean;
  /** Nobody may go on with it; what has come goes as soon as it can be reached. */
  isGivenUp: boolean;
}

const KEY = 'uploads';

/** The records, by id; all changes are on the disk when they return. */
export class UploadRecords {
  readonly #settings: Settings;
  readonly #records: Map<string, UploadRecord>;

  constructor(settings: Settings) {
    this.#settings = settings;
    const stored = settings.get(KEY);
    const records = Array.isArray(stored) ? (stored as UploadRecord[]) : [];
    this.#records = new Map(records.map(record => [record.id, record]));
  }

  all(): UploadRecord[] {
    return [...this.#records.values()];
  }

  find(id: string): UploadRecord | undefined {
    return this.#records.get(id);
  }

  /** @throws VirtkeepError journal_failed; then it is as before */
  put(record: UploadRecord): void {
    this.#store([...this.all().filter(({ id }) => id !== record.id), record]);
    this.#records.set(record.id, record);
  }

  /** @throws VirtkeepError journal_failed; upload_not_found: then nothing is changed */
  change(id: string, change: Partial<UploadRecord>): UploadRecord {
    const record = this.#records.get(id);
    if (!record) throw new VirtkeepError('upload_not_found', { id });
    const changed = { ...record, ...change };
    this.#store(this.all().map(record => (record.id === id ? changed : record)));
    this.#records.set(id, changed);
    return changed;
  }

  /** @throws VirtkeepError journal_failed; then it is there still */
  remove(id: string): void {
    this.#store(this.all().filter(record => record.id !== id));
    this.#records.delete(id);
  }

  #store(records: UploadRecord[]): void {
    this.#settings.set(KEY, records);
  }
}
