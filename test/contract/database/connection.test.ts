/** The connection to a PostgreSQL server of one's own, which stops, starts and hangs up. */
import { inspect } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { type Kysely, sql } from 'kysely';
import { openDatabase } from '../../../controller/src/store/database.ts';
import { contains, operationOfWork } from '../../../controller/src/store/dialect.ts';
import { OneConnection } from '../../../controller/src/store/one-connection.ts';
import { openPostgres } from '../../../controller/src/store/postgres.ts';
import type { Database, Schema } from '../../../controller/src/store/schema.ts';
import type { PostgresTarget } from '../../../controller/src/store/target.ts';
import { TestPostgres } from '../../lab/postgres.ts';

const PASSWORD = 'S3cr3t%of/it';
let server: TestPostgres;
const opened: Kysely<Schema>[] = [];

beforeAll(async () => {
  server = await TestPostgres.start({ password: PASSWORD });
});
afterEach(async () => {
  for (const db of opened.splice(0)) await db.destroy();
});
afterAll(() => server.remove());

function connect(target: Partial<PostgresTarget> = {}): Database {
  const db = openPostgres({ kind: 'postgres', url: server.url(), ...target });
  opened.push(db);
  return db;
}

async function fresh(name: string): Promise<Database> {
  await server.ask(`create database ${name}`);
  const db = await openDatabase({ kind: 'postgres', url: server.url(name) });
  opened.push(db);
  return db;
}

const one = async (db: Database): Promise<unknown> =>
  (await sql<{ one: unknown }>`select 1 as one`.execute(db)).rows[0]!.one;
const hangUp = (db: Database) => sql`select pg_terminate_backend(pg_backend_pid())`.execute(db);
const UNAVAILABLE = { msgKey: 'database_unavailable' };

const byNetwork = (password?: string): Partial<PostgresTarget> => ({
  url: `postgres://virtkeep@127.0.0.1:${server.port}/postgres`,
  ...(password !== undefined && { password }),
});

describe('a server', () => {
  test('that is started again is waited for', async () => {
    const db = connect();
    expect(await one(db)).toBe(1);
    await server.end();
    const asked = one(db);
    server.begin();
    expect(await asked).toBe(1);
  });

  test('that hangs up fails what is asked then, and nothing after it', async () => {
    const db = connect();
    await expect(hangUp(db)).rejects.toMatchObject(UNAVAILABLE);
    expect(await one(db)).toBe(1);
  });

  test('that hangs up in a transaction fails all of it', async () => {
    const db = await fresh('hung_up');
    const work = db.transaction().execute(async trx => {
      await trx.insertInto('revoked_sessions').values({ jti: 'a', expires_on: '' }).execute();
      await hangUp(trx).catch(() => {});
      await trx.insertInto('revoked_sessions').values({ jti: 'b', expires_on: '' }).execute();
    });
    await expect(work).rejects.toMatchObject(UNAVAILABLE);
    expect(await db.selectFrom('revoked_sessions').selectAll().execute()).toEqual([]);
  });

  test('that does not come back in time is told of', async () => {
    const impatient = new OneConnection({ kind: 'postgres', url: 'postgres:///x?host=/nonexistent' }, 0);
    await expect(impatient.connect()).rejects.toMatchObject(UNAVAILABLE);
    await expect(impatient.connect()).rejects.toMatchObject(UNAVAILABLE);
    await impatient.end();
  });
});

describe('a password', () => {
  test('is taken from beside the URL, or from it', async () => {
    expect(await one(connect(byNetwork(PASSWORD)))).toBe(1);
    const { url } = byNetwork();
    const within = url!.replace('virtkeep@', `virtkeep:${encodeURIComponent(PASSWORD)}@`);
    expect(await one(connect({ url: within }))).toBe(1);
  });

  test('that is wrong is refused at once, and stands in no error', async () => {
    for (const target of [
      byNetwork('wr0ng/one'),
      { url: byNetwork().url!.replace('virtkeep@', 'virtkeep:wr0ng%2Fone@') },
      { url: `postgres://virtkeep:wr0ng%2Fone@127.0.0.1:${server.port}/none`, password: 'wr0ng/one' },
    ]) {
      const error = (await one(connect(target)).catch(reason => reason)) as Error;
      expect(error).toMatchObject(UNAVAILABLE);
      const shown = [error.message, error.stack, inspect(error, { depth: 10 }), JSON.stringify(error)].join();
      expect(shown).not.toMatch(/wr0ng/);
    }
  });
});

