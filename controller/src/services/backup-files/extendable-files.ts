/** The backups that were made to be extended, and the report to users when one cannot be extended any more. */
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { shareLoop } from '@virtkeep/shared/turns';
import type { Database, FileRow } from '../../store/schema.ts';
import type { EventService } from '../journal/events.ts';
import type { FileListener } from './backup-files.ts';
import { archiveIdOfRow } from './identity.ts';
import { detailsOf, extendable, notIncrementalReason } from './record.ts';

const FILES_AT_ONCE = 100;

export class IncrementalFiles {
  readonly #db: Database;
  readonly #tell: FileListener;
  readonly #events: EventService;
  readonly #domainOf: (id: string) => Domain | undefined;

  /** @param domainOf the VM of this id, while a known node has it. */
  constructor(
    db: Database,
    tell: FileListener,
    events: EventService,
    domainOf: (id: string) => Domain | undefined,
  ) {
    this.#db = db;
    this.#tell = tell;
    this.#events = events;
    this.#domainOf = domainOf;
  }

  /**
   * The archives of a VM that were made to be extended, newest first. Of several copies only those that were extended
   * furthest: on another what the VM has changed since would be written under numbers that are given.
   */
  async archivesOf(domainId: string): Promise<FileRow[]> {
    const rows = await this.#db
      .selectFrom('files')
      .selectAll()
      .where('domain_id', '=', domainId)
      .where('type', '=', 'tar')
      .where('status', 'not in', ['CREATING', 'DELETING'])
      .execute();
    const capable = rows.filter(row => detailsOf(row).capable);
    const age = (row: FileRow) => detailsOf(row).states[0]?.created ?? row.created;
    const isOriginal = (row: FileRow) => Number(row.id === archiveIdOfRow(row));
    const newestFirst = (a: FileRow, b: FileRow) =>
      age(a) === age(b) ? isOriginal(b) - isOriginal(a) : age(a) < age(b) ? 1 : -1;
    return furthestCopies(capable).sort(newestFirst);
  }

  /** After a start: judges all again, since the controller may have stopped between the change of a VM and that of its backups. */
  async judgeAll(signal: AbortSignal): Promise<void> {
    for (let last = ''; !signal.aborted; ) {
      const rows = await this.#db
        .selectFrom('files')
        .selectAll()
        .where('id', '>', last)
        .orderBy('id')
        .limit(FILES_AT_ONCE)
        .execute();
      await this.#judge(rows);
      if (rows.length < FILES_AT_ONCE) return;
      last = rows.at(-1)!.id;
      await shareLoop();
    }
  }

  /** The saved states of a VM have changed, or it has come or gone. */
  async judge(domainId: string): Promise<void> {
    await this.#judge(
      await this.#db.selectFrom('files').selectAll().where('domain_id', '=', domainId).execute(),
    );
  }

  /** Most are what they were. */
  async #judge(rows: readonly FileRow[]): Promise<void> {
    for (const row of rows) {
      if (row.domain_id === null) continue;
      const can = Number(extendable(row, this.#domainOf(row.domain_id)));
      if (can !== row.can_be_incremental) await this.#judgeFile(row.id, row.domain_id);
    }
  }

  /** Judges by the file's row at the time of writing: the file may be extended meanwhile. */
  async #judgeFile(id: string, domainId: string): Promise<void> {
    for (;;) {
      const row = await this.#db.selectFrom('files').selectAll().where('id', '=', id).executeTakeFirst();
      if (!row) return;
      const domain = this.#domainOf(domainId);
      const can_be_incremental = Number(extendable(row, domain));
      if (can_be_incremental === row.can_be_incremental) return;
      const { numUpdatedRows } = await this.#db
        .updateTable('files')
        .set({ can_be_incremental })
        .where('id', '=', id)
        .where('record_json', '=', row.record_json)
        .executeTakeFirst();
      if (Number(numUpdatedRows) === 0) continue;
      this.#tell(id, 'changed');
      return this.#record(row, notIncrementalReason(row, domain));
    }
  }

  /** Nothing is recorded for a busy file: the end of its operation says what holds then. */
  async #record(row: FileRow, reason: string): Promise<void> {
    if (row.status === 'UPDATING' || row.status === 'MISSING') return;
    const entities = [{ id: row.id, class: 'file' }];
    if (row.domain_id !== null) entities.push({ id: row.domain_id, class: 'domain' });
    await this.#events.record({
      type: reason === '' ? 'info' : 'warning',
      message: `The backup ${row.filename} can ${reason === '' ? 'be extended again' : 'no longer be extended'}`,
      detailMessage: reason,
      entities,
    });
  }
}

function furthestCopies(rows: FileRow[]): FileRow[] {
  const states = (row: FileRow) => detailsOf(row).states.length;
  const furthest = new Map<string, number>();
  for (const row of rows) {
    const id = archiveIdOfRow(row);
    furthest.set(id, Math.max(furthest.get(id) ?? 0, states(row)));
  }
  return rows.filter(row => states(row) === furthest.get(archiveIdOfRow(row)));
}
