import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { first } from './migrations/0001-first.ts';
import { certificates } from './migrations/0004-certificates.ts';
import type { Database } from './schema.ts';
import { openSqlite } from './sqlite.ts';

let db: Database;
beforeEach(async () => {
  db = openSqlite(':memory:');
  await first.up(db);
});
afterEach(() => db.destroy());

test('a node of an installation of before is known by the fingerprint that it was enrolled with', async () => {
  const row = {
    id: 'some-node',
    verbose_name: 'n1',
    description: '',
    address: 'n1:8444',
    certificate_fingerprint: 'abc',
    service_mode: 0,
    base_datapool: null,
    inventory_json: '{}',
    operation_sequence: 0,
    last_seen: null,
    created: '2026-01-02T03:04:05.678Z',
    modified: '2026-01-02T03:04:05.678Z',
  };
  await db.insertInto('nodes').values(row).execute();
  await certificates.up(db);
  expect(await db.selectFrom('certificates').selectAll().execute()).toEqual([
    expect.objectContaining({
      serial: 'before:some-node',
      kind: 'node',
      subject: 'some-node',
      fingerprint: 'abc',
      superseded: 0,
      revoked_on: null,
    }),
  ]);
});
