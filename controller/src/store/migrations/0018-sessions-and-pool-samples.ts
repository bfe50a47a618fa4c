/** The logins of users, each with all tokens refreshed from it. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const sessionsAndPoolSamples: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .createTable('sessions')
      .addColumn('id', 'text', c => c.primaryKey())
      .addColumn('user_id', 'text', c => c.notNull())
      .addColumn('created', 'text', c => c.notNull())
      .addColumn('expires_on', 'text', c => c.notNull())
      .addColumn('last_used', 'text', c => c.notNull())
      .addColumn('address', 'text', c => c.notNull())
      .addColumn('client', 'text', c => c.notNull())
      .execute();
    await db.schema.createIndex('sessions_user').on('sessions').columns(['user_id', 'created']).execute();
    await db.schema.createIndex('sessions_end').on('sessions').column('expires_on').execute();
  },
};
