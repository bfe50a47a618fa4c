/** `virtkeep-controller migrate-database`, there and back, with a server of its own. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { sql } from 'kysely';
import { configSchema } from '../../../controller/src/config.ts';
import { keyFiles } from '../../../controller/src/keys/keys.ts';
import { openKeys } from '../../../controller/src/keys/open-keys.ts';
import { migrateDatabase } from '../../../controller/src/migrate-database.ts';
import { openDatabase } from '../../../controller/src/store/database.ts';
import { LeaseTable } from '../../../controller/src/store/lease-table.ts';
import type { Database } from '../../../controller/src/store/schema.ts';
import { SERVING } from '../../../controller/src/store/served.ts';
import { TABLES } from '../../../controller/src/store/tables.ts';
import { type DatabaseTarget, type PostgresTarget, targetOf } from '../../../controller/src/store/target.ts';
import { controllerArgv } from '../../lab/controller.ts';
import { TestPostgres } from '../../lab/postgres.ts';

/** More than are read at a time. */
const MANY = 450;
let server: TestPostgres;
let directory: string;
let number = 0;
let url: string;

beforeAll(async () => {
  server = await TestPostgres.start();
});
afterAll(() => server.remove());
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-migrate-'));
  number += 1;
  await server.ask(`create database target_${number}`);
  url = server.url(`target_${number}`);
});
afterEach(() => rmSync(directory, { recursive: true }));

const fileOf = (name = 'controller.db') => join(directory, name);

async function migrate(to: string, settings: object = {}): Promise<string[]> {
  const lines: string[] = [];
  const config = configSchema.parse({ state_dir: directory, ...settings });
  await migrateDatabase(config, { to, passwordFile: undefined }, line => lines.push(line));
  return lines;
}

async function withDatabase<T>(target: DatabaseTarget, work: (db: Database) => Promise<T>): Promise<T> {
  const db = await openDatabase(target);
  try {
    return await work(db);
  } finally {
    await db.destroy();
  }
}

const rowsOf = (place: string): Promise<Record<string, unknown[]>> =>
  withDatabase(targetOf(place), async db => {
    const all: Record<string, unknown[]> = {};
    for (const [table, key] of TABLES) {
      let rows = db.selectFrom(table).selectAll();
      for (const column of key) rows = rows.orderBy(column as never);
      all[table] = await rows.execute();
    }
    return all;
  });

/** In each table a row or many, with nulls, large numbers, and texts of all kinds. */
async function fill(place: string): Promise<void> {
  await withDatabase(targetOf(place), async db => {
    for (const [table, key] of TABLES) {
      if (table === 'row_counts' || table === 'sealed_keys') continue;
      const { columns } = (await db.introspection.getTables()).find(({ name }) => name === table)!;
      const rows = Array.from({ length: table === 'tasks' || table === 'events' ? MANY : 1 }, (_, at) =>
        Object.fromEntries(
          columns.map(column => [column.name, valueIn(column, at, key.includes(column.name))]),
        ),
      );
      await db
        .insertInto(table)
        .values(rows as never)
        .execute();
    }
    await db.deleteFrom('tasks').where('id', '=', 'x-7').execute();
  });
}

/** What refers to something refers to the first one. */
function valueIn(
  { name, dataType, isNullable }: { name: string; dataType: string; isNullable: boolean },
  at: number,
  isKey: boolean,
) {
  if (/int/i.test(dataType)) return name === 'size' ? 2 ** 52 : at;
  if (isKey || /_id$|^(id|username|verbose_name|key|token_hash)$/.test(name)) return `x-${at}`;
  if (isNullable) return null;
  const text = `ä "${name}" \\ ' ${'\u{1f600}'.repeat(at % 3)}`;
  return name.endsWith('_json') ? JSON.stringify({ text }) : text;
}
test('every table is known, and no other', async () => {
  await withDatabase(targetOf(fileOf()), async db => {
    const names = (await db.introspection.getTables()).map(({ name }) => name);
    expect(TABLES.map(([table]) => table as string).sort()).toEqual(names.sort());
  });
});

test('all of it is in the other database, and back again', async () => {
  await fill(fileOf());
  const lines = await migrate(url);
  expect(lines).toContain(`tasks: ${MANY - 1} rows`);
  expect(lines.at(-1)).toContain(`database: ${url}`);
  const before = await rowsOf(fileOf());
  expect(await rowsOf(url)).toEqual(before);
  const back = await migrate(fileOf('back.db'), { database: url });
  expect(back.at(-1)).toContain(`Move ${fileOf('back.db')} to ${fileOf()}`);
  expect(await rowsOf(fileOf('back.db'))).toEqual(before);
  // rows are counted on
  await withDatabase(targetOf(url), async db => {
    await db.deleteFrom('tasks').execute();
    const left = await db
      .selectFrom('row_counts')
      .select(({ fn }) => fn.sum<number>('number').as('sum'))
      .where('of_table', '=', 'tasks')
      .executeTakeFirstOrThrow();
    expect(left.sum).toBe(0);
  });
});

test('the keys that several controllers share become files of the one that is alone, and take the place of no other', async () => {
  const config = configSchema.parse({ state_dir: directory, database: url });
  await withDatabase(targetOf(url), async db => {
    const keys = await openKeys(config, db);
    await keys.write('pki/ca.key', 'shared');
  });
  const alone = keyFiles(directory);
  await alone.write('pki/ca.key', 'another');
  await expect(migrate(fileOf(), { database: url })).rejects.toThrow(
    'is another key than the one in the database',
  );
  expect(readdirSync(directory)).not.toContain('controller.db');
  await alone.write('pki/ca.key', 'shared');
  rmSync(join(directory, 'pki'), { recursive: true });
  await migrate(fileOf(), { database: url });
  expect(String(await alone.read('pki/ca.key'))).toBe('shared');
});

