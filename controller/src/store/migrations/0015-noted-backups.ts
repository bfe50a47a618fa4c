/** The end of each backup is noted once. Those of before are looked through at the next start, which finds the ones that were lost. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const notedBackups: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .alterTable('tasks')
      .addColumn('noted', 'integer', c => c.notNull().defaultTo(0))
      .execute();
    await db.schema.dropIndex('tasks_named').execute();
    await db.schema
      .createIndex('tasks_to_note')
      .on('tasks')
      .columns(['name', 'noted', 'finished_time', 'id'])
      .execute();
    await db.schema.dropIndex('backup_attempts_finished').execute();
  },
};
