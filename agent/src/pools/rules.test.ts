import { describe, expect, test } from '@jest/globals';
import {
  type BackupSource,
  backupSourceRefusal,
  backupTargetRefusal,
  basePoolId,
  buildPool,
  outsidePools,
  parsePool,
  placeOf,
  poolKind,
  poolMarks,
  poolOfPath,
  readablePool,
  setPoolMarks,
  withMarks,
} from './index.ts';
import { samplePool as pool } from './sample-pool.ts';

const NODE = '99999999-2222-4333-8444-555555555555';

const file = (path: string) => ({ type: 'file', path, source: path });
const block = (path: string) => ({ type: 'block', path, source: path });

describe('kinds', () => {
  test.each([
    [
      "<pool type='dir'><name>d</name><uuid>U</uuid><target><path>/d</path></target></pool>",
      undefined,
      'local',
    ],
    ["<pool type='dir'><name>d</name></pool>", 'nfs', 'nfs'],
    ["<pool type='netfs'><name>n</name><source><format type='auto'/></source></pool>", undefined, 'nfs'],
    [
      "<pool type='netfs'><name>n</name><source><format type='glusterfs'/></source></pool>",
      undefined,
      'glusterfs',
    ],
    ["<pool type='zfs'><name>z</name><source><name>tank/vm</name></source></pool>", undefined, 'zfs'],
    ["<pool type='logical'><name>l</name><source><name>vg0</name></source></pool>", undefined, 'lvm'],
    ["<pool type='logical'><name>l</name><source><name>vg_thin</name></source></pool>", undefined, 'thinlvm'],
    ["<pool type='logical'><name>lvm-shared</name></pool>", undefined, 'lvm-shared'],
    ["<pool type='iscsi'><name>i</name></pool>", undefined, 'iscsi'],
  ])('%s', (xml, network, kind) => {
    expect(poolKind(parsePool(xml), network)).toBe(kind);
  });

  test('the directory of a pool is named as the disks in it are', () => {
    const xml = "<pool type='dir'><name>d</name><target><path>/srv/./images</path></target></pool>";
    expect(parsePool(xml).path).toBe('/srv/images');
  });

  test('a pool that is no XML is refused as such', () => {
    expect(() => parsePool('<domain/>')).toThrow(expect.objectContaining({ msgKey: 'xml_invalid' }));
  });

  test('buildPool joins definition, numbers, mount and marks', () => {
    const definition = { id: 'u', name: 'n', type: 'netfs', path: '/n', format: 'nfs' };
    const numbers = { active: true, capacity: 3, allocation: 2, available: 1 };
    const mount = { mounted: false, marker: false, readonly: true, network: undefined, mountPoint: '/' };
    const marks = { readonly: false, outside: false, description: 'x', marker: true };
    expect(withMarks(buildPool(definition, numbers, mount), marks)).toMatchObject({
      kind: 'nfs', mounted: false, readonly: true, shared: true, description: 'x', available: 1,
    }); // biome-ignore format: one record
  });
});

describe('backupTargetRefusal', () => {
  test.each([
    [{}, undefined],
    [{ kind: 'lvm', hasDirectory: false }, 'pool_kind_unsupported'],
    [{ kind: 'thinlvm', hasDirectory: false }, 'pool_kind_unsupported'],
    [{ kind: 'lvm-shared', hasDirectory: false }, 'pool_kind_unsupported'],
    [{ kind: 'zfs', hasDirectory: false }, 'pool_kind_unsupported'],
    [{ readonly: true }, 'pool_read_only'],
    [{ outside: true, readonly: true }, 'pool_outside'],
    [{ active: false, mounted: false }, 'pool_not_active'],
    [{ mounted: false }, 'pool_not_mounted'],
    [{ readonly: true, active: false }, 'pool_read_only'],
    [{ readonly: true, hasDirectory: false }, 'pool_kind_unsupported'],
    [{ othersMayWrite: { how: 'anybody may', refused: true } }, 'pool_ownership'],
    [{ othersMayWrite: { how: 'anybody may', refused: true }, mounted: false }, 'pool_not_mounted'],
  ] as const)('%j: %s', (change, key) => {
    expect(backupTargetRefusal(pool('p', change))?.msgKey).toBe(key);
  });

  test('a pool without a place is no target', () => {
    const { path: _, ...placeless } = pool('p');
    expect(backupTargetRefusal(placeless)?.msgKey).toBe('pool_kind_unsupported');
  });
});

describe('readablePool', () => {
  test.each([
    [{ readonly: true, outside: true }, undefined],
    [{ othersMayWrite: { how: 'anybody may', refused: true } }, undefined],
    [{ kind: 'lvm', hasDirectory: false, active: false }, 'pool_kind_unsupported'],
    [{ path: '' }, 'pool_kind_unsupported'],
    [{ active: false, mounted: false }, 'pool_not_active'],
    [{ mounted: false, readonly: true }, 'pool_not_mounted'],
  ] as const)('%j: %s', (change, key) => {
    const read = () => readablePool([pool('p', change)], 'id-p', 'n1');
    if (key === undefined) expect(read().path).toBe('/pools/p');
    else expect(read).toThrow(expect.objectContaining({ msgKey: key }));
  });

  test('of an unknown id is none', () => {
    expect(() => readablePool([pool('p')], 'x', 'n1')).toThrow(
      expect.objectContaining({ msgKey: 'pool_not_found' }),
    );
  });
});

