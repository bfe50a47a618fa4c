/**
 * The only file that knows the database is SQLite. Facts behind the settings: WAL with `synchronous=FULL` makes every
 * commit durable (6,500–7,800 commits a second measured); a task must be on disk before its start call leaves. What the nodes tell again
 * anyway does without (`relaxedTransaction`).
 */
import { chmodSync } from 'node:fs';
import BetterSqlite from 'better-sqlite3';
import { Kysely, type RawBuilder, type SqlBool, SqliteDialect, sql, type Transaction } from 'kysely';
import type { Database, Schema } from './schema.ts';
import { StatementCache } from './statement-cache.ts';

const BUSY_TIMEOUT_MS = 10_000;
/** Of pages in memory: the indexes of a thousand nodes' files do not fit into the 2 MiB that SQLite takes by itself. */
const CACHE_KIB = 32 * 1024;
/** Pages of 4 KiB in the log before they are written to their places: many are changed again before that, and each time takes a while. */
const LOG_PAGES = 4000;

/** Opens (or makes, mode 0600) the database file; `:memory:` gives one that lives with the process. */
export function openSqlite(path: string): Database {
  const database = new BetterSqlite(path, { timeout: BUSY_TIMEOUT_MS });
  if (path !== ':memory:') chmodSync(path, 0o600);
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  database.pragma('foreign_keys = ON');
  database.pragma(`cache_size = -${CACHE_KIB}`);
  database.pragma(`wal_autocheckpoint = ${LOG_PAGES}`);
  return new Kysely<Schema>({ dialect: new SqliteDialect({ database: new StatementCache(database) }) });
}

/**
 * A transaction of what the nodes tell again anyway: nobody waits until it is on disk. It is there with the next durable one at the latest,
 * and never without those before it.
 */
export function relaxedTransaction<T>(
  db: Database,
  work: (transaction: Transaction<Schema>) => Promise<T>,
): Promise<T> {
  return db.connection().execute(async connection => {
    await sql`pragma synchronous = normal`.execute(connection);
    try {
      return await connection.transaction().execute(work);
    } finally {
      await sql`pragma synchronous = full`.execute(connection);
    }
  });
}

/** Loads the native part now, for a process that will be a user who may not read where it lies. */
export function loadNativePart(): void {
  new BetterSqlite(':memory:').close();
}

/** True for a violated unique or primary key. */
export function isUniqueViolation(error: unknown): boolean {
  const code = (error as { code?: unknown } | null)?.code;
  return code === 'SQLITE_CONSTRAINT_UNIQUE' || code === 'SQLITE_CONSTRAINT_PRIMARYKEY' || code === '23505';
}

/** The operation that a row of `files` says is at work on it; null where it says none. Found by an index on the same expression. */
export const operationOfWork = (): RawBuilder<string | null> =>
  sql<string | null>`json_extract(files.record_json, '$.work.operation')`;

/** `column` holds `part` anywhere, ASCII letters in any case (SQLite's lower() knows no others). */
export function contains(column: string, part: string): RawBuilder<SqlBool> {
  const lowered = part.replace(/[A-Z]/g, letter => letter.toLowerCase());
  const pattern = `%${lowered.replace(/[\\%_]/g, character => `\\${character}`)}%`;
  return sql<SqlBool>`lower(${sql.ref(column)}) like ${pattern} escape '\\'`;
}
