import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { InventoryEvent, NodeInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { Inventory } from './inventory.ts';
import { nodeRow } from './test-kit.ts';

const NODE = 'node-1';
const OTHER = 'node-2';
let db: Database;
let inventory: Inventory;

beforeEach(async () => {
  db = await openTestDatabase();
  inventory = new Inventory(db, () => {});
  for (const id of [NODE, OTHER]) await inventory.putNode(nodeRow(id));
});
afterEach(() => db.destroy());

const domainOf = (id: string) => Domain.fromPartial({ id, name: id });
const tell = (event: InventoryEvent['event']) => inventory.apply(NODE, { event, revision: 0n });
const fullOf = (...ids: string[]): InventoryEvent => {
  const node = NodeInfo.fromPartial({ id: NODE, libvirtConnected: true });
  return InventoryEvent.fromPartial({
    event: { $case: 'full', value: { node, domains: ids.map(domainOf), pools: [] } },
  });
};

test('others get their turn while all of a node is taken over', async () => {
  let isDone = false;
  let turns = 0;
  const other = () => {
    turns += 1;
    if (!isDone) setImmediate(other);
  };
  setImmediate(other);
  await inventory.apply(NODE, fullOf(...Array.from({ length: 2000 }, (_, index) => `vm-${index}`)));
  isDone = true;
  expect(inventory.domains.size).toBe(2000);
  expect(turns).toBeGreaterThan(2);
});

test('what is heard of while all of a node is taken over is not taken away with what is gone', async () => {
  await inventory.apply(NODE, fullOf('stays', 'goes'));
  const taken = inventory.apply(NODE, fullOf('stays'));
  await inventory.domainChanged(NODE, domainOf('new'));
  await taken;
  expect([...inventory.domains.keys()].sort()).toEqual(['new', 'stays']);
});

test('an older record does not take the place of a newer one that came another way', async () => {
  const record = (name: string, revision: bigint) => Domain.fromPartial({ id: 'vm', name, revision });
  const nameNow = () => inventory.domain('vm').domain.name;
  await inventory.domainChanged(NODE, record('asked for', 8n));
  await tell({ $case: 'domainChanged', value: record('told before', 7n) });
  expect(nameNow()).toBe('asked for');
  await tell({ $case: 'domainChanged', value: record('told after', 9n) });
  expect(nameNow()).toBe('told after');
  await inventory.apply(NODE, fullOf('vm'));
  expect(nameNow()).toBe('vm');
});

test('of two records of a domain that come at once the newer one stays', async () => {
  const told = (name: string, revision: bigint) =>
    inventory.domainChanged(NODE, Domain.fromPartial({ id: 'vm', name, revision }));
  await Promise.all([told('newer', 8n), told('older', 7n)]);
  expect(inventory.domain('vm').domain.name).toBe('newer');
});

describe('a pool', () => {
  const pool = Pool.fromPartial({ id: 'p', name: 'pool' });

  test('that two nodes tell of at once is seen by both', async () => {
    await Promise.all([inventory.poolChanged(NODE, pool), inventory.poolChanged(OTHER, pool)]);
    expect([...inventory.pool('p').views.keys()].sort()).toEqual([NODE, OTHER]);
  });

  test('that its last node has lost has no node, also after a restart, until one has it again', async () => {
    const heard: string[] = [];
    inventory.setPoolWatcher(async id => void heard.push(`${id} ${inventory.isOrphaned(id)}`));
    for (const id of [NODE, OTHER]) await inventory.poolChanged(id, pool);
    await tell({ $case: 'poolRemoved', value: 'p' });
    expect(heard).toEqual([]);
    await inventory.apply(OTHER, { event: { $case: 'poolRemoved', value: 'p' }, revision: 0n });
    expect(heard).toEqual(['p true']);
    const again = new Inventory(db, () => {});
    await again.load();
    expect([...again.orphanedPools]).toEqual(['p']);
    await inventory.poolChanged(NODE, pool);
    expect(heard).toEqual(['p true', 'p false']);
    await again.load();
    expect([...again.orphanedPools]).toEqual([]);
  });

  test('that a node tells of while it is marked keeps the mark', async () => {
    await inventory.poolChanged(NODE, pool);
    await Promise.all([
      inventory.poolChanged(NODE, { ...pool, name: 'renamed' }),
      inventory.updatePool('p', { readonly: 1 }),
    ]);
    expect(inventory.pool('p').row).toMatchObject({ readonly: 1, verbose_name: 'renamed' });
    const again = new Inventory(db, () => {});
    await again.load();
    expect(again.pool('p').row).toMatchObject({ readonly: 1, verbose_name: 'renamed' });
  });
});
