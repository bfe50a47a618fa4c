/** In which order the files of a part were decided to be deleted: no database but SQLite has one of its own. */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import { isPostgres } from '../dialect.ts';

export const decisionOrder: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema
      .alterTable('retention_decisions')
      .addColumn('sequence', 'bigint', c => c.notNull().defaultTo(0))
      .execute();
    // decisions of before are of SQLite
    if (!isPostgres(db)) await sql`update retention_decisions set sequence = rowid`.execute(db);
  },
};
