/** Whether a run of a scheduled task has not ended is asked before each: it is not looked for among all that have not. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const openRuns: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .createIndex('scheduled_runs_open')
      .on('scheduled_runs')
      .columns(['status', 'scheduled_task_id'])
      .execute();
    await db.schema.dropIndex('scheduled_runs_status').execute();
  },
};
