/** `virtkeep-controller migrate-database`: all that the controller's database holds goes into another one. */
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError } from '@virtkeep/shared/config';
import { UsageError } from '@virtkeep/shared/daemon-cli';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { followWith } from './cluster/alone.ts';
import type { ControllerConfig } from './config.ts';
import { databaseTarget, passwordIn } from './database-target.ts';
import { KEY_NAMES, type KeyName, keyFiles } from './keys/keys.ts';
import { keyFileOf, openKeys } from './keys/open-keys.ts';
import { openSealedKeys } from './keys/sealed-keys.ts';
import { type CopiedTable, copyDatabase } from './store/copy.ts';
import { openDatabase } from './store/database.ts';
import { LEASE_TABLE, LeaseTable } from './store/lease-table.ts';
import { openPostgres } from './store/postgres.ts';
import type { Database } from './store/schema.ts';
import { openSqlite } from './store/sqlite.ts';
import { TABLES } from './store/tables.ts';
import { type DatabaseTarget, hasPassword, isPostgresUrl, targetOf } from './store/target.ts';

export interface MigrationOptions {
  /** URL of a PostgreSQL database, or the absolute path of an SQLite file. */
  to: string | undefined;
  /** Holds the password for it. */
  passwordFile: string | undefined;
}

/**
 * Copies the database of the settings into an empty one and proves that it is the same. A failure leaves the other one empty.
 * @param say prints a line
 * @throws UsageError; ConfigError; database_in_use; database_not_empty; database_copy_differs.
 */
export async function migrateDatabase(
  config: ControllerConfig,
  options: MigrationOptions,
  say: (line: string) => void,
): Promise<void> {
  const source = await databaseTarget(config);
  const target = await givenTarget(options);
  if (placeOf(source) === placeOf(target))
    throw new UsageError('--to is the database of the settings itself');
  const isNewFile = target.kind === 'sqlite' && !existsSync(target.path);
  try {
    await requireOwnTables(target);
    await copyAll({ config, source, target }, say);
  } catch (error) {
    if (isNewFile) removeFile(target.path);
    throw error;
  }
  say('Every column of every row is the same in both. Nothing was removed from the former database.');
  say(nextSteps(config, options, target));
}

async function givenTarget({ to, passwordFile }: MigrationOptions): Promise<DatabaseTarget> {
  if (to === undefined || to === '')
    throw new UsageError('--to is required: postgres://user@host/database, or the absolute path of a file');
  if (!isPostgresUrl(to) && !to.startsWith('/'))
    throw new UsageError('--to must be a postgres:// URL or an absolute path');
  const target = targetOf(to, await passwordIn(passwordFile, '--password-file'));
  if (target.kind === 'postgres' && hasPassword(target.url))
    throw new UsageError(
      'the command line is seen by everybody on this machine: put the password into a file (--password-file) or PGPASSWORD',
    );
  return target;
}

const placeOf = (target: DatabaseTarget): string => {
  if (target.kind === 'sqlite') return target.path;
  const { hostname, port, pathname, searchParams } = new URL(target.url);
  const host = searchParams.get('host') ?? hostname;
  return `${host}:${searchParams.get('port') ?? (port || '5432')}${pathname}`;
};

/** What somebody else keeps there is not mixed with ours. */
async function requireOwnTables(target: DatabaseTarget): Promise<void> {
  const own = new Set([
    'kysely_migration',
    'kysely_migration_lock',
    LEASE_TABLE,
    ...TABLES.map(([table]) => table),
  ]);
  const db = target.kind === 'sqlite' ? openSqlite(target.path) : openPostgres(target);
  try {
    const foreign = (await db.introspection.getTables({ withInternalKyselyTables: true })).find(
      ({ name }) => !own.has(name),
    );
    if (foreign) throw new VirtkeepError('database_not_empty', { table: foreign.name });
  } finally {
    await db.destroy();
  }
}

interface Move {
  config: ControllerConfig;
  source: DatabaseTarget;
  target: DatabaseTarget;
}

async function copyAll(
  { config, source: from, target: to }: Move,
  say: (line: string) => void,
): Promise<void> {
  const source = await openDatabase(from);
  try {
    const keys = to.kind === 'sqlite' ? await keysForFiles(config, source) : new Map<KeyName, Buffer>();
    const target = await openDatabase(to);
    const told = ({ table, rows, changedTexts }: CopiedTable) => {
      const changed =
        changedTexts > 0
          ? `; in ${changedTexts} texts \\ufffd stands for NUL, which PostgreSQL does not keep`
          : '';
      say(`${table}: ${rows} rows${changed}`);
    };
    try {
      await copyDatabase(source, target, told, async rows => {
        if (to.kind === 'sqlite') await putKeysIntoFiles(config, keys, await lastEpoch(from));
        // as the first controller would, from the state directory of this machine
        else if (from.kind === 'sqlite') await sealKeys(config, rows);
      });
    } finally {
      await target.destroy();
    }
  } finally {
    await source.destroy();
  }
}

type Sealed = ReadonlyMap<KeyName, Buffer>;

/**
 * What becomes of the keys in the database in files of the state directory, where a controller that is alone has them.
 * @throws ConfigError for a file with another key than the database has
 */
async function keysForFiles(config: ControllerConfig, source: Database): Promise<Sealed> {
  const found = new Map<KeyName, Buffer>();
  if (!(await source.selectFrom('sealed_keys').select('name').executeTakeFirst())) return found;
  const shared = await openKeys(config, source);
  const files = keyFiles(config.state_dir);
  for (const name of KEY_NAMES) {
    const key = await shared.read(name);
    const present = await files.read(name);
    // the last one is made anew whenever it has to be
    if (key && present && !present.equals(key) && name !== 'pki/controller.pem')
      throw new ConfigError(
        `${join(config.state_dir, name)} is another key than the one in the database: move it away first`,
      );
    if (key) found.set(name, key);
  }
  return found;
}

/** A controller that found the rows without them would make itself another authority, which no node takes. */
async function putKeysIntoFiles({ state_dir }: ControllerConfig, keys: Sealed, epoch: number): Promise<void> {
  for (const [name, key] of keys) await keyFiles(state_dir).write(name, key);
  if (epoch > 0) await followWith(state_dir, epoch);
}

const sealKeys = (config: ControllerConfig, target: Database) =>
  openSealedKeys(target, keyFileOf(config), config.state_dir);

/** As high as any that a node may have seen; 0 where several controllers were never there. */
async function lastEpoch(source: DatabaseTarget): Promise<number> {
  if (source.kind === 'sqlite') return 0;
  const table = new LeaseTable(source);
  try {
    return (await table.read()).epoch;
  } finally {
    await table.close();
  }
}

function removeFile(path: string): void {
  for (const end of ['', '-wal', '-shm']) rmSync(path + end, { force: true });
}

function nextSteps(
  config: ControllerConfig,
  { to, passwordFile }: MigrationOptions,
  target: DatabaseTarget,
): string {
  if (target.kind === 'postgres') {
    const password = passwordFile ?? 'FILE    # when it needs a password';
    return `Put this into the settings, then start the controller:\ndatabase: ${to}\ndatabase_password_file: ${password}`;
  }
  const usual = join(config.state_dir, 'controller.db');
  const move = target.path === usual ? '' : `Move ${target.path} to ${usual}. `;
  return `${move}Remove database and database_password_file from the settings, then start the controller.`;
}
