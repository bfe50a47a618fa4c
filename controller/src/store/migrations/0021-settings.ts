/** What an administrator has set while the controller ran. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const settings: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .createTable('settings')
      .addColumn('name', 'text', c => c.primaryKey())
      .addColumn('value', 'text', c => c.notNull())
      .addColumn('modified', 'text', c => c.notNull())
      .execute();
  },
};
