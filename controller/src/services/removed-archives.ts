/**
 * Archives that were made to be extended and were removed here. Nothing extends them any more, so the saved states that they left
 * on their VM are merged by its next increment; who else removes a file may have it elsewhere.
 */
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Database, FileRow } from '../store/schema.ts';
import { archiveIdOfRow } from './file-identity.ts';
import { detailsOf } from './file-record.ts';

export class RemovedArchives {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** The file of this record is gone, because somebody asked for that. */
  async removed(row: FileRow): Promise<void> {
    if (row.domain_id === null || !detailsOf(row).capable) return;
    const values = {
      archive_id: archiveIdOfRow(row),
      domain_id: row.domain_id,
      removed: new Date().toISOString(),
    };
    await this.#db
      .insertInto('removed_archives')
      .values(values)
      .onConflict(conflict => conflict.column('archive_id').doNothing())
      .execute();
  }

  /** Those of which the VM has states and nobody a copy. Those that left none on it are forgotten. */
  async of({ id, savedStates }: Pick<Domain, 'id' | 'savedStates'>): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('removed_archives')
      .selectAll()
      .where('domain_id', '=', id)
      .execute();
    if (rows.length === 0) return [];
    const onVm = new Set(savedStates.map(({ backupId }) => backupId));
    const files = await this.#db.selectFrom('files').selectAll().where('domain_id', '=', id).execute();
    const present = new Set(files.map(archiveIdOfRow));
    const gone = rows.map(row => row.archive_id).filter(archiveId => !onVm.has(archiveId));
    if (gone.length > 0)
      await this.#db.deleteFrom('removed_archives').where('archive_id', 'in', gone).execute();
    return rows
      .map(row => row.archive_id)
      .filter(archiveId => onVm.has(archiveId) && !present.has(archiveId));
  }
}
