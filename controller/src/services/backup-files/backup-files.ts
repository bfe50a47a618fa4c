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
import type { Database, FileRow } from '../../store/schema.ts';
import { FileUsers } from './file-users.ts';
import { archiveIdOf, archiveIdOfRow, recordIdOf } from './identity.ts';
import { type FileFilter, listFiles } from './list.ts';
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
  rowOfFile,
  UNVERIFIED,
} from './record.ts';
import { pointsOf, unpublishedPath } from './restore-points.ts';
import { BUSY_STATUSES, isBusy, isDiskImage } from './usable.ts';

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
  ok: boolean;
  problems: FileProblem[];
  verifiedAt: string;
  hashed: boolean;
  restorableStates: number[] | null;
}

/** Scans whose results are still to come. A scan that is forgotten marks no file as MISSING. */
const MAX_SCANS = 1000;
/** Statuses in which a scan may miss a file. */
const SETTLED: readonly FileStatus[] = ['ACTIVE', 'DAMAGED', 'FAILED'];

/** Waited for after the good restore points of these VMs may have changed. */
export type PointWatcher = (domainIds: ReadonlySet<string>) => Promise<void>;

export type FileListener = (id: string, action: 'created' | 'changed' | 'removed') => void;

export class BackupFiles {
  /** Reading a file's row and writing it again is one turn, for one caller at a time: a change in between would be lost. */
  readonly #turns = new KeyedQueue();
  readonly #users: FileUsers;
  /** Operations of scans that are under way, and the files that were reported since each began. */
  readonly #scans = new Map<string, Set<string>>();
  readonly #db: Database;
  readonly #tell: FileListener;
  readonly #domainOf: (id: string) => Domain | undefined;
  readonly #fewerStates: (before: FileRow, states: number) => Promise<void>;
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
    this.#fewerStates = fewerStates;
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

