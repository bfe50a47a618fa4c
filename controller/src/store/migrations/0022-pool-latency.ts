/** How long VMs may wait for the disks of a pool before backups are slowed down for them. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const poolLatency: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .alterTable('pools')
      .addColumn('latency_target', 'integer', c => c.notNull().defaultTo(0))
      .execute();
  },
};
