import { expect, test } from '@jest/globals';
import { ZfsDriver } from '../zfs/index.ts';
import { LENDING_STATE, savedStateId, savedStateMessage } from './index.ts';
import { asSavedState, instantProperties, snapshotNameOf, zfsHoldings, zfsInstants } from './zfs-instants.ts';

const OWNER = '0b0c8a52-8f0e-4ac6-9a52-6f2d0c5f3e11';
const OTHER = '1b0c8a52-8f0e-4ac6-9a52-6f2d0c5f3e11';
const signal = () => AbortSignal.timeout(60_000);

/** A node whose zfs lists these rows. */
function node(snapshots: string[][], clones: string[][] = [], hasZfs = true): ZfsDriver {
  const table = (rows: string[][]) => rows.map(row => `${row.join('\t')}\n`).join('');
  return new ZfsDriver({
    zfs: async args => {
      if (!hasZfs) throw new Error('zfs was asked');
      return { code: 0, stdout: table(args.includes('snapshot') ? snapshots : clones), stderr: '' };
    },
    mountInfo: async () => '',
    realPath: async () => (hasZfs ? '/dev/zfs' : null),
  });
}

const row = (dataset: string, owner: string, created = '1700000000') => [
  `${dataset}@${snapshotNameOf(owner)}`, owner, created, 'vda:vdb',
]; // biome-ignore format: a row

test('the snapshots of a domain are one instant, with the id of a saved state', async () => {
  const found = await zfsInstants(
    node([row('tank/a', OWNER), row('fast/b', OWNER), row('tank/a', OTHER)]),
    signal(),
  );
  expect([...found.keys()]).toEqual([OWNER, OTHER]);
  const instant = found.get(OWNER)!;
  expect(instant).toMatchObject({ name: LENDING_STATE, targets: ['vda', 'vdb'], createdUnix: 1_700_000_000 });
  expect(instant.snapshots.map(name => name.split('@')[0])).toEqual(['tank/a', 'fast/b']);
  expect(instant.id).toBe(savedStateId(OWNER, { name: LENDING_STATE, createdUnix: 1_700_000_000 }));
  expect(savedStateMessage(OWNER, asSavedState(instant))).toMatchObject({
    id: instant.id,
    name: LENDING_STATE,
    targets: ['vda', 'vdb'],
    memory: false,
  });
});

test('other snapshots are none, also with our property on them', async () => {
  const rows = [
    ['tank/a@mine', '-', '-', '-'],
    ['tank/a@copy', OWNER, '17', 'vda'],
    row('tank/a', OWNER).with(1, OTHER),
  ];
  expect((await zfsInstants(node(rows), signal())).size).toBe(0);
});

test('a node without zfs is asked nothing', async () => {
  expect((await zfsInstants(node([], [], false), signal())).size).toBe(0);
});

test('what is written is what is read', () => {
  expect(instantProperties(OWNER, 17, ['vda', 'vdb'])).toEqual({
    owner: OWNER,
    created: '17',
    targets: 'vda:vdb',
  });
});

test('an instant can go when no clone stands on it, whoever made that', async () => {
  const snapshots = [row('tank/a', OWNER), row('tank/b', OTHER)];
  const clones = [
    ['tank', '-', '-', '-', '-'],
    ['tank/mine', snapshots[0]![0]!, '-', '-', '-'],
    ['tank/x', 'tank/z@y', OWNER, 'disk', 'borrower'],
  ];
  const holdings = await zfsHoldings(node(snapshots, clones), signal());
  expect([...holdings.releasable]).toEqual([OTHER]);
  expect(holdings.hasClone(OWNER, 'disk', 'borrower')).toBe(true);
  expect(holdings.hasClone(OWNER, 'disk', 'another')).toBe(false);
});
