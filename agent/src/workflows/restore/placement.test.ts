import { describe, expect, test } from '@jest/globals';
import type { Manifest } from '../../archive/index.ts';
import { samplePool as pool } from '../../pools/sample-pool.ts';
import { filesOf, type PlacementInput, placeFiles } from './placement.ts';

const [fast, slow] = [pool('fast'), pool('slow')];
const layer = (member: string, formerPath: string | null) => ({
  member,
  stateNumber: 1,
  frozenBy: null,
  formerPath,
});

function manifestOf(former = '/pools/fast/a.qcow2', isoPath?: string): Manifest {
  const disk = {
    id: 'disk-id',
    target: 'vda',
    base: null,
    formerPath: former,
    layers: [layer('a.qcow2', former)],
  };
  const iso = {
    target: 'sda',
    member: 'cd.iso',
    formerPath: isoPath,
    sizeBytes: 10,
    poolId: null,
    poolName: null,
  };
  return {
    vm: { uuid: 'vm', name: 'vm' },
    disks: [disk],
    isos: isoPath === undefined ? [] : [iso],
    states: [],
    snapshots: [],
    members: [
      { name: 'a.qcow2', sizeBytes: 1000, allocatedBytes: 1 },
      { name: 'cd.iso', sizeBytes: 10 },
    ],
  } as unknown as Manifest;
}

const input = (change: Partial<PlacementInput> = {}): PlacementInput => ({
  manifest: manifestOf(),
  shape: 'chain',
  files: new Map(),
  memoryMembers: [],
  bytesOf: new Map([['a.qcow2', 100], ['cd.iso', 10]]), // biome-ignore format: pairs
  pools: [fast, slow],
  chosen: null,
  backupPool: slow,
  existing: new Set(),
  images: new Map(),
  originalFiles: new Set(),
  keepIdentity: false,
  free: new Map([['id-fast', 1000], ['id-slow', 1000]]), // biome-ignore format: pairs
  newId: () => 'new-id',
  ...change,
});
const topOf = (change: Partial<PlacementInput>) => placeFiles(input(change)).disks[0]!.layers.at(-1)!.path;
const failing = (change: Partial<PlacementInput>) => {
  try {
    placeFiles(input(change));
  } catch (error) {
    return error;
  }
  return undefined;
};

describe('where a disk goes', () => {
  test.each<[string, Partial<PlacementInput>, string]>([
    ['its former path', {}, '/pools/fast/a.qcow2'],
    ['the pool asked for, under a new id', { chosen: slow }, '/pools/slow/new-id.qcow2'],
    ['the pool asked for, under its own id', { chosen: slow, keepIdentity: true }, '/pools/slow/disk-id.qcow2'],
    [
      'beside the original that uses the path',
      { existing: new Set(['/pools/fast/a.qcow2']), originalFiles: new Set(['/pools/fast/a.qcow2']) },
      '/pools/fast/new-id.qcow2',
    ],
    ['where the backup is: its pool is gone', { pools: [slow] }, '/pools/slow/new-id.qcow2'],
    ['where the backup is: its pool is read-only', { pools: [pool('fast', { readonly: true }), slow] }, '/pools/slow/new-id.qcow2'],
    ['where the backup is: a path with dots', { manifest: manifestOf('/pools/fast/../../etc/x') }, '/pools/slow/new-id.qcow2'],
    ['where the backup is: a device', { manifest: manifestOf('/dev/zvol/tank/a') }, '/pools/slow/new-id.qcow2'],
    ['where the backup is: no room', { free: new Map([['id-slow', 1000]]) }, '/pools/slow/new-id.qcow2'],
    ['where the backup is: no room in the chosen one', { chosen: fast, free: new Map([['id-fast', 50], ['id-slow', 1000]]) }, '/pools/slow/new-id.qcow2'],
  ])('%s', (_name, change, path) => {
    expect(topOf(change)).toBe(path);
  }); // biome-ignore format: a table

  test('a change of the pool is told', () => {
    expect(placeFiles(input()).poolChanged).toBe(false);
    expect(placeFiles(input({ pools: [slow] })).poolChanged).toBe(true);
    const short = placeFiles(input({ chosen: fast, free: new Map([['id-slow', 1000]]) }));
    expect(short).toMatchObject({
      poolChanged: true,
      warnings: [expect.stringContaining('too little space')],
    });
  });

  test('where the backup is, since it was nowhere: nothing is moved', () => {
    const manifest = manifestOf('', 'cd.iso');
    manifest.disks[0]!.layers = [layer('a.qcow2', null)];
    const placed = placeFiles(input({ manifest, existing: new Set(['/pools/slow/cd.iso']) }));
    expect(placed).toMatchObject({ poolChanged: false, warnings: [] });
    expect(placed.disks[0]!.layers.map(({ path }) => path)).toEqual(['/pools/slow/new-id.qcow2']);
    expect([...placed.drives.values()]).toEqual(['/pools/slow/new-id.iso']);
  });

  test.each<[string, Partial<PlacementInput>]>([
    ['disk_path_in_use', { existing: new Set(['/pools/fast/a.qcow2']) }],
    ['disk_path_in_use', { existing: new Set(['/pools/fast/a.qcow2']), originalFiles: new Set(['/pools/fast/a.qcow2']), keepIdentity: true }],
    ['pool_no_space', { free: new Map() }],
    ['pool_no_space', { chosen: slow, free: new Map([['id-fast', 1000]]) }],
    ['pool_read_only', { chosen: pool('fast', { readonly: true }) }],
    ['pool_outside', { chosen: pool('fast', { outside: true }) }],
    ['pool_kind_unsupported', { chosen: pool('fast', { kind: 'lvm' }) }],
    ['pool_read_only', { pools: [], backupPool: pool('slow', { readonly: true }) }],
  ])('refused: %s', (msgKey, change) => {
    expect(failing(change)).toMatchObject({ msgKey });
  }); // biome-ignore format: a table
});