test('rows are there for good only with the keys that belong to them, and then a repetition ends what was broken off', async () => {
  const config = configSchema.parse({ state_dir: directory, database: url });
  await withDatabase(targetOf(url), async db => {
    await (await openKeys(config, db)).write('pki/ca.key', 'shared');
    await db.insertInto('revoked_sessions').values({ jti: 'there', expires_on: '' }).execute();
  });
  const lease = new LeaseTable(targetOf(url) as PostgresTarget);
  await lease.take({ holder: 'h', name: 'h' }, await lease.read());
  await lease.close();
  // one that is there and empty; its number, which comes after the keys, cannot be written
  await withDatabase(targetOf(fileOf()), async () => {});
  mkdirSync(fileOf('controller-epoch'));
  await expect(migrate(fileOf(), { database: url })).rejects.toThrow('controller-epoch');
  expect((await rowsOf(fileOf())).revoked_sessions).toEqual([]);
  expect(String(await keyFiles(directory).read('pki/ca.key'))).toBe('shared');
  rmdirSync(fileOf('controller-epoch'));
  await migrate(fileOf(), { database: url });
  expect((await rowsOf(fileOf())).revoked_sessions).toHaveLength(1);
  expect(readFileSync(fileOf('controller-epoch'), 'utf8')).toBe('2\n');
});

test('a NUL, which PostgreSQL does not keep, is told of', async () => {
  await withDatabase(targetOf(fileOf()), db =>
    db.insertInto('revoked_sessions').values({ jti: 'a\0', expires_on: '' }).execute(),
  );
  expect(await migrate(url)).toContainEqual(expect.stringMatching(/^revoked_sessions: 1 rows; in 1 texts/));
});

describe('nothing is copied', () => {
  const rows = async () => Object.values(await rowsOf(url)).flat();

  test('into a database that has rows, or tables of somebody else', async () => {
    await fill(fileOf());
    await withDatabase(targetOf(url), db =>
      db.insertInto('revoked_sessions').values({ jti: 'there', expires_on: '' }).execute(),
    );
    await expect(migrate(url)).rejects.toMatchObject({ msgKey: 'database_not_empty' });
    expect(await rows()).toHaveLength(1);
    await server.ask('create table foreign_one (a int)', `target_${number}`);
    await expect(migrate(url)).rejects.toThrow('foreign_one');
  });

  test('when something fails on the way: the other one is as empty as before', async () => {
    await fill(fileOf());
    await withDatabase(targetOf(url), db =>
      sql`alter table notifications add constraint none check (id = '')`.execute(db),
    );
    await expect(migrate(url)).rejects.toThrow('none');
    expect(await rows()).toEqual([]);
    await withDatabase(targetOf(url), db => sql`alter table notifications drop constraint none`.execute(db));
    // one that loses something
    await withDatabase(targetOf(url), async db => {
      await sql`create function lose() returns trigger language plpgsql as $$ begin new.reason := ''; return new; end $$`.execute(
        db,
      );
      await sql`create trigger lose before insert on notifications for each row execute function lose()`.execute(
        db,
      );
    });
    await expect(migrate(url)).rejects.toMatchObject({
      msgKey: 'database_copy_differs',
      params: { table: 'notifications', columns: 'reason' },
    });
    expect(await rows()).toEqual([]);
  });

  test('when the keys cannot be sealed', async () => {
    await fill(fileOf());
    writeFileSync(fileOf('cluster.key'), 'short');
    await expect(migrate(url)).rejects.toThrow('cluster.key');
    expect(await rows()).toEqual([]);
  });

  test('into a file that is no database', async () => {
    writeFileSync(fileOf('broken.db'), 'this is no database');
    await expect(migrate(fileOf('broken.db'), { database: url })).rejects.toThrow('not a database');
  });

  test('into a new file, which is not left', async () => {
    await withDatabase({ ...targetOf(url), applicationName: SERVING } as DatabaseTarget, async () => {
      const migrated = migrate(fileOf('new.db'), { database: url });
      await expect(migrated).rejects.toMatchObject({ msgKey: 'database_in_use' });
    });
    expect(readdirSync(directory)).toEqual([]);
  });

  test('while a controller serves', async () => {
    const open = [targetOf(fileOf()), { ...targetOf(url), applicationName: SERVING }];
    for (const target of open)
      await withDatabase(target, async () => {
        await expect(migrate(url)).rejects.toMatchObject({ msgKey: 'database_in_use' });
      });
    await migrate(url);
  });

  test('by a command line that is wrong, or shows a password', () => {
    writeFileSync(join(directory, 'controller.yaml'), `state_dir: ${directory}\n`);
    const [program, ...base] = controllerArgv(directory);
    const run = (...argv: string[]) =>
      spawnSync(program, [...base, 'migrate-database', ...argv], { encoding: 'utf8' });
    for (const argv of [[], ['--to', 'here.db'], ['--to', fileOf()], ['--to', 'postgres://u:s3cr3t@h/d']]) {
      const { status, stderr } = run(...argv);
      expect([argv, status]).toEqual([argv, 64]);
      expect(stderr).not.toContain('s3cr3t');
    }
    const { status, stdout } = run('--to', url);
    expect([status, stdout]).toEqual([0, expect.stringContaining('users: 0 rows')]);
  });
});
