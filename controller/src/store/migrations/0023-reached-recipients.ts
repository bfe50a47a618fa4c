/** Who has a mail already that its server puts off for others. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const reachedRecipients: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .alterTable('notifications')
      .addColumn('reached_json', 'text', c => c.notNull().defaultTo('[]'))
      .execute();
  },
};
