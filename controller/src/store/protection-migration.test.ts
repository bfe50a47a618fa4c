import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { first } from './migrations/0001-first.ts';
import { protection } from './migrations/0011-protection.ts';
import type { Database, FileRow } from './schema.ts';
import { openSqlite } from './sqlite.ts';

let db: Database;
beforeEach(async () => {
  db = openSqlite(':memory:');
  await first.up(db);
});
afterEach(() => db.destroy());

const CREATED = '2026-01-01T00:00:00.000Z';

function file(
  id: string,
  record: object,
  patch: Partial<FileRow> = {},
): Omit<FileRow, 'newest_point' | 'newest_whole_point'> {
  return {
    id,
    pool_id: 'p',
    path: `/p/${id}`,
    filename: id,
    verbose_name: id,
    description: '',
    size: 1,
    status: 'ACTIVE',
    type: 'tar',
    compressed: 0,
    can_be_incremental: 0,
    protected: 0,
    domain_id: 'd',
    domain_name: 'd',
    created: CREATED,
    record_json: JSON.stringify(record),
    modified: CREATED,
    ...patch,
  };
}

test('the newest restore points of the files of before are read from their records, however many there are', async () => {
  const states = (...times: (string | null)[]) => ({ states: times.map(created => ({ created })) });
  const many = Array.from({ length: 1100 }, (_, number) => file(`x${number}`, states(CREATED)));
  const rows = [
    ...many,
    file('increments', states('2026-01-02T00:00:00.000Z', '2026-01-03T00:00:00.000Z')),
    file('undated', states(null)),
    file('unread', {}),
    file('damaged', { ...states(CREATED), damage: 'cut off' }),
    file('definition', {}, { type: 'xml' }),
    file('coming', {}, { path: 'unpublished:coming', status: 'CREATING' }),
  ];
  for (const row of rows) await db.insertInto('files').values(row).execute();
  await protection.up(db);
  const found = await db.selectFrom('files').select(['id', 'newest_point']).execute();
  const points = Object.fromEntries(found.map(({ id, newest_point }) => [id, newest_point]));
  expect(many.every(({ id }) => points[id] === CREATED)).toBe(true);
  expect(points).toMatchObject({
    increments: '2026-01-03T00:00:00.000Z',
    undated: CREATED,
    unread: CREATED,
    damaged: null,
    definition: null,
    coming: null,
  });
});