describe('backupSourceRefusal', () => {
  const source = (change: Partial<BackupSource>): BackupSource => ({
    domain: 'vm', running: true, hasStates: false, incremental: false, datasets: [], mdevs: [], disks: [file('/pools/a/x.qcow2')], ...change,
  }); // biome-ignore format: one record
  const pools = [
    pool('a'),
    pool('vg', { kind: 'lvm', path: '/dev/vg0', hasDirectory: false }),
    pool('tank', { kind: 'zfs', path: '/dev/zvol/tank', hasDirectory: false }),
  ];
  const volume = { type: 'volume', volume: { pool: 'vg', name: 'x' }, source: 'vg/x' };

  test.each([
    ['a plain disk', {}, undefined],
    ['an LVM disk by pool', { disks: [block('/dev/vg0/lv')] }, 'pool_kind_unsupported'],
    ['an LVM volume', { disks: [volume] }, 'pool_kind_unsupported'],
    ['an LVM disk of no pool', { disks: [block('/dev/other/lv')] }, 'pool_kind_unsupported'],
    ['a mapped LVM disk', { disks: [block('/dev/mapper/vg-lv')] }, 'pool_kind_unsupported'],
    ['an LVM disk by id', { disks: [block('/dev/disk/by-id/dm-uuid-LVM-x')] }, 'pool_kind_unsupported'],
    ['a multipath disk', { disks: [block('/dev/mapper/mpatha')] }, undefined],
    ['a partition', { disks: [block('/dev/sdb1')] }, undefined],
    ['a disk by id', { disks: [block('/dev/disk/by-id/scsi-1')] }, undefined],
    ['a zvol', { disks: [block('/dev/zvol/tank/v')] }, undefined],
    ['a zvol with states', { disks: [block('/dev/zvol/tank/v')], hasStates: true }, 'zfs_with_states'],
    [
      'a zvol of no pool with states',
      { disks: [block('/dev/zvol/p/v')], hasStates: true },
      'zfs_with_states',
    ],
    ['states', { hasStates: true }, undefined],
    ['an increment', { incremental: true }, undefined],
    ['files on a dataset', { datasets: ['tank/vm'] }, undefined],
    ['files on a dataset with states', { datasets: ['tank/vm'], hasStates: true }, 'zfs_with_states'],
    ['an increment of files on a dataset', { datasets: ['tank/vm'], incremental: true }, 'zfs_incremental'],
    ['an increment of a zvol', { disks: [block('/dev/zvol/tank/v')], incremental: true }, 'zfs_incremental'],
    ['an mdev on a running VM', { mdevs: ['m'] }, 'mdev_running'],
    ['an mdev on an off VM', { mdevs: ['m'], running: false }, undefined],
  ] as const)('%s', (_what, change, key) => {
    expect(backupSourceRefusal(source(change), pools)?.msgKey).toBe(key);
  });
});

describe('places', () => {
  test('the deepest pool wins, and a pool over an outside one of the same directory', () => {
    const pools = [
      pool('a', { path: '/p' }),
      pool('b', { path: '/p/b' }),
      pool('o', { path: '/p/b', outside: true }),
      pool('c', { path: '/p/bb' }),
    ];
    expect(poolOfPath('/p/b/x', pools)?.name).toBe('b');
    expect(poolOfPath('/p/b/x', [...pools].reverse())?.name).toBe('b');
    expect(poolOfPath('/p/bc', pools)?.name).toBe('a');
    expect(poolOfPath('/q', pools)).toBeUndefined();
    expect(placeOf({ type: 'network', source: 'rbd:x' }, pools)).toEqual({ kind: '', name: 'rbd:x' });
  });

  test('outside pools are made of node and directory', () => {
    const paths = ['/o/a.qcow2', '/o/b.qcow2', '/pools/a/in.qcow2', '/dev/sda', 'relative'];
    const made = outsidePools(paths, [pool('a')], NODE);
    expect(made).toMatchObject([{ name: '/o', path: '/o', kind: 'outside', outside: true, readonly: true }]);
    expect(outsidePools(['/o/x'], [], NODE)[0]?.id).toBe(made[0]?.id);
    expect(outsidePools(['/o/x'], [], 'aaaaaaaa-2222-4333-8444-555555555555')[0]?.id).not.toBe(made[0]?.id);
  });
});

describe('base pool', () => {
  test('the chosen one, else default, else a local one, else any usable', () => {
    const nfs = pool('a-nfs', { kind: 'nfs', shared: true });
    const pools = [nfs, pool('z'), pool('default'), pool('lvm', { kind: 'lvm', hasDirectory: false })];
    expect(basePoolId(pools, 'id-lvm')).toBe('id-lvm');
    expect(basePoolId(pools, 'gone')).toBe('id-default');
    expect(basePoolId([nfs, pool('z')], undefined)).toBe('id-z');
    expect(basePoolId([nfs], undefined)).toBe('id-a-nfs');
    expect(basePoolId([pool('r', { readonly: true })], undefined)).toBeUndefined();
  });
});

test('marks are kept one by one', () => {
  const store = new Map<string, unknown>();
  const settings = {
    get: (key: string) => store.get(key),
    set: (key: string, value: unknown) => void store.set(key, value),
  };
  setPoolMarks(settings, 'p', { description: 'd', readonly: undefined });
  setPoolMarks(settings, 'p', { readonly: true });
  expect(poolMarks(settings, 'p')).toEqual({
    readonly: true,
    outside: false,
    description: 'd',
    marker: false,
  });
  expect(poolMarks(settings, 'q').readonly).toBe(false);
});
