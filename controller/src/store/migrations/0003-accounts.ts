/** Where users logged in lately, and how often the same refusal was repeated. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const accounts: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .createTable('known_logins')
      .addColumn('subject', 'text', c => c.primaryKey())
      .addColumn('last_success', 'text', c => c.notNull())
      .execute();
    await db.schema
      .alterTable('audit')
      .addColumn('count', 'integer', c => c.notNull().defaultTo(1))
      .execute();
    await db.schema.alterTable('audit').addColumn('last_time', 'text').execute();
    await db.schema.createIndex('audit_created').on('audit').column('created').execute();
  },
};