describe('a connection', () => {
  test('is asked for admission each time there is a new one, and none is used that was refused', async () => {
    let admitted = 0;
    const refusal = new Error('another one serves');
    const db = connect({
      applicationName: 'refused-one',
      admit: async query => {
        admitted += 1;
        expect(await query('select $1::int + 1 as two', [1])).toEqual([{ two: 2 }]);
        if (admitted === 2) throw refusal;
      },
    });
    await one(db);
    await one(db);
    expect(admitted).toBe(1);
    await hangUp(db).catch(() => {});
    await expect(one(db)).rejects.toBe(refusal);
    const connections = sql<{
      number: number;
    }>`select count(*) as number from pg_stat_activity where application_name = 'refused-one'`;
    const watching = connect();
    while ((await connections.execute(watching)).rows[0]!.number > 0);
    expect(await one(db)).toBe(1);
    expect(admitted).toBe(3);
  });

  test('does one transaction after the other, in the order in which they were wanted', async () => {
    const db = await fresh('in_order');
    const told: string[] = [];
    const work = (name: string) =>
      db.transaction().execute(async trx => {
        told.push(`${name} begins`);
        await one(trx);
        told.push(`${name} ends`);
      });
    await Promise.all(['a', 'b', 'c'].map(work));
    expect(told).toEqual(['a', 'b', 'c'].flatMap(name => [`${name} begins`, `${name} ends`]));
  });
});

