import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { listRows, type RowQuery } from './list-rows.ts';
import type { Database } from './schema.ts';
import { openTestDatabase } from './test-database.ts';

let db: Database;

beforeEach(async () => {
  db = await openTestDatabase();
  const event = { type: 'info', detail_message: '', user: 'u', created: '2026-01-01', task_id: null };
  const messages = ['Backup 100%', 'backup_100', 'Restore', 'BACKUP of x'];
  for (const [sequence, message] of messages.entries())
    await db
      .insertInto('events')
      .values({ ...event, id: `e${sequence}`, sequence, message, user: sequence < 3 ? 'ann' : 'bob' })
      .execute();
  await db
    .insertInto('event_entities')
    .values({ event_id: 'e2', position: 0, entity_id: 'd', entity_class: 'domain' })
    .execute();
});
afterEach(() => db.destroy());

const list = async (changes: Partial<RowQuery<'events'>> = {}) => {
  const all = { equal: {}, containing: {}, orderBy: ['sequence'], descending: false, limit: 100, offset: 0 };
  const { count, rows } = await listRows(db, 'events', { ...all, ...changes } as RowQuery<'events'>);
  return [count, ...rows.map(({ id }) => id)];
};

test('what is not asked for matches everything, a page counts all that match', async () => {
  const equal = { type: undefined, user: undefined };
  expect(await list({ equal, containing: { message: undefined } })).toEqual([4, 'e0', 'e1', 'e2', 'e3']);
  expect(await list({ limit: 2, offset: 1, descending: true })).toEqual([4, 'e2', 'e1']);
  expect(await list({ offset: 9 })).toEqual([4]);
});

test('a page behind the middle is read from the other end, and is the same', async () => {
  expect(await list({ limit: 2, offset: 3 })).toEqual([4, 'e3']);
  expect(await list({ limit: 1, offset: 3, descending: true })).toEqual([4, 'e0']);
  expect(await list({ limit: 2, offset: 1, orderBy: ['user', 'id'], equal: { user: 'ann' } })).toEqual([
    3,
    'e1',
    'e2',
  ]);
  expect(await list({ limit: 1, offset: 2, orderBy: ['user', 'id'], containing: { message: 'b' } })).toEqual([
    3,
    'e3',
  ]);
});

test('conditions narrow each other', async () => {
  expect(await list({ equal: { user: 'ann' }, containing: { message: 'BACKup' } })).toEqual([2, 'e0', 'e1']);
  expect(await list({ equal: { user: 'nobody' } })).toEqual([0]);
  const ofDomain = {
    and: eb => [eb('id', 'in', eb.selectFrom('event_entities').select('event_id'))],
  } satisfies Partial<RowQuery<'events'>>;
  expect(await list(ofDomain)).toEqual([1, 'e2']);
  expect(await list({ ...ofDomain, equal: { user: 'bob' } })).toEqual([0]);
  expect(await list({ and: () => [] })).toHaveLength(5);
});

test('a part of a text means itself, whatever it means to the database', async () => {
  expect(await list({ containing: { message: '0%' } })).toEqual([1, 'e0']);
  expect(await list({ containing: { message: 'p_1' } })).toEqual([1, 'e1']);
});

test('equal values are told apart by the next column, in the same direction', async () => {
  expect(await list({ orderBy: ['user', 'id'] })).toEqual([4, 'e0', 'e1', 'e2', 'e3']);
  expect(await list({ orderBy: ['user', 'id'], descending: true })).toEqual([4, 'e3', 'e2', 'e1', 'e0']);
});
