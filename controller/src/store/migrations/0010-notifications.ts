/** Who is told of what, and the outbox of what they are to be told. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const notifications: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .createTable('notification_targets')
      .addColumn('id', 'text', c => c.primaryKey())
      .addColumn('verbose_name', 'text', c => c.notNull().unique())
      .addColumn('kind', 'text', c => c.notNull())
      .addColumn('enabled', 'integer', c => c.notNull())
      .addColumn('events_json', 'text', c => c.notNull())
      .addColumn('templates_json', 'text', c => c.notNull())
      .addColumn('settings_json', 'text', c => c.notNull())
      .addColumn('secrets_sealed', 'text', c => c.notNull())
      .addColumn('created', 'text', c => c.notNull())
      .addColumn('modified', 'text', c => c.notNull())
      .execute();
    await db.schema
      .createTable('notifications')
      .addColumn('id', 'text', c => c.primaryKey())
      .addColumn('sequence', 'bigint', c => c.notNull())
      .addColumn('target_id', 'text', c =>
        c.notNull().references('notification_targets.id').onDelete('cascade'),
      )
      .addColumn('event', 'text', c => c.notNull())
      .addColumn('key', 'text', c => c.notNull())
      .addColumn('data_json', 'text', c => c.notNull())
      .addColumn('status', 'text', c => c.notNull())
      .addColumn('attempts', 'integer', c => c.notNull())
      .addColumn('next_attempt', 'text')
      .addColumn('last_attempt', 'text')
      .addColumn('reason', 'text', c => c.notNull())
      .addColumn('created', 'text', c => c.notNull())
      .addUniqueConstraint('notifications_key', ['target_id', 'key'])
      .execute();
    await db.schema
      .createIndex('notifications_due')
      .on('notifications')
      .columns(['status', 'next_attempt'])
      .execute();
    await db.schema.createIndex('notifications_created').on('notifications').column('created').execute();
  },
};
