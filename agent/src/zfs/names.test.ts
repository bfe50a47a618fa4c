import { describe, expect, test } from '@jest/globals';
import { mountOf, mountPointOf } from './mounts.ts';
import { cloneIdOf, cloneNameFor, isDatasetName, isSnapshotName, poolOf } from './names.ts';

const ID = '0b0c8a52-8f0e-4ac6-9a52-6f2d0c5f3e11';

describe('names', () => {
  test.each(['tank', 'tank/vm', 'tank/a b', 'tank/vm_1.x:y-z', `tank/${'x'.repeat(250)}`])(
    '%s is a dataset',
    name => {
      expect(isDatasetName(name)).toBe(true);
    },
  );

  test.each([
    '', '/', '/tank', 'tank/', 'tank//x', 'tank/..', '-r', 'tank/-r', 'tank/a@b', 'tank/a,b', 'tank/a%recv', 'tank/a\nb',
    'tank/a;b', `tank/${'x'.repeat(251)}`,
  ])('%j is none', name => {
    expect(isDatasetName(name)).toBe(false);
  }); // biome-ignore format: a table

  test('of snapshots', () => {
    expect(isSnapshotName('tank/vm@a-1')).toBe(true);
    for (const name of ['tank/vm', 'tank@', '@a', 'a@b@c', 'a@-r', 'a@b/c', 'a@b%'])
      expect(isSnapshotName(name)).toBe(false);
    expect([poolOf('tank/a/b'), poolOf('tank@x'), poolOf('tank')]).toEqual(['tank', 'tank', 'tank']);
  });

  test('of clones', () => {
    expect(cloneNameFor('tank/a/b', ID)).toBe(`tank/a/virtkeep-${ID}`);
    expect(cloneNameFor('tank', ID)).toBe(`tank/virtkeep-${ID}`);
    expect(cloneIdOf(`tank/a/virtkeep-${ID}`)).toBe(ID);
    expect(cloneIdOf(`tank/virtkeep-${ID}/x`)).toBeUndefined();
    expect(cloneIdOf('tank/virtkeep-x')).toBeUndefined();
    expect(() => cloneNameFor(`tank/${'x'.repeat(240)}/y`, ID)).toThrow('name');
  });
});

describe('mounts', () => {
  const table = [
    '22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw',
    '40 22 0:41 / /tank rw,relatime shared:7 - zfs tank rw,xattr,noacl',
    '41 40 0:42 / /tank/vm rw - zfs tank/vm rw',
    '42 22 0:42 /images /var/lib/libvirt/images rw shared:8 master:2 - zfs tank/vm rw',
    '43 22 0:44 / /fuse rw,relatime - fuse.zfs pool/a\\040b rw,user_id=0',
    '44 22 0:45 / /sshfs rw - fuse.sshfs tank rw',
    '45 41 0:46 / /tank/vm/nfs rw - nfs4 server:/x rw',
    '46 22 0:47 / /odd rw - zfs ../../x rw',
    '',
  ].join('\n');

  test.each([
    ['/tank/vm/a.qcow2', 'tank/vm', '/'],
    ['/tank/vmx', 'tank', '/'],
    ['/var/lib/libvirt/images/a', 'tank/vm', '/images'],
    ['/fuse/a', 'pool/a b', '/'],
  ])('%s is on %s', (path, dataset, root) => {
    expect(mountOf(table, path)).toMatchObject({ dataset, root });
  });

  test.each(['/home/a', '/sshfs/a', '/tank/vm/nfs/a', '/odd/a'])('%s is on no dataset', path => {
    expect(mountOf(table, path)).toBeNull();
  });

  test('a mount above another at the same place hides it', () => {
    expect(mountOf(`${table}50 22 0:50 / /tank rw - tmpfs none rw\n`, '/tank/a')).toBeNull();
  });

  test('where a whole dataset is', () => {
    expect(mountPointOf(table, 'tank/vm')).toBe('/tank/vm');
    expect(mountPointOf(table, 'pool/a b')).toBe('/fuse');
    expect(mountPointOf(table, 'tank/none')).toBeNull();
  });
});
