/**
 * The backup files that the controller knows. It is a cache of what lies on the pools, rebuilt by scanning them, plus the few things
 * that only the controller knows (protection, description, results of verifications). Losing it loses no backup.
 *
 * A file's life: CREATING → ACTIVE; ACTIVE → DELETING → gone; ACTIVE ⇄ MISSING as scans find it; ACTIVE ⇄ DAMAGED by
 * scan or verification; UPDATING while it is extended or converted. When an operation fails, its file is set right:
 * a file that was being created is removed from the list, any other file is what it was before. A busy file names its operation,
 * so that another operation, which is refused because the file is busy, does not set it right too early. What changes or removes
 * a file is refused while another operation reads it, and the other way round, on whichever nodes they run.
 */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { operationOfWork } from '../../store/dialect.ts';
import { countOf, countsBySecond } from '../../store/row-counts.ts';
import type { Database, FileRow } from '../../store/schema.ts';
import { FileUsers } from './file-users.ts';
import { type SeenFile, seenFile } from './found-files.ts';
import { archiveIdOf, archiveIdOfRow, recordIdOf } from './identity.ts';
import { type FileFilter, listFiles } from './list.ts';
import { type NewerReports, OpenScans } from './open-scans.ts';
import {
  detailsOf,
  FILE_STATUSES,
  type FileDetails,
  type FileProblem,
  type FileStatus,
  type FileWork,
  informationOf,
  NO_DETAILS,
  rememberedShow,
  UNVERIFIED,
} from './record.ts';
import { pointsOf, unpublishedPath } from './restore-points.ts';
import { ScanTakeover, SETTLED } from './scan-takeover.ts';
import { BUSY_STATUSES, isBusy } from './usable.ts';

export interface NewFile {
  id: string;
  /** Id of the task that makes it. */
  operation: string;
  poolId: string;
  domain: { id: string; name: string };
  description: string;
  protected: boolean;
  compressed: boolean;
}

export interface Verification {
  /** Nothing is wrong with what was read. */
  ok: boolean;
  problems: FileProblem[];
  verifiedAt: string;
  /** Members that were read and compared with nothing. */
  unprovenMembers: number;
  restorableStates: number[] | null;
}

const PRESENT = FILE_STATUSES.filter(status => status !== 'MISSING');

/** Waited for after the good restore points of these VMs may have changed. */
export type PointWatcher = (domainIds: ReadonlySet<string>) => Promise<void>;

export type FileListener = (id: string, action: 'created' | 'changed' | 'removed') => void;

/** What a scan has found on a pool. */
export interface ScannedFiles {
  files: readonly BackupFile[];
  /** What is not among them is not there. */
  isWhole: boolean;
}

export class BackupFiles {
  /** Reading a file's row and writing it again is one turn, for one caller at a time: a change in between would be lost. */
  readonly #turns = new KeyedQueue();
  readonly #users: FileUsers;
  readonly #scans = new OpenScans();
  readonly #takeover: ScanTakeover;
  readonly #db: Database;
  readonly #tell: FileListener;
  readonly #domainOf: (id: string) => Domain | undefined;
  #watcher: PointWatcher = async () => {};

