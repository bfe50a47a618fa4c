import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { sql } from 'kysely';
import { openDatabase } from './database.ts';
import { relaxedTransaction } from './dialect.ts';
import type { Database } from './schema.ts';

const [NORMAL, FULL] = [1, 2];
let directory: string;
let db: Database;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-relaxed-'));
  db = await openDatabase({ kind: 'sqlite', path: join(directory, 'a.db') });
});
afterEach(async () => {
  await db.destroy();
  rmSync(directory, { recursive: true });
});

const safetyOf = async (database: Database) =>
  (await sql<{ synchronous: number }>`pragma synchronous`.execute(database)).rows[0]?.synchronous;
const tag = (id: string) => ({
  id,
  verbose_name: id,
  description: '',
  colour: '',
  created: '',
  modified: '',
});

test('what others write meanwhile and after it is durable', async () => {
  const relaxed = relaxedTransaction(db, async trx => {
    await trx.insertInto('tags').values(tag('a')).execute();
    return safetyOf(trx);
  });
  const others = db.transaction().execute(trx => safetyOf(trx));
  expect([await relaxed, await others, await safetyOf(db)]).toEqual([NORMAL, FULL, FULL]);
  expect(await db.selectFrom('tags').select('id').execute()).toEqual([{ id: 'a' }]);
});

test('one that fails leaves nothing, and all after it durable', async () => {
  const failing = relaxedTransaction(db, async trx => {
    await trx.insertInto('tags').values(tag('a')).execute();
    throw new Error('no');
  });
  await expect(failing).rejects.toThrow('no');
  expect(await safetyOf(db)).toBe(FULL);
  expect(await db.selectFrom('tags').select('id').execute()).toEqual([]);
});
