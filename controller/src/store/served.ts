import { sql } from 'kysely';
import { isPostgres } from './dialect.ts';
import type { Database } from './schema.ts';

/**
 * By which a PostgreSQL server lists a controller that serves, followed by the epoch of one that acts; its commands have another name.
 */
export const SERVING = 'virtkeep-controller';

/**
 * Whether a controller serves this database now. On PostgreSQL it is connected under its name; an SQLite file can leave the log of its
 * changes only while nobody else has it open.
 * @param db one whose process has no other connection to it
 */
export async function isServed(db: Database): Promise<boolean> {
  if (isPostgres(db)) {
    const { rows } = await sql`select 1 from pg_stat_activity
      where datname = current_database() and starts_with(application_name, ${SERVING}) and pid <> pg_backend_pid()`.execute(
      db,
    );
    return rows.length > 0;
  }
  try {
    await sql`pragma journal_mode = delete`.execute(db);
    return false;
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'SQLITE_BUSY') throw error;
    return true;
  } finally {
    await sql`pragma journal_mode = wal`.execute(db);
  }
}
