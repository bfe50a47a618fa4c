/**
 * The catalogue of backup files. It is a cache of what lies on the pools, rebuilt by scanning them, plus the few things
 * that only the controller knows (protection, description, results of verifications). Losing it loses no backup.
 *
 * A file's life: CREATING → ACTIVE; ACTIVE → DELETING → gone; ACTIVE ⇄ MISSING as scans find it; ACTIVE ⇄ DAMAGED by
 * scan or verification; UPDATING while it is read anew or verified. When an operation fails, what it left is set right:
 * a file that was being made never came to be, any other is what it was before.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { contains } from '../store/dialect.ts';
import type { Database, FileRow } from '../store/schema.ts';
import {
  detailsOf,
  type FileDetails,
  type FileStatus,
  informationOf,
  NO_DETAILS,
  rememberedShow,
  rowOfFile,
  unpublishedPath,
} from './file-record.ts';

export const FILE_ORDERINGS = ['created', 'filename', 'verbose_name', 'size', 'status', 'type'] as const;

export interface FileFilter {
  domain?: string;
  datapool?: string;
  type?: string;
  can_be_incremental?: boolean;
  status?: string;
  name?: string;
  ordering: { field: (typeof FILE_ORDERINGS)[number]; descending: boolean };
  limit: number;
  offset: number;
}

export interface NewFile {
  id: string;
  poolId: string;
  domain: { id: string; name: string };
  description: string;
  protected: boolean;
  compressed: boolean;
}

export interface Verification {
  ok: boolean;
  problems: { member: string; reason: string }[];
  verifiedAt: string;
  hashed: boolean;
}

export type FileTold = (id: string, action: 'created' | 'changed' | 'removed') => void;

export class Catalogue {
  readonly #db: Database;
  readonly #tell: FileTold;

  constructor(db: Database, tell: FileTold) {
    this.#db = db;
    this.#tell = tell;
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

  async list(filter: FileFilter): Promise<{ count: number; rows: FileRow[] }> {
    let query = this.#db.selectFrom('files');
    if (filter.domain !== undefined) query = query.where('domain_id', '=', filter.domain);
    if (filter.datapool !== undefined) query = query.where('pool_id', '=', filter.datapool);
    if (filter.type !== undefined) query = query.where('type', '=', filter.type);
    if (filter.status !== undefined) query = query.where('status', '=', filter.status);
    if (filter.can_be_incremental !== undefined)
      query = query.where('can_be_incremental', '=', Number(filter.can_be_incremental));
    if (filter.name !== undefined) query = query.where(contains('verbose_name', filter.name));
    const total = await query
      .select(({ fn }) => fn.countAll<number>().as('number'))
      .executeTakeFirstOrThrow();
    const direction = filter.ordering.descending ? 'desc' : 'asc';
    const rows = await query
      .selectAll()
      .orderBy(filter.ordering.field, direction)
      .orderBy('id', direction)
      .limit(filter.limit)
      .offset(filter.offset)
      .execute();
    return { count: Number(total.number), rows };
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

  /** A backup that is about to be made. Made before the start call, so that its description and protection hold. */
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
        record_json: JSON.stringify(NO_DETAILS),
        modified: now,
      })
      .execute();
    this.#tell(file.id, 'created');
  }

  /** A file as it lies on its pool now. A different file that the catalogue had at this place is gone. */
  async seen(file: BackupFile): Promise<void> {
    const before = await this.find(file.id);
    const row = rowOfFile(file, before, new Date().toISOString());
    const { id, ...columns } = row;
    await this.#db.transaction().execute(async trx => {
      await trx
        .deleteFrom('files')
        .where('pool_id', '=', row.pool_id)
        .where('path', '=', row.path)
        .where('id', '!=', id)
        .execute();
      await trx
        .insertInto('files')
        .values(row)
        .onConflict(conflict => conflict.column('id').doUpdateSet(columns))
        .execute();
    });
    if (!before || before.record_json !== row.record_json || before.status !== row.status)
      this.#tell(id, before ? 'changed' : 'created');
  }

  /**
   * All that a scan found on a pool: what it did not find is MISSING, unless it was made after the scan began. Files in
   * work are left to their operations.
   */
  async scanned(poolId: string, files: BackupFile[], began: Date): Promise<void> {
    const found = new Set(files.map(file => file.id));
    for (const file of files) {
      const present = await this.find(file.id);
      if (!present || !['DELETING', 'UPDATING'].includes(present.status)) await this.seen(file);
    }
    const rows = await this.#db
      .selectFrom('files')
      .selectAll()
      .where('pool_id', '=', poolId)
      .where('status', 'in', ['ACTIVE', 'DAMAGED', 'FAILED'])
      .execute();
    for (const row of rows) {
      if (!found.has(row.id) && row.created < began.toISOString()) await this.setStatus(row.id, 'MISSING');
    }
  }

  async setStatus(id: string, status: FileStatus): Promise<void> {
    const modified = new Date().toISOString();
    await this.#db.updateTable('files').set({ status, modified }).where('id', '=', id).execute();
    this.#tell(id, 'changed');
  }

  async update(id: string, columns: Partial<Pick<FileRow, 'description' | 'protected'>>): Promise<void> {
    const modified = new Date().toISOString();
    await this.#db
      .updateTable('files')
      .set({ ...columns, modified })
      .where('id', '=', id)
      .execute();
    this.#tell(id, 'changed');
  }

  async verified(id: string, found: Verification): Promise<void> {
    const row = await this.find(id);
    if (!row) return;
    const details = detailsOf(row);
    const problems = found.problems.map(problem => `${problem.member}: ${problem.reason}`).join('; ');
    details.failed_verification = !found.ok;
    details.damage = found.ok ? '' : problems || 'the verification failed';
    const known = details.hash_sum ?? { algorithm: 'SHA-256' as const, value: null };
    details.hash_sum = { ...known, verified_at: found.verifiedAt, ok: found.ok };
    await this.#setDetails(row, found.ok ? 'ACTIVE' : 'DAMAGED', JSON.stringify(details));
  }

  /** What was read of the configuration it would restore. */
  async informed(id: string, shown: ShowBackupResponse): Promise<void> {
    const row = await this.find(id);
    if (!row || !shown.configuration) return;
    const information = informationOf(shown.configuration);
    const details: FileDetails = { ...detailsOf(row), information, shown: rememberedShow(shown) };
    const record_json = JSON.stringify(details);
    if (record_json !== row.record_json) await this.#setDetails(row, row.status as FileStatus, record_json);
  }

  async remove(id: string): Promise<void> {
    await this.#db.deleteFrom('files').where('id', '=', id).execute();
    this.#tell(id, 'removed');
  }

  /** An operation on the file has failed: what was being made never came to be, anything else is what it was. */
  async operationFailed(id: string): Promise<void> {
    const row = await this.find(id);
    if (row?.status === 'CREATING') return this.remove(id);
    if (row?.status === 'DELETING' || row?.status === 'UPDATING') {
      await this.setStatus(id, detailsOf(row).damage === '' ? 'ACTIVE' : 'DAMAGED');
    }
  }

  /** Files that an operation is making, changing or removing. */
  inWork(): Promise<FileRow[]> {
    const states: FileStatus[] = ['CREATING', 'DELETING', 'UPDATING'];
    return this.#db.selectFrom('files').selectAll().where('status', 'in', states).execute();
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
    for (const { id } of rows) await this.setStatus(id, 'MISSING');
  }

  async #setDetails(row: FileRow, status: FileStatus, record_json: string): Promise<void> {
    const modified = new Date().toISOString();
    await this.#db
      .updateTable('files')
      .set({ status, record_json, modified })
      .where('id', '=', row.id)
      .execute();
    this.#tell(row.id, 'changed');
  }
}
