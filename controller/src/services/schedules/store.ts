/** The rows behind the scheduled tasks and their runs; decides nothing. */
import { newId } from '@virtkeep/shared/ids';
import type { Transaction } from 'kysely';
import { deleteRows } from '../../store/delete-rows.ts';
import { isUniqueViolation } from '../../store/dialect.ts';
import { piecesOf } from '../../store/pieces.ts';
import type {
  Database,
  RetentionDecisionRow,
  ScheduledPartRow,
  ScheduledRunRow,
  ScheduledTaskRow,
  Schema,
} from '../../store/schema.ts';

type Db = Database | Transaction<Schema>;

/** What became of a due time, with all that belongs to it. */
export interface NewRun {
  run: ScheduledRunRow;
  parts: ScheduledPartRow[];
}

export interface PartKey {
  run_id: string;
  position: number;
}

/** A part that runs into a pool. */
export type PartInPool = ScheduledPartRow & {
  /** Of the task of its present step; both null: none has begun. */
  task_status: string | null;
  /** In percent; null: it has not told any. */
  progress: number | null;
};

export const keyOf = ({ run_id, position }: PartKey): string => `${run_id} ${position}`;

/** A decision that has no place among the others yet. */
export type NewDecision = Omit<RetentionDecisionRow, 'sequence'>;

