/** How fast backups may read for a pool that they go to. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const poolBandwidth: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .alterTable('pools')
      .addColumn('backup_bandwidth', 'bigint', c => c.notNull().defaultTo(0))
      .execute();
  },
};
