/** What is asked of the two kinds of databases in different words. */
import { PostgresAdapter, type RawBuilder, type SqlBool, sql, type Transaction } from 'kysely';
import type { Database, Schema } from './schema.ts';

/** Whether it is one of PostgreSQL; else it is one of SQLite. */
export const isPostgres = (db: Pick<Database, 'getExecutor'>): boolean =>
  db.getExecutor().adapter instanceof PostgresAdapter;

/**
 * A transaction of what the nodes tell again anyway: nobody waits until it is on disk. It is there with the next durable one at the latest,
 * and never without those before it.
 */
export function relaxedTransaction<T>(
  db: Database,
  work: (transaction: Transaction<Schema>) => Promise<T>,
): Promise<T> {
  if (isPostgres(db))
    return db.transaction().execute(async transaction => {
      await sql`set local synchronous_commit = off`.execute(transaction);
      return work(transaction);
    });
  return db.connection().execute(async connection => {
    await sql`pragma synchronous = normal`.execute(connection);
    try {
      return await connection.transaction().execute(work);
    } finally {
      await sql`pragma synchronous = full`.execute(connection);
    }
  });
}

/** True for a violated unique or primary key. */
export function isUniqueViolation(error: unknown): boolean {
  const code = (error as { code?: unknown } | null)?.code;
  return code === 'SQLITE_CONSTRAINT_UNIQUE' || code === 'SQLITE_CONSTRAINT_PRIMARYKEY' || code === '23505';
}

/** The operation that a row of `files` says is at work on it; null where it says none. Found by an index on the same expression (0017). */
export function operationOfWork(db: Database): RawBuilder<string | null> {
  return isPostgres(db)
    ? sql`(${sql.raw(postgresOperationOfWork('files.record_json'))})`
    : sql`json_extract(files.record_json, '$.work.operation')`;
}

/**
 * PostgreSQL refuses a record as a whole for the escape of a NUL or of half a character anywhere in it. None is in what is looked for, so
 * each becomes the escape of a slash, which leaves the record one.
 */
export const postgresOperationOfWork = (record: string): string =>
  `replace(${record}, '\\u', '\\/')::json #>> '{work,operation}'`;

/** `column` holds `part` anywhere, ASCII letters in any case (SQLite's lower() knows no others, nor does the collation of our columns). */
export function contains(column: string, part: string): RawBuilder<SqlBool> {
  const lowered = part.replace(/[A-Z]/g, letter => letter.toLowerCase());
  const pattern = `%${lowered.replace(/[\\%_]/g, character => `\\${character}`)}%`;
  return sql<SqlBool>`lower(${sql.ref(column)}) like ${pattern} escape '\\'`;
}
