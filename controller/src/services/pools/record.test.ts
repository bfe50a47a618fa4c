import { expect, test } from '@jest/globals';
import { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { listedPool, poolRecord } from './record.ts';

const row = {
  id: 'p',
  verbose_name: 'pool',
  description: '',
  type: 'nfs',
  outside: 0,
  backup_bandwidth: 0,
  latency_target: 0,
  readonly: 0,
  created: '',
  modified: '',
};
const view = (part: Partial<Pool>) => Pool.fromPartial({ id: 'p', active: true, mounted: true, ...part });

test('sizes are those of a node that can use the pool now', () => {
  const views = new Map([
    ['away', view({ available: 1n })],
    ['stopped', view({ active: false, available: 2n, ownership: '/p belongs to the user 7' })],
    ['here', view({ available: 3n, isBase: true })],
  ]);
  const nodes = [
    { id: 'away', verbose_name: 'a', connected: false },
    { id: 'stopped', verbose_name: 's', connected: true },
    { id: 'here', verbose_name: 'h', connected: true },
  ];
  const record = poolRecord({ row, views }, nodes, 5);
  expect(record).toMatchObject({
    status: 'ACTIVE',
    free_space: 3,
    shared: true,
    shared_storage: { id: 'p', verbose_name: expect.any(String) },
    is_base: true,
    file_count: 5,
    ownership: '/p belongs to the user 7',
  });
  expect(record.nodes_connected.map(node => node.connection_status)).toEqual([
    'FAILED',
    'INACTIVE',
    'ACTIVE',
  ]);
});

test('is FAILED with the last known sizes while all its nodes are away, and keeps its marks', () => {
  const views = new Map([['n', view({ capacity: 9n, readonly: true })]]);
  const record = poolRecord({ row, views }, [{ id: 'n', verbose_name: 'n', connected: false }], 0);
  expect(record).toMatchObject({
    status: 'FAILED',
    size: 9,
    readonly: true,
    shared: false,
    shared_storage: null,
  });
  const marked = poolRecord({ row: { ...row, outside: 1 }, views }, [], 0);
  expect(marked.outside).toBe(true);
});

test('is put in order by what its record says', () => {
  const kinds = {
    away: { connected: false, part: { available: 1n } },
    stopped: { connected: true, part: { active: false, available: 2n } },
    here: { connected: true, part: { available: 3n } },
  };
  const names = Object.keys(kinds) as (keyof typeof kinds)[];
  for (const some of [
    ['away'],
    ['away', 'stopped'],
    ['stopped', 'here'],
    names,
    names.toReversed(),
  ] as (typeof names)[]) {
    const views = new Map(some.map(name => [name, view(kinds[name].part)]));
    const nodes = some.map(name => ({ id: name, verbose_name: name, connected: kinds[name].connected }));
    const isConnected = (nodeId: string) => kinds[nodeId as 'away'].connected;
    expect(poolRecord({ row, views }, nodes, 5)).toMatchObject(listedPool({ row, views }, isConnected, 5));
  }
});
