/**
 * A database in a file of this machine. Facts behind the settings: WAL with `synchronous=FULL` makes every
 * commit durable (6,500–7,800 commits a second measured); a task must be on disk before its start call leaves. What the nodes tell again
 * anyway does without (`relaxedTransaction`).
 */
import { chmodSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { setImmediate } from 'node:timers';
import BetterSqlite from 'better-sqlite3';
import {
  type DatabaseConnection,
  Kysely,
  SqliteDialect,
  type SqliteDialectConfig,
  SqliteDriver,
} from 'kysely';
import type { Database, Schema } from './schema.ts';
import { StatementCache } from './statement-cache.ts';

const BUSY_TIMEOUT_MS = 10_000;
/** Of pages in memory: the indexes of a thousand nodes' files do not fit into the 2 MiB that SQLite takes by itself. */
const CACHE_KIB = 32 * 1024;
/** Pages of 4 KiB in the log before they are written to their places: many are changed again before that, and each time takes a while. */
const LOG_PAGES = 4000;
/** So long may queries follow one another before the event loop goes on, ms. */
const TURN_MS = 20;

/** Opens (or makes, mode 0600) the database file; `:memory:` gives one that lives with the process. */
export function openSqlite(path: string): Database {
  const database = new BetterSqlite(path, { timeout: BUSY_TIMEOUT_MS });
  if (path !== ':memory:') chmodSync(path, 0o600);
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  database.pragma('foreign_keys = ON');
  database.pragma(`cache_size = -${CACHE_KIB}`);
  database.pragma(`wal_autocheckpoint = ${LOG_PAGES}`);
  return new Kysely<Schema>({ dialect: new SharingDialect({ database: new StatementCache(database) }) });
}

/**
 * A database in the process answers at once: who waits for it goes on in the same iteration of the event loop, and so does the next one.
 * A hundred requests that each ask it a dozen things kept everybody else for a second (measured). So after a while the next query waits
 * until the others have had their turn. `shareLoop` would put the query of a request behind all work in the background.
 */
class SharingDriver extends SqliteDriver {
  /** When the first query of this iteration of the event loop came, in ms of `performance.now`. */
  #sinceMs: number | undefined;

  override async acquireConnection(): Promise<DatabaseConnection> {
    while (!this.#isTurn()) await new Promise<void>(resolve => void setImmediate(resolve));
    return super.acquireConnection();
  }

  #isTurn(): boolean {
    const nowMs = performance.now();
    if (this.#sinceMs === undefined) {
      this.#sinceMs = nowMs;
      setImmediate(() => {
        this.#sinceMs = undefined;
      });
    }
    return nowMs - this.#sinceMs < TURN_MS;
  }
}

class SharingDialect extends SqliteDialect {
  readonly #config: SqliteDialectConfig;

  constructor(config: SqliteDialectConfig) {
    super(config);
    this.#config = config;
  }

  override createDriver(): SqliteDriver {
    return new SharingDriver(this.#config);
  }
}

/** Loads the native part now, for a process that will be a user who may not read where it lies. */
export function loadNativePart(): void {
  new BetterSqlite(':memory:').close();
}
