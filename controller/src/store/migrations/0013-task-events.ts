/** Each look at a task asks for its events, of which there are many. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const taskEvents: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema.createIndex('events_of_task').on('events').columns(['task_id', 'sequence']).execute();
  },
};
