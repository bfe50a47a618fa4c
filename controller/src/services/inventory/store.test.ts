import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { InventoryStore } from './store.ts';
import { entryOf, nodeRow } from './test-kit.ts';

const NOW = '2026-01-01T00:00:00.000Z';
let db: Database;
let store: InventoryStore;

beforeEach(async () => {
  db = await openTestDatabase();
  store = new InventoryStore(db);
  await store.putNode(nodeRow('node'));
});
afterEach(() => db.destroy());

const stored = (id: string, nodeId = 'node') =>
  entryOf({ id, name: id }, nodeId, { firstSeen: NOW, modified: NOW });
const ids = async () => (await store.domains()).map(row => row.id).sort();

test('what many put at one time is there when each of them has been waited for', async () => {
  const all = Array.from({ length: 250 }, (_, index) => `vm-${index}`);
  await Promise.all(all.map(id => store.putDomains([stored(id)])));
  expect(await ids()).toEqual(all.sort());
  await store.putDomains([]);
});

test('a node may tell of more at one time than one statement binds', async () => {
  const all = Array.from({ length: 7000 }, (_, index) => `vm-${index}`);
  await store.putDomains(all.map(id => stored(id)));
  expect(await ids()).toEqual(all.sort());
});

test('what one of them cannot put is no fault of the others', async () => {
  const puts = [stored('a'), stored('b', 'removed'), stored('c')].map(one => store.putDomains([one]));
  expect((await Promise.allSettled(puts)).map(({ status }) => status)).toEqual([
    'fulfilled',
    'rejected',
    'fulfilled',
  ]);
  expect(await ids()).toEqual(['a', 'c']);
  await expect(store.putDomains([stored('d', 'removed')])).rejects.toThrow();
});
