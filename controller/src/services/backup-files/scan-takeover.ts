/**
 * Takes over what a scan has found. Most of it is as it was known, at every node's return: so a few dozen files are read at once, only what
 * is different is written, all of those in one transaction, and the event loop is shared in between. Meanwhile operations on these files
 * begin and end: what was told of a file since the scan began stays.
 */
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { shareLoop } from '@virtkeep/shared/turns';
import { isUniqueViolation, relaxedTransaction } from '../../store/dialect.ts';
import type { Database, FileRow } from '../../store/schema.ts';
import {
  besideOf,
  type FoundFile,
  foundFile,
  idOfFound,
  isInWork,
  isOther,
  KnownRows,
  possibleIds,
  type SeenFile,
  type Surroundings,
  seenFile,
} from './found-files.ts';
import { archiveIdOf, archiveIdOfRow } from './identity.ts';
import type { NewerReports, OpenScans } from './open-scans.ts';
import { detailsOf, type FileStatus } from './record.ts';
import { isDiskImage } from './usable.ts';

/** A transaction with so many keeps the loop for some milliseconds. */
const FILES_AT_ONCE = 50;
const ROWS_AT_ONCE = 500;
/** Statuses in which a scan may miss a file. */
export const SETTLED: readonly FileStatus[] = ['ACTIVE', 'DAMAGED', 'FAILED'];

/** What the owner of the records does. */
export interface Records {
  db: Database;
  /** Each change of a record is one turn under its id. */
  turns: KeyedQueue;
  scans: OpenScans;
  domainOf: (id: string) => Domain | undefined;
  fewerStates: (before: FileRow, states: number) => Promise<void>;
  /** Writes the row of a file, in its turn, and removes what else was at its place. */
  put: (file: SeenFile, newer: NewerReports | undefined) => Promise<void>;
  /** Tells of rows that were written. */
  written: (files: readonly SeenFile[]) => Promise<void>;
  /** Marks a file as MISSING, or forgets it, unless something newer was told of it. */
  missing: (row: MissedRow, newer: NewerReports) => Promise<void>;
  forget: (row: MissedRow, newer: NewerReports) => Promise<void>;
}

export type MissedRow = Pick<FileRow, 'id' | 'pool_id' | 'filename' | 'type' | 'protected'>;

export class ScanTakeover {
  readonly #records: Records;

  constructor(records: Records) {
    this.#records = records;
  }

  /**
   * One file, as it lies on its pool now.
   * @param newer what was told since it was looked at
   * @returns the id of its record
   */
  async one(
    file: BackupFile,
    by: Pick<Surroundings, 'sees' | 'beside'>,
    newer?: NewerReports,
  ): Promise<string> {
    const id = idOfFound(file, await this.#known([file]), by);
    await this.#records.turns.run(id, async () => {
      const seen = seenFile(file, { id, before: await this.#rowOf(id) }, this.#around(by));
      if (isInWork(seen.before) || newer?.has(seen.row)) return;
      await this.#reportLoss(seen);
      await this.#records.put(seen, newer);
    });
    return id;
  }

  /** @returns the ids of the records that these files have. */
  async found(
    files: readonly BackupFile[],
    sees: Surroundings['sees'],
    newer: NewerReports,
  ): Promise<Set<string>> {
    const beside = besideOf(files);
    const ids = new Set<string>();
    for (let at = 0; at < files.length; at += FILES_AT_ONCE) {
      await shareLoop();
      const some = files.slice(at, at + FILES_AT_ONCE);
      for (const id of await this.#some(some, { sees, beside }, newer)) ids.add(id);
    }
    return ids;
  }

  async #some(
    files: readonly BackupFile[],
    by: Pick<Surroundings, 'sees' | 'beside'>,
    newer: NewerReports,
  ): Promise<string[]> {
    const known = await this.#known(files);
    const removed = await this.#removed(files);
    const ids: string[] = [];
    const different: FoundFile[] = [];
    for (const file of files) {
      const found = foundFile(file, known, this.#around(by));
      ids.push(found.row.id);
      if (newer.has(found.row) || isInWork(found.before)) continue;
      if (!isOther(found) && !removed.has(archiveIdOfRow(found.row))) {
        // an older scan of another node may have looked while it was away
        this.#records.scans.note([found.row], newer);
        continue;
      }
      known.put(found.row);
      different.push(found);
    }
    if (different.length === 0) return ids;
    for (const file of await this.#write(different, by, newer)) ids.push(await this.one(file, by, newer));
    return ids;
  }

  /**
   * Writes those that are new at their place or have been there, in one transaction.
   * @returns the rest, in order: what takes the place of another or was moved is written one after the other
   */
  #write(
    different: readonly FoundFile[],
    by: Pick<Surroundings, 'sees' | 'beside'>,
    newer: NewerReports,
  ): Promise<BackupFile[]> {
    const turns = new Set(different.map(({ row }) => row.id));
    return this.#records.turns.runAll([...turns], async () => {
      // looked at again, since nobody else changes these records now
      const known = await this.#known(different.map(({ file }) => file));
      const inPlace: FoundFile[] = [];
      const rest: BackupFile[] = [];
      for (const { file } of different) {
        const found = foundFile(file, known, this.#around(by));
        if (rest.length > 0 || !found.isAtItsPlace || !turns.has(found.row.id)) {
          rest.push(file);
        } else if (!isInWork(found.before) && !newer.has(found.row)) {
          known.put(found.row);
          inPlace.push(found);
        }
      }
      for (const found of inPlace) await this.#reportLoss(found);
      try {
        await this.#putAll(inPlace, newer);
      } catch (error) {
        if (!isUniqueViolation(error)) throw error;
        // somebody has taken the place of one of them just now
        return [...inPlace.map(({ file }) => file), ...rest];
      }
      return rest;
    });
  }

  async #putAll(files: readonly FoundFile[], newer: NewerReports): Promise<void> {
    const { db, scans, written } = this.#records;
    if (files.length === 0) return;
    for (const { row } of files) scans.note([row], newer);
    const put = await relaxedTransaction(db, async trx => {
      // who else writes has said so before, or waits for this transaction
      const left = files.filter(({ row }) => !newer.has(row));
      if (left.length === 0) return left;
      const rows = left.map(({ row }) => row);
      const columns = (Object.keys(rows[0]!) as (keyof FileRow)[]).filter(column => column !== 'id');
      await trx
        .insertInto('files')
        .values(rows)
        .onConflict(conflict =>
          conflict
            .column('id')
            .doUpdateSet(eb =>
              Object.fromEntries(columns.map(column => [column, eb.ref(`excluded.${column}`)])),
            ),
        )
        .execute();
      await trx.deleteFrom('removed_archives').where('archive_id', 'in', rows.map(archiveIdOfRow)).execute();
      return left;
    });
    await written(put);
  }

