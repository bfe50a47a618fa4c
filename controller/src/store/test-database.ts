/**
 * For tests: an empty database of the newest schema, of the kind that the run is about. Those of PostgreSQL are of one server for the whole
 * run (`test/lab/postgres.ts`); a process that runs tests has a few, which it empties before each use: to make one takes a hundred times as
 * long.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { sql, type Transaction } from 'kysely';
import { openDatabase } from './database.ts';
import { openPostgres } from './postgres.ts';
import type { Database, Schema } from './schema.ts';
import type { DatabaseTarget, PostgresTarget } from './target.ts';

/** Whether this run of the tests is about PostgreSQL. */
export const isOnPostgres = (): boolean => process.env.VIRTKEEP_TEST_DATABASE === 'postgres';

/** The database of the test server from which others are made: migrated, empty, nobody connects to it. */
export const TEMPLATE = 'virtkeep_template';

export interface TestDatabase {
  target: DatabaseTarget;
  open: () => Promise<Database>;
  /** All that is kept in it, as text: the bytes of its files, or its rows. */
  contents: () => Promise<string>;
  release: () => Promise<void>;
}

/** Of these the process uses none now, by their numbers. */
const inUse = new Set<number>();

/** One that several open, also one after the other. */
export async function makeTestDatabase(): Promise<TestDatabase> {
  if (isOnPostgres()) return takePostgres();
  const directory = mkdtempSync(join(tmpdir(), 'virtkeep-database-'));
  const target = { kind: 'sqlite', path: join(directory, 'controller.db') } as const;
  return {
    target,
    open: () => openDatabase(target),
    contents: async () =>
      readdirSync(directory)
        .map(name => readFileSync(join(directory, name), 'latin1'))
        .join('\n'),
    release: async () => rmSync(directory, { recursive: true }),
  };
}

/** One of a controller that is started as a process, with these settings and this state directory. */
export async function makeControllerDatabase(
  stateDir: string,
): Promise<Omit<TestDatabase, 'contents'> & { settings: Record<string, unknown> }> {
  if (isOnPostgres()) {
    const taken = await takePostgres();
    return { ...taken, settings: { database: taken.target.url } };
  }
  const target = { kind: 'sqlite', path: join(stateDir, 'controller.db') } as const;
  return { target, open: () => openDatabase(target), release: async () => {}, settings: {} };
}

/** One that is gone when it is destroyed. */
export async function openTestDatabase(): Promise<Database> {
  if (!isOnPostgres()) return openDatabase({ kind: 'sqlite', path: ':memory:' });
  const { target, release } = await takePostgres();
  const db = openPostgres(target);
  const destroy = db.destroy.bind(db);
  db.destroy = async () => {
    await destroy();
    await release();
  };
  return db;
}

/** Nothing can be added to a table, as if the disk were full. @returns what ends it */
export async function refuseInserts(db: Database, table: string): Promise<() => Promise<void>> {
  const ask = (text: string) => sql.raw(text).execute(db);
  if (isOnPostgres()) {
    await ask(
      "create or replace function full_disk() returns trigger language plpgsql as $$ begin raise exception 'full'; end $$",
    );
    await ask(`create trigger full_disk before insert on ${table} for each row execute function full_disk()`);
  } else {
    await ask(`create trigger full_disk before insert on ${table} begin select raise(abort, 'full'); end`);
  }
  return async () => {
    await ask(`drop trigger full_disk${isOnPostgres() ? ` on ${table}` : ''}`);
  };
}

/** The next transaction is carried out, and its answer is lost with the connection. */
export function loseNextAnswer(db: Database): void {
  const transaction = () => ({
    execute: async (work: (trx: Transaction<Schema>) => Promise<unknown>) => {
      Reflect.deleteProperty(db, 'transaction');
      await db.transaction().execute(work);
      throw new VirtkeepError('database_unavailable', { reason: 'it broke' });
    },
  });
  Object.assign(db, { transaction });
}

/** URL of a database of the test server. */
export function testServerUrl(database: string): string {
  const url = process.env.VIRTKEEP_TEST_POSTGRES;
  if (url === undefined) throw new Error('VIRTKEEP_TEST_POSTGRES does not name the server of the tests');
  return url.replace('///postgres?', `///${database}?`);
}

/** Asks the test server itself. */
export async function onTestServer(statement: string): Promise<void> {
  const db = openPostgres({ kind: 'postgres', url: testServerUrl('postgres') });
  try {
    await sql.raw(statement).execute(db);
  } finally {
    await db.destroy();
  }
}

async function takePostgres(): Promise<TestDatabase & { target: PostgresTarget }> {
  let number = 0;
  while (inUse.has(number)) number += 1;
  inUse.add(number);
  const name = `test_${process.env.JEST_WORKER_ID ?? process.pid}_${number}`;
  const target = { kind: 'postgres', url: testServerUrl(name) } as const;
  await emptied(target).catch(async error => {
    if (!isMissing(error)) throw error;
    await onTestServer(`create database "${name}" template ${TEMPLATE} strategy file_copy`);
  });
  return {
    target,
    open: () => openDatabase(target),
    contents: () => rowsOf(target),
    release: async () => {
      inUse.delete(number);
    },
  };
}

async function rowsOf(target: PostgresTarget): Promise<string> {
  const db = openPostgres(target);
  try {
    const { rows } = await sql<{
      all: string;
    }>`select schema_to_xml('public', true, false, '')::text as all`.execute(db);
    return rows[0]!.all;
  } finally {
    await db.destroy();
  }
}

const isMissing = (error: unknown) =>
  hasKey(error, 'database_unavailable') && (error.cause as { code?: string }).code === '3D000';

/** A test that failed may have left connections, too. */
const EMPTY = `do $$
declare one record;
begin
  perform pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid();
  set local session_replication_role = replica;
  for one in select tablename from pg_tables where schemaname = 'public' and tablename not like 'kysely%' loop
    execute format('delete from %I', one.tablename);
  end loop;
end $$`;

async function emptied(target: PostgresTarget): Promise<void> {
  const db = openPostgres(target);
  try {
    await sql.raw(EMPTY).execute(db);
  } finally {
    await db.destroy();
  }
}
