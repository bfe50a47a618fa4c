/**
 * What became of the last backup of each VM: in memory for the lists, in a table of its own across restarts, since tasks are forgotten
 * after a while. The row of a task says that its end is noted here, and is written with what is noted: an end that was not, since the
 * controller died or its disk was full, is found when the next backup of any VM ends, or at the next start.
 */
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { shareLoop } from '@virtkeep/shared/turns';
import type { BackupAttemptRow, Database, TaskRow } from '../../store/schema.ts';
import { errorOfRow, type TaskEntity } from '../tasks/record.ts';
import type { EndedAttempt } from './rules.ts';

/** Name of the tasks that are backups, whoever began them. */
export const BACKUP = 'domain_backup';
const TASKS_AT_ONCE = 500;

interface EndedTask {
  row: TaskRow;
  entities: readonly TaskEntity[];
}

/** Of the last backup that succeeded; null: not known. */
export interface LastBackup {
  durationMs: number | null;
  bytesRead: number | null;
  bytesWritten: number | null;
}

/** What is in memory for each VM: of a hundred thousand nothing is kept twice. */
export type KnownAttempt = EndedAttempt & LastBackup;

export class BackupAttempts {
  readonly #db: Database;
  readonly #ownId: (domainId: string) => string;
  readonly #known = new Map<string, KnownAttempt>();
  readonly #turns = new KeyedQueue();
  /** What backups under way have read so far, and what they have written whose tasks are about to end; by task. */
  readonly #read = new Map<string, number>();
  readonly #written = new Map<string, number>();

  /** @param ownId the text of an id that is kept elsewhere anyway */
  constructor(db: Database, ownId: (domainId: string) => string) {
    this.#db = db;
    this.#ownId = ownId;
  }

  /** Reads what was known before the restart, and notes what has ended and is not. */
  async load(): Promise<void> {
    for (const row of await this.#db.selectFrom('backup_attempts').selectAll().execute()) this.#keep(row);
    await this.note(() => {});
  }

  /** Notes the backups that have ended and are not noted yet. @param tell hears of each VM of which something is known now that was not before */
  note(tell: (domainId: string) => void): Promise<void> {
    return this.#turns.run('', async () => {
      for (let tasks = await this.#toNote(); tasks.length > 0; tasks = await this.#toNote()) {
        for (const id of await this.#noteThese(tasks)) tell(id);
        await shareLoop();
      }
    });
  }

