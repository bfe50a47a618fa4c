import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { sql } from 'kysely';
import { countOf, countsByFirst, countsBySecond, keptCount } from './row-counts.ts';
import type { Database, TaskRow } from './schema.ts';
import { openTestDatabase } from './test-database.ts';

let db: Database;
beforeEach(async () => {
  db = await openTestDatabase();
});
afterEach(() => db.destroy());

const task = (id: string, status: string, node_id: string | null): TaskRow => ({
  id,
  name: 'act',
  verbose_name: 'Act',
  status,
  progress: 0,
  created: '2026-01-01T00:00:00.000Z',
  finished_time: null,
  error_json: null,
  is_cancellable: 1,
  is_multitask: 0,
  parent: null,
  node_id,
  user_id: 'u',
  username: 'u',
  detail_json: '{}',
  result_json: null,
  cancel_requested: 0,
  locks_released: 0,
  noted: 0,
  leaves_out: 0,
});

test('what is added, changed, put again and removed is counted, by status and node', async () => {
  const rows = [task('a', 'LOST', 'n'), task('b', 'LOST', 'm'), task('c', 'SUCCESS', null)];
  await db.insertInto('tasks').values(rows).execute();
  expect(await countsByFirst(db, 'tasks')).toEqual({ LOST: 2, SUCCESS: 1 });
  await db.updateTable('tasks').set({ status: 'FAILED' }).where('id', '=', 'b').execute();
  await db
    .insertInto('tasks')
    .values(task('a', 'FAILED', 'n'))
    .onConflict(conflict => conflict.column('id').doUpdateSet({ status: 'FAILED' }))
    .execute();
  expect(await countsByFirst(db, 'tasks')).toEqual({ FAILED: 2, SUCCESS: 1 });
  expect(await keptCount(db, 'tasks', { status: 'FAILED', node_id: 'n', parent: undefined })).toBe(1);
  expect(await keptCount(db, 'tasks', { node_id: 'm' })).toBe(1);
  expect(await keptCount(db, 'tasks', {})).toBe(3);
  expect(await countsBySecond(db, 'tasks', ['FAILED', 'SUCCESS'])).toEqual(
    new Map([
      ['', 1],
      ['n', 1],
      ['m', 1],
    ]),
  );
  expect(await countOf(db, 'tasks', ['FAILED', 'LOST'], 'n')).toBe(1);
  await db.deleteFrom('tasks').where('node_id', 'is not', null).execute();
  expect(await keptCount(db, 'tasks', {})).toBe(1);
});

test('what is not counted by is for the caller to count, and so is what has no value', async () => {
  expect(await keptCount(db, 'tasks', { parent: 'p' })).toBeUndefined();
  expect(await keptCount(db, 'tasks', { node_id: '' })).toBeUndefined();
  expect(await keptCount(db, 'notifications', {})).toBeUndefined();
});

test('a change that is taken back counts as none', async () => {
  const failing = db.transaction().execute(async trx => {
    await trx
      .insertInto('tasks')
      .values(task('a', 'LOST', 'n'))
      .execute();
    await sql`select * from nothing`.execute(trx);
  });
  await expect(failing).rejects.toThrow();
  expect(await keptCount(db, 'tasks', {})).toBe(0);
});