export class ScheduleStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  tasks(): Promise<ScheduledTaskRow[]> {
    return this.#db.selectFrom('scheduled_tasks').selectAll().orderBy('verbose_name').execute();
  }

  task(id: string): Promise<ScheduledTaskRow | undefined> {
    return this.#db.selectFrom('scheduled_tasks').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** @returns false: another task has the name. */
  async insertTask(row: ScheduledTaskRow): Promise<boolean> {
    return unlessTaken(() => this.#db.insertInto('scheduled_tasks').values(row).execute());
  }

  /** @returns false: another task has the name. */
  async updateTask(id: string, columns: Partial<ScheduledTaskRow>): Promise<boolean> {
    return unlessTaken(() =>
      this.#db.updateTable('scheduled_tasks').set(columns).where('id', '=', id).execute(),
    );
  }

  /** Its runs go with it. What it made stays its own: copies have other ids, and may be found later. */
  async removeTask(id: string): Promise<void> {
    await this.#db.deleteFrom('scheduled_tasks').where('id', '=', id).execute();
  }

  /** Those that are due, the longest due first. */
  due(now: Date, limit: number): Promise<ScheduledTaskRow[]> {
    return this.#db
      .selectFrom('scheduled_tasks')
      .selectAll()
      .where('enabled', '=', 1)
      .where('next_run', '<=', now.toISOString())
      .orderBy('next_run')
      .limit(limit)
      .execute();
  }

  /**
   * Takes a due time: what becomes of it and when the task is due next are written together, once.
   * @param due `cameByNow`: its time came while somebody looked, so what had taken it before was a clock that was ahead, and gives it back;
   *   else who had it keeps it
   * @param tell is called for each record that was not there before, with the same transaction
   * @returns these records; undefined when somebody else took it, or changed the task, meanwhile
   */
  take(
    task: ScheduledTaskRow,
    due: { next: string | null; records: readonly NewRun[]; cameByNow: boolean },
    tell: (run: ScheduledRunRow, trx: Transaction<Schema>) => Promise<void>,
  ): Promise<NewRun[] | undefined> {
    return this.#db.transaction().execute(async trx => {
      const { numUpdatedRows } = await trx
        .updateTable('scheduled_tasks')
        .set({ next_run: due.next })
        .where('id', '=', task.id)
        .where('next_run', '=', task.next_run)
        .where('modified', '=', task.modified)
        .executeTakeFirst();
      if (Number(numUpdatedRows) === 0) return undefined;
      const written: NewRun[] = [];
      for (const record of due.records) {
        if (due.cameByNow) await giveBackDueTime(trx, record.run);
        if (!(await insertRun(trx, record))) continue;
        await tell(record.run, trx);
        written.push(record);
      }
      return written;
    });
  }

  /** A run that somebody asked for. */
  async insertRun(record: NewRun): Promise<void> {
    await this.#db.transaction().execute(trx => insertRun(trx, record));
  }

  run(id: string): Promise<ScheduledRunRow | undefined> {
    return this.#db.selectFrom('scheduled_runs').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** Asked often: most columns of a run are large. */
  runningIds(): Promise<Pick<ScheduledRunRow, 'id' | 'scheduled_task_id'>[]> {
    return this.#db
      .selectFrom('scheduled_runs')
      .select(['id', 'scheduled_task_id'])
      .where('status', '=', 'RUNNING')
      .execute();
  }

  running(): Promise<ScheduledRunRow[]> {
    return this.#db
      .selectFrom('scheduled_runs')
      .selectAll()
      .where('status', '=', 'RUNNING')
      .orderBy('created')
      .execute();
  }

  /** Up to when the due times of each task that had any have been taken. */
  async takenUntil(): Promise<Map<string, string>> {
    const rows = await this.#db
      .selectFrom('scheduled_runs')
      .select(({ fn }) => ['scheduled_task_id', fn.max('due_time').as('due_time')])
      .where('due_time', 'is not', null)
      .groupBy('scheduled_task_id')
      .execute();
    return new Map(rows.map(row => [row.scheduled_task_id, row.due_time!]));
  }

  async isRunning(taskId: string): Promise<boolean> {
    return (await this.openRun(taskId)) !== undefined;
  }

  /** Id of the run of a task that has not ended. */
  async openRun(taskId: string): Promise<string | undefined> {
    const row = await this.#db
      .selectFrom('scheduled_runs')
      .select('id')
      .where('status', '=', 'RUNNING')
      .where('scheduled_task_id', '=', taskId)
      .executeTakeFirst();
    return row?.id;
  }

  /** Gives a run its outcome. */
  async endRun(run: ScheduledRunRow): Promise<void> {
    const { id, scheduled_task_id: taskId, created, status, reason, finished } = run;
    const last_duration_ms = Date.parse(finished!) - Date.parse(created);
    const good = status === 'SUCCESS' ? { last_success: finished } : {};
    await this.#db.transaction().execute(async trx => {
      await trx
        .updateTable('scheduled_runs')
        .set({ status, reason, finished })
        .where('id', '=', id)
        .execute();
      await trx
        .updateTable('scheduled_tasks')
        .set({ last_duration_ms, ...good })
        .where('id', '=', taskId)
        .execute();
    });
  }

  /** The newest run of each of these tasks, by the task's id. */
  async lastRuns(tasks: readonly ScheduledTaskRow[]): Promise<Map<string, ScheduledRunRow>> {
    const found = new Map<string, ScheduledRunRow>();
    const ids = tasks.flatMap(({ last_run }) => last_run ?? []);
    for (const some of piecesOf(ids)) {
      const rows = await this.#db.selectFrom('scheduled_runs').selectAll().where('id', 'in', some).execute();
      for (const row of rows) found.set(row.scheduled_task_id, row);
    }
    return found;
  }

  async runsOf(
    taskId: string,
    { limit, offset }: { limit: number; offset: number },
  ): Promise<{ count: number; rows: ScheduledRunRow[] }> {
    const query = this.#db.selectFrom('scheduled_runs').where('scheduled_task_id', '=', taskId);
    const { number } = await query
      .select(({ fn }) => fn.countAll<number>().as('number'))
      .executeTakeFirstOrThrow();
    const rows = await query
      .selectAll()
      .orderBy('created', 'desc')
      .orderBy('id', 'desc')
      .limit(limit)
      .offset(offset)
      .execute();
    return { count: Number(number), rows };
  }

  /** Of all tasks, as they were begun; `to` is not in it. */
  newestBetween(from: Date, to: Date, most: number): Promise<ScheduledRunRow[]> {
    return this.#db
      .selectFrom('scheduled_runs')
      .selectAll()
      .where('created', '>=', from.toISOString())
      .where('created', '<', to.toISOString())
      .orderBy('created', 'desc')
      .limit(most)
      .execute();
  }

  parts(runId: string): Promise<ScheduledPartRow[]> {
    return this.#db
      .selectFrom('scheduled_parts')
      .selectAll()
      .where('run_id', '=', runId)
      .orderBy('position')
      .execute();
  }

  part({ run_id, position }: PartKey): Promise<ScheduledPartRow | undefined> {
    return this.#db
      .selectFrom('scheduled_parts')
      .selectAll()
      .where('run_id', '=', run_id)
      .where('position', '=', position)
      .executeTakeFirst();
  }

  /** Those without an outcome, of all runs. */
  openParts(): Promise<ScheduledPartRow[]> {
    return this.#db
      .selectFrom('scheduled_parts')
      .selectAll()
      .where('status', 'in', ['WAITING', 'RUNNING'])
      .orderBy('run_id')
      .orderBy('position')
      .execute();
  }

  async updatePart({ run_id, position }: PartKey, columns: Partial<ScheduledPartRow>): Promise<void> {
    await updatePart(this.#db, { run_id, position }, columns);
  }

  /** Those that run into a pool, with their present task. */
  runningInto(poolId: string): Promise<PartInPool[]> {
    return this.#db
      .selectFrom('scheduled_parts')
      .leftJoin('tasks', 'tasks.id', 'scheduled_parts.task_id')
      .selectAll('scheduled_parts')
      .select(['tasks.status as task_status', 'tasks.progress'])
      .where('scheduled_parts.status', '=', 'RUNNING')
      .where('scheduled_parts.pool_id', '=', poolId)
      .execute();
  }

  /** Ids of the files of these VMs that parts are going to extend that run and have made no backup yet. */
  async filesToExtend(domainIds: ReadonlySet<string>): Promise<Set<string>> {
    const rows = this.#db
      .selectFrom('scheduled_parts')
      .select('extend_id')
      .where('status', '=', 'RUNNING')
      .where('extend_id', 'is not', null)
      .where('file_id', 'is', null);
    // many of them are asked about when space is wanted, and one for a rule
    const [only] = domainIds;
    const wanted = domainIds.size === 1 ? rows.where('entity_id', '=', only!) : rows;
    return new Set((await wanted.execute()).map(row => row.extend_id!));
  }

  /** What was deleted for parts that run into a pool. */
  removedFrom(poolId: string): Promise<RetentionDecisionRow[]> {
    return this.#db
      .selectFrom('retention_decisions')
      .innerJoin('scheduled_parts', join =>
        join
          .onRef('scheduled_parts.run_id', '=', 'retention_decisions.run_id')
          .onRef('scheduled_parts.position', '=', 'retention_decisions.position'),
      )
      .selectAll('retention_decisions')
      .where('scheduled_parts.status', '=', 'RUNNING')
      .where('scheduled_parts.pool_id', '=', poolId)
      .where('retention_decisions.status', '=', 'REMOVED')
      .where('retention_decisions.reason', '=', 'space')
      .execute();
  }

  /** Bytes that the last successful backup of a VM in one mode took; undefined: there was none. */
  async lastBytes(entityId: string, mode: string): Promise<number | undefined> {
    const row = await this.#db
      .selectFrom('scheduled_parts')
      .select('bytes')
      .where('entity_id', '=', entityId)
      .where('status', 'in', ['SUCCESS', 'PARTIAL'])
      .where('mode', '=', mode)
      .where('bytes', 'is not', null)
      .orderBy('finished', 'desc')
      .limit(1)
      .executeTakeFirst();
    return row?.bytes ?? undefined;
  }

  async recordOrigin(origin: {
    archiveId: string;
    taskId: string;
    domainId: string;
    now: Date;
  }): Promise<void> {
    await this.#db
      .insertInto('file_origins')
      .values({
        archive_id: origin.archiveId,
        scheduled_task_id: origin.taskId,
        domain_id: origin.domainId,
        created: origin.now.toISOString(),
      })
      .onConflict(conflict => conflict.column('archive_id').doNothing())
      .execute();
  }

  /** Archives that a task made of a VM. */
  async archivesOf(taskId: string, domainId: string): Promise<Set<string>> {
    const rows = await this.#db
      .selectFrom('file_origins')
      .select('archive_id')
      .where('scheduled_task_id', '=', taskId)
      .where('domain_id', '=', domainId)
      .execute();
    return new Set(rows.map(row => row.archive_id));
  }

  /** Which task made each of these archives; what none made is not in it. */
  async makersOf(archiveIds: readonly string[]): Promise<Map<string, string>> {
    const found = new Map<string, string>();
    for (const some of piecesOf(archiveIds)) {
      const rows = await this.#db
        .selectFrom('file_origins')
        .select(['archive_id', 'scheduled_task_id'])
        .where('archive_id', 'in', some)
        .execute();
      for (const row of rows) found.set(row.archive_id, row.scheduled_task_id);
    }
    return found;
  }

  /** Archives of a VM that other tasks made. */
  async archivesOfOthers(taskId: string, domainId: string): Promise<Set<string>> {
    const rows = await this.#db
      .selectFrom('file_origins')
      .select('archive_id')
      .where('domain_id', '=', domainId)
      .where('scheduled_task_id', '!=', taskId)
      .execute();
    return new Set(rows.map(row => row.archive_id));
  }

  /** VMs of which a task made archives. */
  async domainsOf(taskId: string): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('file_origins')
      .select('domain_id')
      .distinct()
      .where('scheduled_task_id', '=', taskId)
      .execute();
    return rows.map(row => row.domain_id);
  }

  /** The decisions of a part's step in their order, all of them together, and that they were made. */
  async decide(key: PartKey, decisions: readonly NewDecision[], subject: string): Promise<void> {
    await this.#db.transaction().execute(async trx => {
      await insertDecisions(trx, key, decisions);
      await updatePart(trx, key, { subject });
    });
  }

  /** In the order in which they were decided: the oldest file first where the plan says so. */
  decisions({ run_id, position }: PartKey): Promise<RetentionDecisionRow[]> {
    return this.#db
      .selectFrom('retention_decisions')
      .selectAll()
      .where('run_id', '=', run_id)
      .where('position', '=', position)
      .orderBy('sequence')
      .execute();
  }

  async updateDecision(id: string, columns: Partial<RetentionDecisionRow>): Promise<void> {
    await this.#db.updateTable('retention_decisions').set(columns).where('id', '=', id).execute();
  }

  /** Deletes runs that ended before, with their parts, but the newest one of each task. @returns how many. */
  prune(before: Date): Promise<number> {
    return deleteRows(this.#db, 'scheduled_runs', rows =>
      rows
        .where('finished', '<', before.toISOString())
        .where('status', '!=', 'RUNNING')
        .where(eb =>
          eb.not(
            eb.exists(
              eb
                .selectFrom('scheduled_tasks')
                .select('scheduled_tasks.id')
                .whereRef('scheduled_tasks.last_run', '=', 'scheduled_runs.id'),
            ),
          ),
        ),
    );
  }
}

