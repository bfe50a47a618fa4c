import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { openDatabase } from './database.ts';
import { first } from './migrations/0001-first.ts';
import { userNumbers } from './migrations/0007-user-numbers.ts';
import type { Database, UserRow } from './schema.ts';
import { openSqlite } from './sqlite.ts';

let db: Database;
beforeEach(async () => {
  db = openSqlite(':memory:');
  await first.up(db);
});
afterEach(() => db.destroy());

const user = (id: string, created: string): Omit<UserRow, 'number'> => ({
  id,
  username: `user-${id}`,
  role: 'operator',
  password_hash: '',
  enabled: 1,
  sessions_since: created,
  description: '',
  created,
  modified: created,
  last_login: null,
});

test('users of before are numbered in the order in which they were made, and keep their ids', async () => {
  const rows = [user('b', '2026-01-02T00:00:00.000Z'), user('a', '2026-01-01T00:00:00.000Z')];
  await db
    .insertInto('users')
    .values(rows as UserRow[])
    .execute();
  await userNumbers.up(db);
  const numbered = await db.selectFrom('users').select(['id', 'number']).orderBy('number').execute();
  expect(numbered).toEqual([
    { id: 'a', number: 1 },
    { id: 'b', number: 2 },
  ]);
});

test('a user made by a controller of before on tables of now has a number from the next start on', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'virtkeep-numbers-'));
  const open = () => openDatabase({ kind: 'sqlite', path: join(directory, 'db.sqlite') });
  try {
    const migrated = await open();
    const rows = [
      { ...user('c', '2026-01-01T00:00:00.000Z'), number: 1 },
      user('b', '2026-01-03T00:00:00.000Z'),
      user('a', '2026-01-02T00:00:00.000Z'),
    ];
    for (const row of rows)
      await migrated
        .insertInto('users')
        .values(row as UserRow)
        .execute();
    await migrated.destroy();
    const started = await open();
    const numbered = await started.selectFrom('users').select(['id', 'number']).orderBy('number').execute();
    await started.destroy();
    expect(numbered).toEqual([
      { id: 'c', number: 1 },
      { id: 'a', number: 2 },
      { id: 'b', number: 3 },
    ]);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
