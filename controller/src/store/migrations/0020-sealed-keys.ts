/** The keys that several controllers share. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const sealedKeys: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .createTable('sealed_keys')
      .addColumn('name', 'text', c => c.primaryKey())
      .addColumn('sealed', 'text', c => c.notNull())
      .execute();
  },
};
