/** A VM that several nodes know: what those tell that do not have it, and where it was last seen to run. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const domainCopies: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema.alterTable('domains').addColumn('ran_on', 'text').execute();
    await db.schema
      .createTable('domain_copies')
      .addColumn('domain_id', 'text', c => c.notNull())
      .addColumn('node_id', 'text', c => c.notNull().references('nodes.id').onDelete('cascade'))
      .addColumn('record_json', 'text', c => c.notNull())
      .addPrimaryKeyConstraint('domain_copies_key', ['domain_id', 'node_id'])
      .execute();
  },
};