  /**
   * @param domainOf the VM of this id, while a known node has it
   * @param fewerStates called with a file that has lost its newest states without an operation; a valid signature does not exclude that
   */
  constructor(
    db: Database,
    tell: FileListener,
    domainOf: (id: string) => Domain | undefined,
    fewerStates: (before: FileRow, states: number) => Promise<void> = async () => {},
  ) {
    this.#db = db;
    this.#users = new FileUsers(db);
    this.#tell = tell;
    this.#domainOf = domainOf;
    this.#takeover = new ScanTakeover({
      db,
      turns: this.#turns,
      scans: this.#scans,
      domainOf,
      fewerStates,
      put: (file, newer) => this.#put(file, newer),
      written: files => this.#written(files),
      missing: ({ id, ...place }, newer) => this.#missing(id, SETTLED, () => newer.has({ id, ...place })),
      forget: (row, newer) => this.#turns.run(row.id, () => this.#delete(row.id, newer)),
    });
  }

  /** Set once at start. */
  setPointWatcher(watcher: PointWatcher): void {
    this.#watcher = watcher;
  }

  find(id: string): Promise<FileRow | undefined> {
    return this.#db.selectFrom('files').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** @throws file_not_found. */
  async get(id: string): Promise<FileRow> {
    const row = await this.find(id);
    if (!row) throw new VirtkeepError('file_not_found', { id });
    return row;
  }

  list(filter: FileFilter): Promise<{ count: number; rows: FileRow[] }> {
    return listFiles(this.#db, filter);
  }

  /** Files of a pool that are not missing. */
  countOfPool(poolId: string): Promise<number> {
    return countOf(this.#db, 'files', PRESENT, poolId);
  }

  /** The same of all pools that have any. */
  countsOfPools(): Promise<Map<string, number>> {
    return countsBySecond(this.#db, 'files', PRESENT);
  }

  /** Creates the record of a backup before the start call, so that its description and protection hold. */
  async creating(file: NewFile): Promise<void> {
    const now = new Date().toISOString();
    await this.#db
      .insertInto('files')
      .values({
        id: file.id,
        pool_id: file.poolId,
        path: unpublishedPath(file.id),
        filename: '',
        verbose_name: file.domain.name,
        description: file.description,
        size: 0,
        status: 'CREATING',
        type: 'tar',
        compressed: Number(file.compressed),
        can_be_incremental: 0,
        protected: Number(file.protected),
        domain_id: file.domain.id,
        domain_name: file.domain.name,
        created: now,
        record_json: JSON.stringify({
          ...NO_DETAILS,
          work: { operation: file.operation, description: null, protected: null },
        }),
        modified: now,
      })
      .execute();
    this.#tell(file.id, 'created');
  }

  /**
   * A file as it lies on its pool now; a busy one is left to its operation.
   * @param sees whether the node that tells of it sees this pool
   * @returns the id of its record
   */
  seen(file: BackupFile, sees: (poolId: string) => boolean): Promise<string> {
    return this.#takeover.one(file, { sees, beside: new Map() });
  }

  /**
   * Records the file that an operation has created or changed. When the operation kept another file busy, that one is what it
   * was before; with `moved` (a conversion) it has become this file, or it is removed when this file is no copy of it. A file
   * that another operation keeps busy by now, because this one was given up, is left to that operation.
   * @returns the id of the file's record
   */
  async recordResult(file: BackupFile, operation: string, moved?: { from: string }): Promise<string> {
    const [held] = await this.#busyWith(operation);
    const source = moved && (held ?? (await this.find(moved.from)));
    const isSame = source && archiveIdOfRow(source) === archiveIdOf(file);
    const id = isSame ? source.id : await this.#identify(file);
    await this.#turns.run(id, async () => {
      const before = await this.find(id);
      if (isBusyForOther(before, operation)) return;
      const wished = held && (await this.#wishedFor(held, moved !== undefined));
      const seen = seenFile(
        file,
        { id, before },
        { domainOf: this.#domainOf, now: new Date().toISOString() },
      );
      await this.#put({ ...seen, row: { ...seen.row, ...wished } });
    });
    if (!held || held.id === id) return id;
    if (moved) await this.remove(held.id);
    else await this.operationFailed(held.id, operation);
    return id;
  }

  /**
   * What an operation's user asked for the file that results.
   * @param inherits that file takes the place of the one that was held: what was not asked for is as it is there by now
   */
  async #wishedFor(
    held: FileRow,
    inherits: boolean,
  ): Promise<Partial<Pick<FileRow, 'description' | 'protected'>>> {
    const { description, protected: keep } = detailsOf(held).work!;
    const former = inherits ? ((await this.find(held.id)) ?? held) : undefined;
    return {
      ...(former && { description: former.description, protected: former.protected }),
      ...(description !== null && { description }),
      ...(keep && { protected: 1 }),
    };
  }

  /**
   * Records the file that a backup has created or extended. When it was extended in another form, it has another place now. A
   * full backup in place of an increment is another file.
   * @param about the file that the backup was to create or to extend
   * @returns the id of the file's record
   */
  async backedUp(file: BackupFile, operation: string, about: string): Promise<string> {
    const row = await this.find(about);
    const goesOn = row !== undefined && archiveIdOfRow(row) === archiveIdOf(file);
    return this.recordResult(file, operation, goesOn ? { from: about } : undefined);
  }

  async #identify(file: BackupFile): Promise<string> {
    const atPlace = await this.#db
      .selectFrom('files')
      .selectAll()
      .where('pool_id', '=', file.poolId)
      .where('filename', '=', file.filename)
      .executeTakeFirst();
    const records = { atPlace, ofBackup: await this.find(archiveIdOf(file)) };
    // a file that is new at its place is no sign that the one elsewhere is gone: a scan of that pool finds this out
    return recordIdOf(file, records, () => false);
  }

  /**
   * Writes the row of a file as it lies on its pool. The row of another file at this place is removed. An archive that was
   * removed and is here again does not count as removed any more, whatever happens to this file later.
   * @param newer of the scan that tells of it: what was told since stays
   */
  async #put(seen: SeenFile, newer?: NewerReports): Promise<void> {
    const { before, row } = seen;
    const { id, ...columns } = row;
    this.#scans.note(before ? [before, row] : [row], newer);
    const replaced = await this.#db.transaction().execute(async trx => {
      // who else writes has noted it before, or waits for this transaction
      if (newer?.has(row)) return undefined;
      const others = await trx
        .deleteFrom('files')
        .where('pool_id', '=', row.pool_id)
        .where(eb => eb.or([eb('path', '=', row.path), eb('filename', '=', row.filename)]))
        .where('id', '!=', id)
        .returning('domain_id')
        .execute();
      await trx
        .insertInto('files')
        .values(row)
        .onConflict(conflict => conflict.column('id').doUpdateSet(columns))
        .execute();
      await trx.deleteFrom('removed_archives').where('archive_id', '=', archiveIdOfRow(row)).execute();
      return others;
    });
    if (replaced) await this.#written([seen], replaced);
  }

  async #written(
    files: readonly SeenFile[],
    replaced: readonly Pick<FileRow, 'domain_id'>[] = [],
  ): Promise<void> {
    for (const { before, row } of files)
      if (!before || isOtherRecord(before, row)) this.#tell(row.id, before ? 'changed' : 'created');
    const others = files.filter(({ before, row }) => !before || !hasSamePoint(before, row));
    await this.#pointsOf(...replaced, ...others.flatMap(({ before, row }) => [before, row]));
  }

  async #pointsOf(...rows: readonly (Pick<FileRow, 'domain_id'> | undefined)[]): Promise<void> {
    const ids = new Set(rows.flatMap(row => row?.domain_id ?? []));
    if (ids.size > 0) await this.#watcher(ids);
  }

  /** A scan is about to start: any report about a file from now on is newer than what the scan finds. */
  scanBegins(operation: string, poolId: string): void {
    this.#scans.begins(operation, poolId);
  }

  /** It could not be started: nothing comes of it. */
  scanRefused(operation: string): void {
    this.#scans.ends(operation);
  }

  /**
   * All that a scan found on a pool, as far as it could be told. A file that it did not find is MISSING (a disk image is forgotten), unless a report about it came after the scan began,
   * also while this takes its time; for a scan that somebody else started, such reports are not known. Busy files are left to their operations.
   */
  async scanned(
    poolId: string,
    { files, isWhole }: ScannedFiles,
    operation: string,
    sees: (poolId: string) => boolean,
  ): Promise<void> {
    const own = this.#scans.of(operation);
    const newer = own ?? this.#scans.begins(operation, poolId);
    try {
      const found = await this.#takeover.found(files, sees, newer);
      if (own && isWhole) await this.#takeover.missed(poolId, found, newer);
    } finally {
      this.#scans.ends(operation);
    }
  }

  /**
   * An operation begins to change or remove the file.
   * @throws file_busy when another operation changes, removes or reads it; file_protected when it takes of a protected one.
   */
  begin(id: string, status: 'UPDATING' | 'DELETING', work: FileWork): Promise<void> {
    return this.#turns.run(id, async () => {
      const row = await this.get(id);
      await this.#assertFree(row, work.removes === true);
      this.#scans.note([row]);
      await this.#setDetails(row, status, { ...detailsOf(row), work });
    });
  }

  /**
   * A task, which is on disk already, begins to read the file; it counts as a reader until it has an outcome.
   * @throws file_not_found, file_busy when something that runs changes or removes the file. An operation whose node is lost
   * does not count: a restore may be what its VM needs now, and the node that reads finds out what can be read.
   */
  read(id: string): Promise<void> {
    return this.#turns.run(id, () => this.#assertReadable(id));
  }

  /** The same for a download. @returns what ends it. @throws as `read`. */
  download(id: string): Promise<() => void> {
    return this.#turns.run(id, async () => {
      await this.#assertReadable(id);
      return this.#users.download(id);
    });
  }

  /** Ids of all that somebody reads: a restore, a verification, a copy, a download. */
  readNow(): Promise<ReadonlySet<string>> {
    return this.#users.read();
  }

  /** Whether a task deletes a file of this pool; of one whose node is lost nobody knows when it ends. */
  async isDeletedFrom(poolId: string): Promise<boolean> {
    const file = await this.#db
      .selectFrom('files')
      .innerJoin('tasks', join => join.on('tasks.id', '=', operationOfWork(this.#db)))
      .select('files.id')
      .where('files.status', '=', 'DELETING')
      .where('files.pool_id', '=', poolId)
      .where('tasks.status', '=', 'IN_PROGRESS')
      .limit(1)
      .executeTakeFirst();
    return file !== undefined;
  }

  /** All files of a VM, or on a pool. */
  filesOf(where: { domain: string } | { pool: string }): Promise<FileRow[]> {
    const query = this.#db.selectFrom('files').selectAll();
    return 'domain' in where
      ? query.where('domain_id', '=', where.domain).execute()
      : query.where('pool_id', '=', where.pool).execute();
  }

  async #assertReadable(id: string): Promise<void> {
    const row = await this.get(id);
    if (!isBusy(row)) return;
    const { work } = detailsOf(row);
    if (row.status !== 'UPDATING' || work === null || (await this.#users.isRunning(work.operation)))
      throw busy(row);
  }

  async #assertFree(row: FileRow, isToGo: boolean): Promise<void> {
    if (isBusy(row)) throw busy(row);
    if (isToGo && row.protected === 1) throw new VirtkeepError('file_protected', { file: row.filename });
    await this.#assertUnread(row);
  }

  async #assertUnread(row: FileRow): Promise<void> {
    const reader = await this.#users.readerOf(row.id);
    if (reader) throw new VirtkeepError('file_busy', { file: row.verbose_name, ...reader });
  }

  /** The file, when nothing uses it at all. @throws file_not_found, file_busy. */
  async unused(id: string): Promise<FileRow> {
    const row = await this.idle(id);
    await this.#assertUnread(row);
    return row;
  }

  /**
   * Releases the files of a task that was given up: those that it changes or removes are what they were before. A file that it
   * creates hinders nobody and stays until its node reports the outcome: the file may still come, and then has the protection
   * that was requested. A file that a task reads is held only while the task has no outcome. Idempotent.
   */
  async letGo(taskId: string): Promise<void> {
    for (const row of await this.#busyWith(taskId))
      if (row.status !== 'CREATING') await this.operationFailed(row.id, taskId);
  }

  /** The file, when nothing makes, changes or removes it. @throws file_not_found, file_busy. */
  async idle(id: string): Promise<FileRow> {
    const row = await this.get(id);
    if (row.status === 'MISSING') throw new VirtkeepError('file_not_found', { id });
    if (isBusy(row)) throw busy(row);
    return row;
  }

  /**
   * @param among the statuses in which a file can become MISSING: one that is busy meanwhile cannot
   * @param isLeft whether it stays as it is all the same
   */
  async #missing(
    id: string,
    among: readonly FileStatus[],
    isLeft: () => boolean = () => false,
  ): Promise<void> {
    const isDone = await this.#turns.run(id, async () => {
      if (isLeft()) return false;
      await this.#db
        .updateTable('files')
        .set({ status: 'MISSING', modified: new Date().toISOString() })
        .where('id', '=', id)
        .where('status', 'in', among)
        .execute();
      return true;
    });
    if (!isDone) return;
    this.#tell(id, 'changed');
    await this.#pointsOf(await this.find(id));
    await this.#protectCopies(id);
  }

  /** The file may have been moved, and its new place seen first: its protection goes with it. */
  async #protectCopies(id: string): Promise<void> {
    const row = await this.find(id);
    if (row?.protected !== 1 || row.domain_id === null) return;
    const others = await this.#db
      .selectFrom('files')
      .selectAll()
      .where('domain_id', '=', row.domain_id)
      .where('protected', '=', 0)
      .execute();
    for (const other of others) {
      if (archiveIdOfRow(other) !== archiveIdOfRow(row)) continue;
      // what is on its way out was chosen by its user
      await this.update(other.id, { protected: 1 }).catch(error => {
        if (!hasKey(error, 'file_busy')) throw error;
      });
    }
  }

  /** @throws file_busy when it is to be protected while an operation takes of it. */
  async update(id: string, columns: Partial<Pick<FileRow, 'description' | 'protected'>>): Promise<void> {
    const modified = new Date().toISOString();
    await this.#turns.run(id, async () => {
      const row = columns.protected === 1 ? await this.find(id) : undefined;
      if (row && isBusy(row) && detailsOf(row).work?.removes) throw busy(row);
      await this.#db
        .updateTable('files')
        .set({ ...columns, modified })
        .where('id', '=', id)
        .execute();
    });
    this.#tell(id, 'changed');
  }

  /** What a verification found. A file that is busy meanwhile keeps its status. */
  verified(id: string, found: Verification): Promise<void> {
    return this.#change(id, async (row, details) => {
      const problems = found.problems.map(problem => `${problem.member}: ${problem.reason}`).join('; ');
      const settled = found.ok ? 'ACTIVE' : 'DAMAGED';
      await this.#setDetails(row, isBusy(row) ? (row.status as FileStatus) : settled, {
        ...details,
        failed_verification: !found.ok,
        damage: found.ok ? '' : problems || 'the verification failed',
        hash_sum: {
          ...UNVERIFIED,
          ...details.hash_sum,
          verified_at: found.verifiedAt,
          ok: found.ok && found.unprovenMembers > 0 ? null : found.ok,
          problems: found.problems,
          restorable_states: found.restorableStates,
        },
      });
    });
  }

  /** Keeps what was read of the configuration that the file would restore. */
  async informed(id: string, shown: ShowBackupResponse): Promise<void> {
    if (!shown.configuration) return;
    const information = informationOf(shown.configuration);
    await this.#change(id, async (row, details) => {
      const informed = { ...details, information, shown: rememberedShow(shown) };
      if (JSON.stringify(informed) !== row.record_json)
        await this.#setDetails(row, row.status as FileStatus, informed);
    });
  }

  remove(id: string): Promise<void> {
    return this.#turns.run(id, () => this.#delete(id));
  }

  /** Removes the record of a file that is out of reach. @throws file_not_found; file_busy, file_protected: as an operation that removes it */
  forget(id: string): Promise<void> {
    return this.#turns.run(id, async () => {
      await this.#assertFree(await this.get(id), true);
      await this.#delete(id);
    });
  }

  /** An operation on the file has failed: a file that was being created is removed from the list, any other is what it was before. */
  operationFailed(id: string, operation: string): Promise<void> {
    return this.#change(id, async (row, details) => {
      if (row.status === 'CREATING') return this.#delete(id);
      if (!isBusy(row)) return;
      if (details.work !== null && details.work.operation !== operation) return;
      this.#scans.note([row]);
      await this.#setDetails(row, details.damage === '' ? 'ACTIVE' : 'DAMAGED', { ...details, work: null });
    });
  }

  /** Files that an operation creates, changes or removes. */
  busyFiles(): Promise<FileRow[]> {
    return this.#db.selectFrom('files').selectAll().where('status', 'in', BUSY_STATUSES).execute();
  }

  /** Those that tasks of this node keep busy, and those of which an earlier version has not written down which task does. */
  busyOn(nodeId: string): Promise<FileRow[]> {
    return this.#db
      .selectFrom('files')
      .leftJoin('tasks', join => join.on('tasks.id', '=', operationOfWork(this.#db)))
      .selectAll('files')
      .where('files.status', 'in', BUSY_STATUSES)
      .where(eb => eb.or([eb('tasks.node_id', '=', nodeId), eb(operationOfWork(this.#db), 'is', null)]))
      .execute();
  }

  /** Those that this operation keeps busy. */
  #busyWith(operation: string): Promise<FileRow[]> {
    return this.#db
      .selectFrom('files')
      .selectAll()
      .where(operationOfWork(this.#db), '=', operation)
      .where('status', 'in', BUSY_STATUSES)
      .execute();
  }

  /** A pool has come to its first node, or has left its last one: its files count again, or no more. */
  async pointsOnPool(poolId: string): Promise<void> {
    const query = this.#db.selectFrom('files').select('domain_id').distinct();
    await this.#pointsOf(...(await query.where('pool_id', '=', poolId).execute()));
  }

  /** No node has these pools any more. */
  async poolsGone(poolIds: string[]): Promise<void> {
    if (poolIds.length === 0) return;
    const rows = await this.#db
      .selectFrom('files')
      .select('id')
      .where('pool_id', 'in', poolIds)
      .where('status', '!=', 'MISSING')
      .execute();
    for (const { id } of rows) await this.#missing(id, FILE_STATUSES);
  }

  /** Changes the row of a file, when there is one, in a turn of its own. */
  #change(id: string, work: (row: FileRow, details: FileDetails) => Promise<void>): Promise<void> {
    return this.#turns.run(id, async () => {
      const row = await this.find(id);
      if (row) await work(row, detailsOf(row));
    });
  }

  async #setDetails(row: FileRow, status: FileStatus, details: FileDetails): Promise<void> {
    const modified = new Date().toISOString();
    await this.#db
      .updateTable('files')
      .set({
        status,
        record_json: JSON.stringify(details),
        ...pointsOf(row, details),
        modified,
      })
      .where('id', '=', row.id)
      .execute();
    this.#tell(row.id, 'changed');
    await this.#pointsOf(row);
  }

  /** @param newer of the scan that has not found it: what was told since stays */
  async #delete(id: string, newer?: NewerReports): Promise<void> {
    const row = await this.find(id);
    if (row === undefined || newer?.has(row)) return;
    this.#scans.note([row], newer);
    await this.#db.deleteFrom('files').where('id', '=', id).execute();
    this.#tell(id, 'removed');
    await this.#pointsOf(row);
  }
}

function isBusyForOther(row: FileRow | undefined, operation: string): boolean {
  if (row?.status !== 'UPDATING' && row?.status !== 'DELETING') return false;
  const { work } = detailsOf(row);
  return work !== null && work.operation !== operation;
}

function isOtherRecord(before: FileRow, after: FileRow): boolean {
  const fields = ['record_json', 'status', 'description', 'protected'] as const;
  return fields.some(field => before[field] !== after[field]);
}

function hasSamePoint(before: FileRow, after: FileRow): boolean {
  const fields = ['domain_id', 'status', 'newest_point', 'newest_whole_point'] as const;
  return fields.every(field => before[field] === after[field]);
}

/** The refusal of a second operation on a busy file. */
export function busy(row: FileRow): VirtkeepError {
  const kind = { CREATING: 'backup', DELETING: 'delete_backup' }[row.status] ?? 'update';
  const operation = detailsOf(row).work?.operation ?? row.id;
  return new VirtkeepError('file_busy', { file: row.verbose_name, operation, kind });
}