describe('what is read', () => {
  const TEXTS = [
    'Z',
    'a',
    'B',
    'ä',
    'Ä',
    '',
    ' b',
    '-a',
    '~',
    '\u{1f600}',
    '\uffee',
    'É%_\\',
    'é%_\\',
    '10',
    '9',
  ];
  const tag = (verbose_name: string, index: number) => ({
    ...{ id: String(index), verbose_name, description: '', colour: '', created: '', modified: '' },
  });
  let both: Database[];

  beforeAll(async () => {
    await server.ask('create database compared');
    both = [
      await openDatabase({ kind: 'sqlite', path: ':memory:' }),
      await openDatabase({ kind: 'postgres', url: server.url('compared') }),
    ];
    for (const db of both) await db.insertInto('tags').values(TEXTS.map(tag)).execute();
  });
  afterAll(async () => {
    for (const db of both) await db.destroy();
  });

  async function expectSame(read: (db: Database) => Promise<unknown>): Promise<unknown> {
    const [ofSqlite, ofPostgres] = await Promise.all(both.map(read));
    expect(ofPostgres).toEqual(ofSqlite);
    return ofPostgres;
  }

  test('is in the same order as SQLite has it', async () => {
    await expectSame(db => db.selectFrom('tags').select('verbose_name').orderBy('verbose_name').execute());
    await expectSame(db =>
      db.selectFrom('tags').select('id').where('verbose_name', '>', 'a').orderBy('id', 'desc').execute(),
    );
  });

  test.each(['A', 'É', 'é', '%', '_', '\\', 'Ä', 'z'])('holds %s where SQLite finds it', async part => {
    await expectSame(db =>
      db.selectFrom('tags').select('id').where(contains('verbose_name', part)).orderBy('id').execute(),
    );
  });

  test('is not in a list of nothing', async () => {
    for (const operator of ['in', 'not in'] as const)
      await expectSame(db =>
        db.selectFrom('tags').select('id').where('verbose_name', operator, []).orderBy('id').execute(),
      );
  });

  test('has nulls where SQLite has them', async () => {
    const run = { ...certificate('a'), revoked_on: null };
    for (const db of both)
      await db
        .insertInto('certificates')
        .values([run, { ...run, serial: 'b', revoked_on: 't1' }, { ...run, serial: 'c', revoked_on: 't0' }])
        .execute();
    for (const direction of ['asc', 'desc'] as const) {
      const found = await expectSame(db =>
        db.selectFrom('certificates').select('serial').orderBy('revoked_on', direction).execute(),
      );
      const serials = (found as { serial: string }[]).map(({ serial }) => serial);
      expect(serials).toEqual(direction === 'asc' ? ['a', 'c', 'b'] : ['b', 'c', 'a']);
    }
  });

  test('are numbers, also large ones and sums', async () => {
    const row = { ...certificate('n'), superseded: 2 ** 40 };
    for (const db of both) await db.insertInto('certificates').values(row).execute();
    const found = await expectSame(db =>
      db
        .selectFrom('certificates')
        .select(({ fn }) => [fn.sum('superseded').as('sum'), fn.max('superseded').as('most')])
        .executeTakeFirst(),
    );
    expect(found).toEqual({ sum: 2 ** 40, most: 2 ** 40 });
  });

  test('finds the operation at work, whatever else the record holds', async () => {
    for (const db of both)
      for (const [id, name] of ['plain', '\0', '\\u0000', '"work":{"operation":"z"}'].entries()) {
        const record = { name, work: id === 0 ? null : { operation: `o${id}` }, half: '\ud800' };
        await db
          .insertInto('files')
          .values(file(String(id), record))
          .execute();
      }
    const found = await expectSame(db =>
      db.selectFrom('files').select(operationOfWork(db).as('operation')).orderBy('id').execute(),
    );
    expect(found).toEqual([null, 'o1', 'o2', 'o3'].map(operation => ({ operation })));
  });

  test('stands for a NUL that PostgreSQL does not keep', async () => {
    const [, db] = both;
    await db!.insertInto('tags').values(tag('a\0b', 99)).execute();
    const rows = await db!
      .selectFrom('tags')
      .select('verbose_name')
      .where('verbose_name', '=', 'a\0b')
      .execute();
    expect(rows).toEqual([{ verbose_name: 'a\ufffdb' }]);
  });

  function certificate(serial: string) {
    return {
      ...{ serial, kind: 'service' as const, subject: '', role: '', fingerprint: '', issued: '' },
      ...{ expires_on: '', superseded: 0, revoked_on: null as string | null, reason: null },
    };
  }

  function file(id: string, record: object) {
    return {
      ...{ id, pool_id: 'p', path: id, filename: id, verbose_name: id, description: '', size: 1 },
      ...{
        status: 'ACTIVE',
        type: 'tar',
        compressed: 0,
        can_be_incremental: 0,
        protected: 0,
        domain_id: 'd',
      },
      ...{ domain_name: 'd', created: '', record_json: JSON.stringify(record), newest_point: null },
      ...{ newest_whole_point: null, modified: '' },
    };
  }
});

describe('a database', () => {
  test('is made by several at once', async () => {
    await server.ask('create database many');
    const target = { kind: 'postgres', url: server.url('many') } as const;
    const made = await Promise.all([1, 2, 3].map(() => openDatabase(target)));
    opened.push(...made);
    for (const db of made) expect(await db.selectFrom('users').selectAll().execute()).toEqual([]);
  });

  test('that cannot hold every text is refused', async () => {
    await server.ask("create database narrow template template0 encoding 'LATIN1' locale 'C'");
    const target = { kind: 'postgres', url: server.url('narrow') } as const;
    await expect(openDatabase(target)).rejects.toThrow('UTF8');
  });

  test('that is not there is told of at once', async () => {
    const target = { kind: 'postgres', url: server.url('missing') } as const;
    await expect(openDatabase(target)).rejects.toMatchObject(UNAVAILABLE);
  });
});