  /**
   * Files of a pool that a scan has not found are MISSING; a disk image is forgotten. Busy ones are left to their operations.
   * @param found ids of those that it has found
   */
  async missed(poolId: string, found: ReadonlySet<string>, newer: NewerReports): Promise<void> {
    const { db, missing, forget } = this.#records;
    for (let last = { filename: '', id: '' }; ; ) {
      await shareLoop();
      const rows = await db
        .selectFrom('files')
        .select(['id', 'pool_id', 'filename', 'type', 'protected', 'status'])
        .where('pool_id', '=', poolId)
        .where(eb => eb(eb.refTuple('filename', 'id'), '>', eb.tuple(last.filename, last.id)))
        .orderBy('filename')
        .orderBy('id')
        .limit(ROWS_AT_ONCE)
        .execute();
      for (const row of rows) {
        if (found.has(row.id) || !SETTLED.includes(row.status as FileStatus)) continue;
        // a descriptor that came later may have it as a part of its own; it is no backup whose loss must be seen
        await (isDiskImage(row) && row.protected === 0 ? forget(row, newer) : missing(row, newer));
        await shareLoop();
      }
      if (rows.length < ROWS_AT_ONCE) return;
      last = rows.at(-1)!;
    }
  }

  #around(by: Pick<Surroundings, 'sees' | 'beside'>): Surroundings {
    return { ...by, domainOf: this.#records.domainOf, now: new Date().toISOString() };
  }

  #rowOf(id: string): Promise<FileRow | undefined> {
    return this.#records.db.selectFrom('files').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** The records that these files may belong to, and those at their places. */
  async #known(files: readonly BackupFile[]): Promise<KnownRows> {
    const { db } = this.#records;
    const ids = [...new Set(files.flatMap(possibleIds))];
    const byId = await db.selectFrom('files').selectAll().where('id', 'in', ids).execute();
    const have = new Set(byId.map(row => row.id));
    const names = [...new Set(files.map(({ filename }) => filename))];
    const pools = [...new Set(files.map(({ poolId }) => poolId))];
    const byPlace = await db
      .selectFrom('files')
      .selectAll()
      .where('pool_id', 'in', pools)
      .where('filename', 'in', names)
      .execute();
    return new KnownRows([...byId, ...byPlace.filter(row => !have.has(row.id))]);
  }

  /** Of their archives those that count as removed: one that is here again does not any more. */
  async #removed(files: readonly BackupFile[]): Promise<Set<string>> {
    const rows = await this.#records.db
      .selectFrom('removed_archives')
      .select('archive_id')
      .where('archive_id', 'in', [...new Set(files.map(archiveIdOf))])
      .execute();
    return new Set(rows.map(row => row.archive_id));
  }

  async #reportLoss({ before, file }: SeenFile): Promise<void> {
    if (before && hasFewerStates(before, file)) await this.#records.fewerStates(before, file.states.length);
  }
}

/** The same archive, whole, but ending with an earlier state; an operation that puts an earlier end back reports that itself. */
function hasFewerStates(before: FileRow, file: BackupFile): boolean {
  const isSame = file.type === 'tar' && file.damage === '' && archiveIdOfRow(before) === archiveIdOf(file);
  const [was, is] = [detailsOf(before).states.at(-1)?.number, file.states.at(-1)?.number];
  return isSame && before.status !== 'CREATING' && (is ?? 0) < (was ?? 0);
}
