/** Scheduled tasks, their runs with the parts of these, which files they made, and which of those they decided to delete. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Db = Kysely<unknown>;

export const schedules: Migration = {
  up: async (db: Db) => {
    await createTasks(db);
    await createRuns(db);
    await createParts(db);
    await createFileOrigins(db);
    await createDecisions(db);
  },
};

async function createTasks(db: Db): Promise<void> {
  await db.schema
    .createTable('scheduled_tasks')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('verbose_name', 'text', c => c.notNull().unique())
    .addColumn('definition_json', 'text', c => c.notNull())
    .addColumn('enabled', 'integer', c => c.notNull())
    .addColumn('next_run', 'text')
    .addColumn('last_run', 'text')
    .addColumn('last_success', 'text')
    .addColumn('last_duration_ms', 'bigint')
    .addColumn('user_id', 'text', c => c.notNull())
    .addColumn('username', 'text', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('modified', 'text', c => c.notNull())
    .execute();
  await db.schema
    .createIndex('scheduled_tasks_next')
    .on('scheduled_tasks')
    .columns(['enabled', 'next_run'])
    .execute();
}

async function createRuns(db: Db): Promise<void> {
  await db.schema
    .createTable('scheduled_runs')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('scheduled_task_id', 'text', c =>
      c.notNull().references('scheduled_tasks.id').onDelete('cascade'),
    )
    .addColumn('due_time', 'text')
    .addColumn('status', 'text', c => c.notNull())
    .addColumn('definition_json', 'text', c => c.notNull())
    .addColumn('window_end', 'text')
    .addColumn('missed_count', 'integer', c => c.notNull())
    .addColumn('reason', 'text', c => c.notNull())
    .addColumn('missing_json', 'text', c => c.notNull())
    .addColumn('user_id', 'text', c => c.notNull())
    .addColumn('username', 'text', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('finished', 'text')
    .addUniqueConstraint('scheduled_runs_due', ['scheduled_task_id', 'due_time'])
    .execute();
  await db.schema.createIndex('scheduled_runs_status').on('scheduled_runs').column('status').execute();
  await db.schema
    .createIndex('scheduled_runs_task')
    .on('scheduled_runs')
    .columns(['scheduled_task_id', 'created'])
    .execute();
}

async function createParts(db: Db): Promise<void> {
  await db.schema
    .createTable('scheduled_parts')
    .addColumn('run_id', 'text', c => c.notNull().references('scheduled_runs.id').onDelete('cascade'))
    .addColumn('position', 'integer', c => c.notNull())
    .addColumn('entity_id', 'text', c => c.notNull())
    .addColumn('entity_class', 'text', c => c.notNull())
    .addColumn('entity_name', 'text', c => c.notNull())
    .addColumn('status', 'text', c => c.notNull())
    .addColumn('step', 'text', c => c.notNull())
    .addColumn('subject', 'text')
    .addColumn('task_id', 'text')
    .addColumn('attempt', 'integer', c => c.notNull())
    .addColumn('not_before', 'text')
    .addColumn('node_id', 'text')
    .addColumn('pool_id', 'text')
    .addColumn('mode', 'text', c => c.notNull())
    .addColumn('extend_id', 'text')
    .addColumn('estimate', 'bigint', c => c.notNull())
    .addColumn('bytes', 'bigint')
    .addColumn('file_id', 'text')
    .addColumn('error_json', 'text')
    .addColumn('notes_json', 'text', c => c.notNull())
    .addColumn('started', 'text')
    .addColumn('finished', 'text')
    .addPrimaryKeyConstraint('scheduled_parts_key', ['run_id', 'position'])
    .execute();
  await db.schema.createIndex('scheduled_parts_status').on('scheduled_parts').column('status').execute();
  await db.schema.createIndex('scheduled_parts_entity').on('scheduled_parts').column('entity_id').execute();
}

async function createFileOrigins(db: Db): Promise<void> {
  await db.schema
    .createTable('file_origins')
    .addColumn('archive_id', 'text', c => c.primaryKey())
    .addColumn('scheduled_task_id', 'text', c => c.notNull())
    .addColumn('domain_id', 'text', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .execute();
  await db.schema
    .createIndex('file_origins_task')
    .on('file_origins')
    .columns(['scheduled_task_id', 'domain_id'])
    .execute();
  await db.schema.createIndex('file_origins_domain').on('file_origins').column('domain_id').execute();
}

async function createDecisions(db: Db): Promise<void> {
  await db.schema
    .createTable('retention_decisions')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('run_id', 'text', c => c.notNull().references('scheduled_runs.id').onDelete('cascade'))
    .addColumn('position', 'integer', c => c.notNull())
    .addColumn('file_id', 'text', c => c.notNull())
    .addColumn('archive_id', 'text', c => c.notNull())
    .addColumn('filename', 'text', c => c.notNull())
    .addColumn('domain_id', 'text', c => c.notNull())
    .addColumn('size', 'bigint', c => c.notNull())
    .addColumn('reason', 'text', c => c.notNull())
    .addColumn('status', 'text', c => c.notNull())
    .addColumn('error_json', 'text')
    .addColumn('decided', 'text', c => c.notNull())
    .addColumn('finished', 'text')
    .execute();
  await db.schema
    .createIndex('retention_decisions_part')
    .on('retention_decisions')
    .columns(['run_id', 'position', 'status'])
    .execute();
}
