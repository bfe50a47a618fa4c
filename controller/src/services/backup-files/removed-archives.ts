/**
 * Archives that were made to be extended and were removed here. Nothing extends them any more, so the saved states that they left
 * on their VM are merged by its next increment; who else removes a file may have it elsewhere. The controller forgets that an archive
 * was removed when it sees a file of it. Which task it was of is forgotten with it: what is brought back one day is nobody's.
 */
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Database, FileRow } from '../../store/schema.ts';
import { archiveIdOfRow } from './identity.ts';
import { detailsOf } from './record.ts';

export class RemovedArchives {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** The file of this record is gone, because somebody asked for that. While a copy is known, which may go by itself, its archive is not. */
  async removed(row: FileRow): Promise<void> {
    if (row.domain_id === null) return;
    const archiveId = archiveIdOfRow(row);
    const files = await this.#filesOf(row.domain_id);
    if (files.some(file => file.id !== row.id && archiveIdOfRow(file) === archiveId)) return;
    await this.#db.deleteFrom('file_origins').where('archive_id', '=', archiveId).execute();
    if (!detailsOf(row).capable) return;
    const values = {
      archive_id: archiveId,
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
    const present = new Set((await this.#filesOf(id)).map(archiveIdOfRow));
    const gone = rows.map(row => row.archive_id).filter(archiveId => !onVm.has(archiveId));
    if (gone.length > 0)
      await this.#db.deleteFrom('removed_archives').where('archive_id', 'in', gone).execute();
    return rows
      .map(row => row.archive_id)
      .filter(archiveId => onVm.has(archiveId) && !present.has(archiveId));
  }

  #filesOf(domainId: string): Promise<FileRow[]> {
    return this.#db.selectFrom('files').selectAll().where('domain_id', '=', domainId).execute();
  }
}