async function insertDecisions(
  trx: Transaction<Schema>,
  { run_id, position }: PartKey,
  decisions: readonly NewDecision[],
): Promise<void> {
  const { last } = await trx
    .selectFrom('retention_decisions')
    .select(({ fn }) => fn.max('sequence').as('last'))
    .where('run_id', '=', run_id)
    .where('position', '=', position)
    .executeTakeFirstOrThrow();
  const from = Number(last ?? 0) + 1;
  const rows = decisions.map((decision, index) => ({ ...decision, sequence: from + index }));
  for (const some of piecesOf(rows)) await trx.insertInto('retention_decisions').values(some).execute();
}

async function updatePart(db: Db, { run_id, position }: PartKey, columns: Partial<ScheduledPartRow>) {
  if (Object.keys(columns).length === 0) return;
  await db
    .updateTable('scheduled_parts')
    .set(columns)
    .where('run_id', '=', run_id)
    .where('position', '=', position)
    .execute();
}

/** Who had the due time of this run counts as due right before it, where no other run was due. */
async function giveBackDueTime(
  trx: Transaction<Schema>,
  { scheduled_task_id: taskId, due_time }: ScheduledRunRow,
): Promise<void> {
  const runAt = (due: string) =>
    trx
      .selectFrom('scheduled_runs')
      .select('id')
      .where('scheduled_task_id', '=', taskId)
      .where('due_time', '=', due)
      .executeTakeFirst();
  const former = await runAt(due_time!);
  if (former === undefined) return;
  let before = due_time!;
  while (await runAt(before)) before = new Date(Date.parse(before) - 1).toISOString();
  await trx.updateTable('scheduled_runs').set({ due_time: before }).where('id', '=', former.id).execute();
}

