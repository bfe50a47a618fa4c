/** Tags, and what bears them. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const tags: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .createTable('tags')
      .addColumn('id', 'text', c => c.primaryKey())
      .addColumn('verbose_name', 'text', c => c.notNull().unique())
      .addColumn('description', 'text', c => c.notNull())
      .addColumn('colour', 'text', c => c.notNull())
      .addColumn('created', 'text', c => c.notNull())
      .addColumn('modified', 'text', c => c.notNull())
      .execute();
    await db.schema
      .createTable('tag_entities')
      .addColumn('tag_id', 'text', c => c.notNull().references('tags.id').onDelete('cascade'))
      .addColumn('entity_id', 'text', c => c.notNull())
      .addColumn('entity_class', 'text', c => c.notNull())
      .addPrimaryKeyConstraint('tag_entities_key', ['tag_id', 'entity_id'])
      .execute();
  },
};