  /** In the order in which they ended. */
  async #toNote(): Promise<EndedTask[]> {
    const rows = await this.#db
      .selectFrom('tasks')
      .selectAll()
      .where('name', '=', BACKUP)
      .where('noted', '=', 0)
      .where('finished_time', 'is not', null)
      .orderBy('finished_time')
      .orderBy('id')
      .limit(TASKS_AT_ONCE)
      .execute();
    if (rows.length === 0) return [];
    const domains = await this.#db
      .selectFrom('task_entities')
      .select(['task_id', 'entity_id as id', 'entity_class as class'])
      .where(
        'task_id',
        'in',
        rows.map(row => row.id),
      )
      .execute();
    const byTask = Map.groupBy(domains, ({ task_id }) => task_id);
    return rows.map(row => ({ row, entities: byTask.get(row.id) ?? [] }));
  }

  /** All of them, or none when it throws. @returns the VMs of which something is known now */
  async #noteThese(tasks: readonly EndedTask[]): Promise<Iterable<string>> {
    const rows = new Map<string, BackupAttemptRow>();
    for (const task of tasks) {
      const domainId = domainOf(task);
      if (domainId === undefined || saysNothing(task)) continue;
      const written = rows.get(domainId);
      const before = written ? knownOf(written) : this.#known.get(domainId);
      // what is noted later ended later, whatever its time says: the clock may have been ahead when another one ended
      rows.set(domainId, this.#rowOf(domainId, task.row, before));
    }
    const ids = tasks.map(({ row }) => row.id);
    await this.#db.transaction().execute(async trx => {
      for (const row of rows.values()) {
        const { domain_id: _id, ...columns } = row;
        await trx
          .insertInto('backup_attempts')
          .values(row)
          .onConflict(conflict => conflict.column('domain_id').doUpdateSet(columns))
          .execute();
      }
      await trx.updateTable('tasks').set({ noted: 1 }).where('id', 'in', ids).execute();
    });
    for (const row of rows.values()) this.#keep(row);
    for (const id of ids) {
      this.#read.delete(id);
      this.#written.delete(id);
    }
    return rows.keys();
  }

  #rowOf(domainId: string, task: TaskRow, before: KnownAttempt | undefined): BackupAttemptRow {
    const { id } = task;
    const bytes = { read: this.#read.get(id) ?? null, written: this.#written.get(id) ?? null };
    return rowOf(domainId, task, { ...bytes, before });
  }

  /** A task tells how far it is. Each phase counts anew: what the copying went through is what was read. */
  progressed({ id, kind, progress }: Pick<Operation, 'id' | 'kind' | 'progress'>): void {
    if (kind !== 'backup' || progress?.phase !== 'copy') return;
    const bytes = Math.max(Number(progress.bytesTotal), Number(progress.bytesDone));
    if (bytes > 0) this.#read.set(id, bytes);
  }

  /** A backup has written so many bytes; its task is about to end. */
  wrote(taskId: string, bytes: number): void {
    this.#written.set(taskId, bytes);
  }

  /** Null: none has ended. */
  of(domainId: string): KnownAttempt | null {
    return this.#known.get(domainId) ?? null;
  }

  #keep(row: BackupAttemptRow): void {
    this.#known.set(this.#ownId(row.domain_id), knownOf(row));
  }

  /** Forgets VMs that nobody knows any more, when their last backup ended before this, in ms since 1970. */
  async prune(beforeMs: number, isKnown: (domainId: string) => boolean): Promise<void> {
    for (const [id, { ended }] of [...this.#known]) {
      if (ended >= beforeMs || isKnown(id)) continue;
      await this.#db.deleteFrom('backup_attempts').where('domain_id', '=', id).execute();
      this.#known.delete(id);
    }
  }
}

const domainOf = ({ entities }: EndedTask): string | undefined =>
  entities.find(entity => entity.class === 'domain')?.id;

/** What is done with a part of the VM is told of no whole backup. */
const saysNothing = ({ row }: EndedTask): boolean => row.status === 'CANCELED' || row.leaves_out === 1;

function knownOf(row: BackupAttemptRow): KnownAttempt {
  return {
    ended: Date.parse(row.finished),
    failed: row.failed === 1,
    error: row.error_text ?? '',
    lastSuccess: row.succeeded === null ? null : Date.parse(row.succeeded),
    durationMs: row.duration_ms,
    bytesRead: row.bytes_read,
    bytesWritten: row.bytes_written,
  };
}

function rowOf(
  domain_id: string,
  task: TaskRow,
  {
    read,
    written,
    before,
  }: { read: number | null; written: number | null; before: KnownAttempt | undefined },
): BackupAttemptRow {
  const finished = task.finished_time ?? new Date().toISOString();
  const error = errorOfRow(task);
  const attempt = {
    domain_id,
    finished,
    failed: Number(task.status === 'FAILED'),
    error_key: error?.msg_key ?? null,
    error_text: error?.detail ?? null,
  };
  if (attempt.failed)
    return {
      ...attempt,
      succeeded: succeededBy(before?.lastSuccess ?? null, finished),
      duration_ms: before?.durationMs ?? null,
      bytes_read: before?.bytesRead ?? null,
      bytes_written: before?.bytesWritten ?? null,
    };
  return {
    ...attempt,
    succeeded: finished,
    duration_ms: Math.max(0, Date.parse(finished) - Date.parse(task.created)),
    bytes_read: read,
    bytes_written: written,
  };
}

/** It had ended by then, whatever a clock that was ahead has said. */
function succeededBy(lastSuccess: number | null, finished: string): string | null {
  return lastSuccess === null ? null : new Date(Math.min(lastSuccess, Date.parse(finished))).toISOString();
}