/** @returns false: the due time has its run already, and keeps it. */
async function insertRun(trx: Transaction<Schema>, { run, parts }: NewRun): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await trx
    .insertInto('scheduled_runs')
    .values(run)
    .onConflict(conflict => conflict.columns(['scheduled_task_id', 'due_time']).doNothing())
    .executeTakeFirst();
  if (Number(numInsertedOrUpdatedRows ?? 0) === 0) return false;
  await trx
    .updateTable('scheduled_tasks')
    .set({ last_run: run.id })
    .where('id', '=', run.scheduled_task_id)
    .execute();
  for (const some of piecesOf(parts)) await trx.insertInto('scheduled_parts').values(some).execute();
  return true;
}

async function unlessTaken(write: () => Promise<unknown>): Promise<boolean> {
  try {
    await write();
    return true;
  } catch (error) {
    if (isUniqueViolation(error)) return false;
    throw error;
  }
}

/** A part that has not begun. */
export function newPart(
  runId: string,
  position: number,
  entity: { id: string; class: string; name: string },
): ScheduledPartRow {
  return {
    run_id: runId,
    position,
    entity_id: entity.id,
    entity_class: entity.class,
    entity_name: entity.name,
    status: 'WAITING',
    step: '',
    subject: null,
    task_id: null,
    attempt: 1,
    not_before: null,
    node_id: null,
    pool_id: null,
    mode: '',
    extend_id: null,
    estimate: 0,
    bytes: null,
    file_id: null,
    error_json: null,
    notes_json: '[]',
    started: null,
    finished: null,
  };
}

/** Of a run that begins; the others say what is different. */
export function newRun(
  task: Pick<ScheduledTaskRow, 'id' | 'definition_json' | 'user_id' | 'username'>,
  now: Date,
): ScheduledRunRow {
  return {
    id: newId(),
    scheduled_task_id: task.id,
    due_time: null,
    status: 'RUNNING',
    definition_json: task.definition_json,
    window_end: null,
    missed_count: 0,
    reason: '',
    missing_json: '[]',
    user_id: task.user_id,
    username: task.username,
    created: now.toISOString(),
    finished: null,
  };
}