describe('what a drive shows', () => {
  const driveOf = (change: Partial<PlacementInput>) => placeFiles(input(change)).drives.get('sda');
  test('the image at its old path, when that lies in a pool', () => {
    expect(
      driveOf({
        manifest: manifestOf(undefined, '/pools/fast/cd.iso'),
        images: new Map([['/pools/fast/cd.iso', '/pools/fast/sub/real.iso']]),
      }),
    ).toBe('/pools/fast/sub/real.iso');
  });
  test('never another file of the host', () => {
    const existing = new Set(['/etc/shadow']);
    expect(driveOf({ manifest: manifestOf(undefined, '/etc/shadow'), existing })).toBe('/pools/slow/shadow');
  });
  test('the one from the backup otherwise', () => {
    expect(driveOf({ manifest: manifestOf(undefined, '/pools/fast/cd.iso') })).toBe('/pools/fast/cd.iso');
    expect(driveOf({ manifest: manifestOf(undefined, '/pools/fast/cd.iso'), chosen: slow })).toBe(
      '/pools/slow/cd.iso',
    );
  });
});

describe('two images of one name', () => {
  const names = () => {
    let count = 0;
    return () => `new-${++count}`;
  };
  /** A second disk and a second drive beside those of `manifestOf`. */
  function twoOf(id: string, former: string, isoPath?: string): Manifest {
    const manifest = manifestOf(undefined, isoPath && '/pools/fast/cd.iso');
    const [disk] = manifest.disks as [Manifest['disks'][number]];
    manifest.disks.push({
      ...disk,
      id,
      target: 'vdb',
      formerPath: former,
      layers: [layer('b.qcow2', former)],
    });
    if (isoPath)
      manifest.isos.push({ ...manifest.isos[0]!, target: 'sdb', member: 'cd2.iso', formerPath: isoPath });
    return manifest;
  }
  const pathsOf = (change: Partial<PlacementInput>) => {
    const { disks, images } = placeFiles(input({ newId: names(), ...change }));
    return [...disks.flatMap(filesOf), ...images].map(({ path }) => path);
  };

  test('disks of one id get ids of their own in one pool', () => {
    const manifest = twoOf('disk-id', '/pools/slow/a.qcow2');
    expect(pathsOf({ manifest, chosen: slow, keepIdentity: true })).toEqual([
      '/pools/slow/disk-id.qcow2',
      '/pools/slow/new-1.qcow2',
    ]);
  });

  test('disks that stood on one file get a file each', () => {
    const manifest = twoOf('other-id', '/pools/fast/a.qcow2');
    expect(pathsOf({ manifest })).toEqual(['/pools/fast/a.qcow2', '/pools/fast/new-1.qcow2']);
  });

  test('images of drives', () => {
    const manifest = twoOf('other-id', '/pools/fast/b.qcow2', '/pools/fast/sub/cd.iso');
    const { drives } = placeFiles(input({ newId: names(), manifest, chosen: slow }));
    expect([...drives.values()]).toEqual(['/pools/slow/cd.iso', '/pools/slow/new-3.iso']);
  });

  test('what is merged on the way is beside no file of another', () => {
    const manifest = twoOf('other-id', '/pools/fast/a.qcow2.layer1');
    manifest.disks[0]!.layers.push(layer('a1.qcow2', '/pools/fast/a1.qcow2'));
    const paths = pathsOf({ manifest, shape: 'flat' });
    expect(new Set(paths).size).toBe(3);
  });
});

describe('a disk of many layers', () => {
  const disk = {
    id: 'disk-id',
    target: 'vda',
    base: null,
    formerPath: '/pools/fast/e',
    layers: ['a', 'b', 'c', 'd', 'e'].map(name => layer(name, `/pools/fast/${name}`)),
  };
  const members = ['a', 'b', 'c', 'd', 'e'].map(name => ({ name, sizeBytes: 10 }));
  const manifest = { ...manifestOf(), disks: [disk], members } as unknown as Manifest;
  const placed = (change: Partial<PlacementInput>) =>
    placeFiles(input({ manifest, ...change })).disks.map(({ layers, fileOf }) => ({
      layers: layers.map(({ member, merged }) => [member, ...merged.map(upper => upper.member)].join('')),
      fileOf,
    }));

  test('has a file of each, or of those between two saved states', () => {
    expect(placed({})).toEqual([{ layers: ['a', 'b', 'c', 'd', 'e'], fileOf: [0, 1, 2, 3, 4] }]);
    const files = new Map([['vda', [0, 2, 4]]]);
    expect(placed({ files })).toEqual([{ layers: ['ab', 'cd', 'e'], fileOf: [0, 0, 1, 1, 2] }]);
  });

  test('has one file when it is flat, and one of the first layer when it stands on the archive', () => {
    expect(placed({ shape: 'flat' })).toEqual([{ layers: ['abcde'], fileOf: [0, 0, 0, 0, 0] }]);
    expect(placed({ shape: 'overlay' })).toEqual([{ layers: ['a'], fileOf: [0, 0, 0, 0, 0] }]);
  });
});
