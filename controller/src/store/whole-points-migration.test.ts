import { expect, test } from '@jest/globals';
import { first } from './migrations/0001-first.ts';
import { protection } from './migrations/0011-protection.ts';
import { wholePoints } from './migrations/0016-whole-points.ts';
import { openSqlite } from './sqlite.ts';

test('nothing is late since nobody has told yet of disks that were left out', async () => {
  const db = openSqlite(':memory:');
  await first.up(db);
  await protection.up(db);
  const file = {
    ...{ pool_id: 'p', filename: 'f', verbose_name: 'f', description: '', size: 1, status: 'ACTIVE' },
    ...{ type: 'tar', compressed: 0, can_be_incremental: 0, protected: 0, domain_id: 'd', domain_name: 'd' },
    ...{ created: 't1', record_json: '{}', modified: 't1' },
  };
  for (const [id, newest_point] of [['good', 't2'] as const, ['damaged', null] as const])
    await db
      .insertInto('files')
      .values({ ...file, id, path: `/${id}`, filename: id, newest_point })
      .execute();
  await wholePoints.up(db);
  const rows = await db
    .selectFrom('files')
    .select(['id', 'newest_whole_point as at'])
    .orderBy('id')
    .execute();
  expect(rows).toEqual([
    { id: 'damaged', at: null },
    { id: 'good', at: 't2' },
  ]);
  await db.destroy();
});
