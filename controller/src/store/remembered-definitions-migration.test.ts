import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { NO_DETAILS } from '../services/backup-files/record.ts';
import { first } from './migrations/0001-first.ts';
import { rememberedDefinitions } from './migrations/0006-remembered-definitions.ts';
import type { Database } from './schema.ts';
import { openSqlite } from './sqlite.ts';

let db: Database;
beforeEach(async () => {
  db = openSqlite(':memory:');
  await first.up(db);
});
afterEach(() => db.destroy());

test('a definition that the version before remembered with its secrets is in the database no more; what else it knows is', async () => {
  const configuration = { name: 'vm', disks: [{ targetDev: 'vda' }] };
  const xml = '<domain><graphics type="vnc" passwd="s3cr3t"/></domain>';
  const details = { ...NO_DETAILS, archive_id: 'a', shown: { xml, configuration } };
  const row = {
    id: 'f',
    pool_id: 'p',
    path: '/p/backups/a.tar',
    filename: 'a.tar',
    verbose_name: 'vm',
    description: 'mine',
    size: 10,
    status: 'MISSING',
    type: 'tar',
    compressed: 0,
    can_be_incremental: 1,
    protected: 1,
    domain_id: 'd',
    domain_name: 'vm',
    created: '2026-01-02T03:04:05.000Z',
    record_json: JSON.stringify(details),
    modified: '2026-01-02T03:04:05.000Z',
  };
  const others = [
    NO_DETAILS,
    { ...NO_DETAILS, shown: { configuration } },
    { ...NO_DETAILS, grown: '"xml":' },
  ];
  const unchanged = others.map((other, index) => ({
    ...row,
    id: `other${index}`,
    path: `/p/${index}`,
    filename: `${index}`,
    record_json: JSON.stringify(other),
  }));
  await db
    .insertInto('files')
    .values([row, ...unchanged])
    .execute();
  await rememberedDefinitions.up(db);
  const record_json = JSON.stringify({ ...details, shown: { configuration } });
  expect(await db.selectFrom('files').selectAll().orderBy('id').execute()).toEqual([
    { ...row, record_json },
    ...unchanged,
  ]);
});
