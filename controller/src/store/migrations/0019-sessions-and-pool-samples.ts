/**
 * The logins of users, each with all tokens refreshed from it; who was removed, so that no number is given twice; and how much of each data
 * pool was used on each day.
 */
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
    await db.schema
      .createTable('pool_samples')
      .addColumn('pool_id', 'text', c => c.notNull())
      .addColumn('day', 'text', c => c.notNull())
      .addColumn('used', 'bigint', c => c.notNull())
      .addPrimaryKeyConstraint('pool_samples_key', ['pool_id', 'day'])
      .execute();
    await db.schema.createIndex('pool_samples_day').on('pool_samples').column('day').execute();
    // lists of tasks without their parts, and of the parts of one, newest first
    await db.schema.dropIndex('tasks_parent').execute();
    await db.schema.createIndex('tasks_of_parent').on('tasks').columns(['parent', 'created', 'id']).execute();
    await db.schema.createIndex('sessions_user').on('sessions').columns(['user_id', 'created']).execute();
    await db.schema
      .createTable('removed_users')
      .addColumn('id', 'text', c => c.primaryKey())
      .addColumn('number', 'integer', c => c.notNull().unique())
      .addColumn('username', 'text', c => c.notNull())
      .addColumn('removed', 'text', c => c.notNull())
      .execute();
    await db.schema.createIndex('sessions_end').on('sessions').column('expires_on').execute();
  },
};
