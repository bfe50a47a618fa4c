/**
 * A database in a file of this machine. Facts behind the settings: WAL with `synchronous=FULL` makes every
 * commit durable (6,500–7,800 commits a second measured); a task must be on disk before its start call leaves. What the nodes tell again
 * anyway does without (`relaxedTransaction`).
 */
import { chmodSync } from 'node:fs';
import BetterSqlite from 'better-sqlite3';
import { Kysely, SqliteDialect } from 'kysely';
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

/** Loads the native part now, for a process that will be a user who may not read where it lies. */
export function loadNativePart(): void {
  new BetterSqlite(':memory:').close();
}
