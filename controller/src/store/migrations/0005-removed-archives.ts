/** Archives that were removed while their VM may still have saved states of them. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const removedArchives: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .createTable('removed_archives')
      .addColumn('archive_id', 'text', c => c.primaryKey())
      .addColumn('domain_id', 'text', c => c.notNull())
      .addColumn('removed', 'text', c => c.notNull())
      .execute();
    await db.schema
      .createIndex('removed_archives_domain')
      .on('removed_archives')
      .column('domain_id')
      .execute();
  },
};
