/** What an attacker could measure is counted here: computed hashes and written rows, for names that exist and names that do not. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import * as argon2 from '@node-rs/argon2';
import { sql } from 'kysely';
import { clockStopped } from '../../auth/stopped-clock.ts';
import type { Database } from '../../store/schema.ts';
import { isOnPostgres } from '../../store/test-database.ts';

const work = { verify: jest.fn(argon2.verify), hash: jest.fn(argon2.hash) };
jest.unstable_mockModule('@node-rs/argon2', () => work);
const { authRoutes } = await import('../../http/routes/auth.ts');
const { testServer } = await import('../../http/test-server.ts');

let server: Awaited<ReturnType<typeof testServer>>;

beforeEach(async () => {
  server = await testServer([authRoutes]);
  const { users } = server.services;
  const away = await users.create({ username: 'away', password: 'long enough 1', role: 'auditor' });
  await users.change(away.id, { enabled: false });
});
afterEach(() => server.close());

async function rowsWritten(db: Database): Promise<number> {
  const all = sql<{
    number: number;
  }>`select sum(n_tup_ins + n_tup_upd + n_tup_del) as number from pg_stat_user_tables`;
  if (isOnPostgres()) await sql`select pg_stat_force_next_flush()`.execute(db);
  const written = isOnPostgres() ? all : sql<{ number: number }>`select total_changes() as number`;
  const { rows } = await written.execute(db);
  return Number(rows[0]!.number);
}

/** What one attempt costs: hashes computed and rows written. */
async function costOf(username: string, password: string) {
  const writtenBefore = await rowsWritten(server.services.db);
  for (const mock of Object.values(work)) mock.mockClear();
  const { statusCode } = await server.app.inject({
    method: 'POST',
    url: '/auth/',
    payload: { username, password },
  });
  return {
    statusCode,
    hashes: work.verify.mock.calls.length + work.hash.mock.calls.length,
    written: (await rowsWritten(server.services.db)) - writtenBefore,
  };
}

test('a wrong login costs the same whether the name exists, is disabled or is unknown', async () => {
  const costs = [
    await costOf('nobody', 'a wrong guess'),
    await costOf('root', 'a wrong guess'),
    await costOf('away', 'long enough 1'),
    await costOf('nobody else', 'a wrong guess'),
  ];
  expect(costs.map(cost => cost.statusCode)).toEqual([401, 401, 401, 401]);
  expect(costs[0]!.hashes).toBe(1);
  for (const cost of costs) expect(cost).toEqual(costs[0]);
});

test(
  'and it goes on costing the same when it is repeated, up to the refusal',
  clockStopped(async () => {
    for (let count = 0; count < 7; count += 1) {
      // of a place's refusals the first is a record, whatever the name
      if (count === 5) await costOf('root', 'wrong');
      const [known, unknown] = [await costOf('root', 'wrong'), await costOf('nobody', 'wrong')];
      expect([count, known]).toEqual([count, unknown]);
      expect(known.statusCode).toBe(count < 5 ? 401 : 429);
    }
  }),
);

test('the hash that unknown names are checked against has the parameters of the others', async () => {
  const parametersFor = async (username: string) => {
    await costOf(username, 'wrong');
    return String(work.verify.mock.calls[0]![0]).split('$').slice(0, 4);
  };
  expect(await parametersFor('nobody')).toEqual(await parametersFor('root'));
});

test('no other file compares passwords', () => {
  const root = join(import.meta.dirname, '../..');
  const users = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.ts') && !file.endsWith('.test.ts'))
    .filter(file => readFileSync(join(root, file), 'utf8').includes('verifyPassword'));
  expect(users.sort()).toEqual(['auth/passwords.ts', 'services/accounts/password-checks.ts']);
});