  /** Files of a pool, all of them, and how many are backups in use of the pool. */
  async countOfPool(poolId: string): Promise<number> {
    const row = await this.#db
      .selectFrom('files')
      .select(({ fn }) => fn.countAll<number>().as('number'))
      .where('pool_id', '=', poolId)
      .where('status', '!=', 'MISSING')
      .executeTakeFirstOrThrow();
    return Number(row.number);
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
   * @param beside what was seen with it
   * @returns the id of its record
   */
  async seen(
    file: BackupFile,
    sees: (poolId: string) => boolean,
    beside: readonly BackupFile[] = [],
  ): Promise<string> {
    const id = await this.#identify(file, sees, beside);
    await this.#turns.run(id, async () => {
      const before = await this.find(id);
      if (before && ['DELETING', 'UPDATING'].includes(before.status)) return;
      if (before && hasFewerStates(before, file)) await this.#fewerStates(before, file.states.length);
      await this.#put({ ...file, id }, before);
    });
    return id;
  }

  /**
   * Records the file that an operation has created or changed. When the operation kept another file busy, that one is what it
   * was before; with `moved` (a conversion) it has become this file, or it is removed when this file is no copy of it. A file
   * that another operation keeps busy by now, because this one was given up, is left to that operation.
   * @returns the id of the file's record
   */
  async recordResult(file: BackupFile, operation: string, moved?: { from: string }): Promise<string> {
    const held = (await this.busyFiles()).find(row => detailsOf(row).work?.operation === operation);
    const source = moved && (held ?? (await this.find(moved.from)));
    const isSame = source && archiveIdOfRow(source) === archiveIdOf(file);
    const id = isSame ? source.id : await this.#identify(file, () => true);
    await this.#turns.run(id, async () => {
      const before = await this.find(id);
      if (isBusyForOther(before, operation)) return;
      await this.#put({ ...file, id }, before, held && (await this.#wishedFor(held, moved !== undefined)));
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
      ...(keep !== null && { protected: Number(keep) }),
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

  async #identify(
    file: BackupFile,
    sees: (poolId: string) => boolean,
    beside: readonly BackupFile[] = [],
  ): Promise<string> {
    const atPlace = await this.#db
      .selectFrom('files')
      .selectAll()
      .where('pool_id', '=', file.poolId)
      .where('filename', '=', file.filename)
      .executeTakeFirst();
    const ofBackup = await this.find(archiveIdOf(file));
    const isElsewhere = ofBackup !== undefined && ofBackup.id !== atPlace?.id;
    const isInPlace =
      isElsewhere && beside.some(other => isAt(other, ofBackup) && archiveIdOf(other) === archiveIdOf(file));
    return recordIdOf(file, { atPlace, ofBackup, isInPlace }, sees);
  }

  /**
   * Writes the row of a file as it lies on its pool. The row of another file at this place is removed. An archive that was
   * removed and is here again does not count as removed any more, whatever happens to this file later.
   */
  async #put(
    file: BackupFile,
    before: FileRow | undefined,
    wished: Partial<Pick<FileRow, 'description' | 'protected'>> = {},
  ): Promise<void> {
    const domain = this.#domainOf(file.domainId || (before?.domain_id ?? ''));
    const row = { ...rowOfFile(file, before, domain, new Date().toISOString()), ...wished };
    const { id, ...columns } = row;
    const replaced = await this.#db.transaction().execute(async trx => {
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
    for (const files of this.#scans.values()) files.add(id);
    if (!before || isOtherRecord(before, row)) this.#tell(id, before ? 'changed' : 'created');
    await this.#pointsOf(...replaced, ...(before && hasSamePoint(before, row) ? [] : [before, row]));
  }

  async #pointsOf(...rows: readonly (Pick<FileRow, 'domain_id'> | undefined)[]): Promise<void> {
    const ids = new Set(rows.flatMap(row => row?.domain_id ?? []));
    if (ids.size > 0) await this.#watcher(ids);
  }

  /** A scan is about to start: any report about a file from now on is newer than what the scan finds. */
  scanBegins(operation: string): void {
    this.#scans.set(operation, new Set());
    const [oldest] = this.#scans.keys();
    if (this.#scans.size > MAX_SCANS) this.#scans.delete(oldest!);
  }

  /**
   * All that a scan found on a pool. A file that it did not find is MISSING (a disk image is forgotten), unless a report about it came after the scan began;
   * for a scan that somebody else started, such reports are not known. Busy files are left to their operations.
   */
  async scanned(
    poolId: string,
    files: BackupFile[],
    operation: string,
    sees: (poolId: string) => boolean,
  ): Promise<void> {
    const newer = this.#scans.get(operation);
    this.#scans.delete(operation);
    const found = new Set<string>();
    for (const file of files) {
      const id = await this.#identify(file, sees, files);
      found.add(newer?.has(id) ? id : await this.seen(file, sees, files));
    }
    if (!newer) return;
    const rows = await this.#db
      .selectFrom('files')
      .selectAll()
      .where('pool_id', '=', poolId)
      .where('status', 'in', SETTLED)
      .execute();
    for (const row of rows) {
      if (found.has(row.id) || newer.has(row.id)) continue;
      // a descriptor that came later may have it as a part of its own; it is no backup whose loss must be seen
      if (isDiskImage(row) && row.protected === 0) await this.remove(row.id);
      else await this.#missing(row.id, SETTLED);
    }
  }

  /**
   * An operation begins to change or remove the file.
   * @throws file_busy when another operation changes, removes or reads it; file_protected when it takes of a protected one.
   */
  begin(id: string, status: 'UPDATING' | 'DELETING', work: FileWork): Promise<void> {
    return this.#turns.run(id, async () => {
      const row = await this.get(id);
      if (isBusy(row)) throw busy(row);
      if (work.removes && row.protected === 1)
        throw new VirtkeepError('file_protected', { file: row.filename });
      await this.#assertUnread(row);
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

  /** Somebody reads it: a restore, a verification, a copy, a download. */
  async isRead(id: string): Promise<boolean> {
    return (await this.#users.readerOf(id)) !== undefined;
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
    for (const row of await this.busyFiles())
      if (row.status !== 'CREATING' && detailsOf(row).work?.operation === taskId)
        await this.operationFailed(row.id, taskId);
  }

  /** The file, when nothing makes, changes or removes it. @throws file_not_found, file_busy. */
  async idle(id: string): Promise<FileRow> {
    const row = await this.get(id);
    if (row.status === 'MISSING') throw new VirtkeepError('file_not_found', { id });
    if (isBusy(row)) throw busy(row);
    return row;
  }

  /** @param among the statuses in which a file can become MISSING: one that is busy meanwhile cannot */
  async #missing(id: string, among: readonly FileStatus[]): Promise<void> {
    await this.#turns.run(id, async () => {
      await this.#db
        .updateTable('files')
        .set({ status: 'MISSING', modified: new Date().toISOString() })
        .where('id', '=', id)
        .where('status', 'in', among)
        .execute();
    });
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
          ok: found.ok,
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

  /** An operation on the file has failed: a file that was being created is removed from the list, any other is what it was before. */
  operationFailed(id: string, operation: string): Promise<void> {
    return this.#change(id, async (row, details) => {
      if (row.status === 'CREATING') return this.#delete(id);
      if (!isBusy(row)) return;
      if (details.work !== null && details.work.operation !== operation) return;
      await this.#setDetails(row, details.damage === '' ? 'ACTIVE' : 'DAMAGED', { ...details, work: null });
    });
  }

  /** Files that an operation creates, changes or removes. */
  busyFiles(): Promise<FileRow[]> {
    return this.#db.selectFrom('files').selectAll().where('status', 'in', BUSY_STATUSES).execute();
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

  async #delete(id: string): Promise<void> {
    const rows = await this.#db.deleteFrom('files').where('id', '=', id).returning('domain_id').execute();
    this.#tell(id, 'removed');
    await this.#pointsOf(...rows);
  }
}

function isAt(file: BackupFile, row: FileRow): boolean {
  return file.poolId === row.pool_id && file.filename === row.filename;
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

/** The same archive, whole, but ending with an earlier state; an operation that puts an earlier end back reports that itself. */
function hasFewerStates(before: FileRow, file: BackupFile): boolean {
  const isSame = file.type === 'tar' && file.damage === '' && archiveIdOfRow(before) === archiveIdOf(file);
  const [was, is] = [detailsOf(before).states.at(-1)?.number, file.states.at(-1)?.number];
  return isSame && before.status !== 'CREATING' && (is ?? 0) < (was ?? 0);
}
