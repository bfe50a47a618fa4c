import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import {
  blockKeys,
  deviceKeysOf,
  isUnknownDevice,
  mayBeBlockDevice,
  namesDevice,
  networkKey,
} from './device-keys.ts';

test.each([
  [
    { protocol: 'iscsi', name: 'iqn.2013-07.com.example:lab/2', host: { name: 'a' } },
    'iscsi:iqn.2013-07.com.example:lab/2',
  ],
  [{ protocol: 'iscsi', name: 'IQN.2013-07.com.example:lab' }, 'iscsi:iqn.2013-07.com.example:lab/0'],
  [{ protocol: 'rbd', name: 'pool/image', host: { name: 'mon1' } }, 'rbd:pool/image'],
  [{ protocol: 'rbd', name: 'pool/image' }, 'rbd:pool/image'],
  [{ protocol: 'nbd', name: 'disk', host: { name: 'Store' } }, 'nbd:store:10809/disk'],
  [{ protocol: 'nbd', name: '', host: { name: 'store', port: '10810' } }, 'nbd:store:10810/'],
  [{ protocol: 'nbd', name: 'e', host: { socket: '/run/nbd' } }, 'nbd:/run/nbd/e'],
])('a network disk %j is %s', (source, key) => {
  expect(networkKey(source)).toBe(key);
});

test.each([
  [
    'one path',
    ['wwn-0x600A0b80', 'wwn-0x600140512345678', 'scsi-3600140512345678aa'],
    ['wwn:600140512345678aa'],
  ],
  ['multipath', ['dm-uuid-mpath-3600140512345678aa', 'dm-name-mpatha'], ['wwn:600140512345678aa']],
  ['a partition of it', ['wwn-0x600140512345678a-part1'], ['wwn:600140512345678a-part1']],
  ['the same by multipath', ['dm-uuid-part1-mpath-3600140512345678a'], ['wwn:600140512345678a-part1']],
  ['a volume of a group', ['dm-name-vg-lv', 'dm-uuid-LVM-abc'], ['dm-uuid-LVM-abc']],
  [
    'iSCSI by the kernel',
    ['ip-10.0.0.1:3260-iscsi-iqn.2013-07.com.example:lab-lun-2'],
    ['iscsi:iqn.2013-07.com.example:lab/2'],
  ],
  ['no name of its own', ['pci-0000:00:1f.2-ata-1'], ['path:/dev/sdb']],
])('a device by %s', (_how, names, keys) => {
  expect(blockKeys(names, '/dev/sdb')).toEqual(expect.arrayContaining(keys));
});

test.each([
  ['/dev/disk/by-id/wwn-0x600140512345678a', true],
  ['/dev/disk/by-id/dm-uuid-mpath-3600140512345678aa', true],
  ['/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-iqn.2013-07.com.example:lab-lun-2', true],
  ['/dev/disk/by-id/nvme-eui.0025388b71b2f3a4', true],
  ['/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi1', false],
  ['/dev/disk/by-id/ata-QEMU_HARDDISK_QM00003', false],
  ['/dev/disk/by-id/virtio-data', false],
  ['/dev/disk/by-path/pci-0000:00:1f.2-ata-1', false],
  ['/dev/disk/by-id/dm-name-mpatha', false],
  ['/dev/disk/by-id/../../sdb', false],
  ['/dev/mapper/mpatha', false],
  ['/dev/sdb', false],
  ['', false],
])('the path %s says by itself which device it is: %s', (path, does) => {
  expect(namesDevice(path)).toBe(does);
});

test('a device is found by its links, whatever path names it', async () => {
  const devices = await mkdtemp(join(tmpdir(), 'devices-'));
  try {
    await mkdir(join(devices, 'disk/by-id'), { recursive: true });
    await writeFile(join(devices, 'sdb'), '');
    await symlink('../../sdb', join(devices, 'disk/by-id/wwn-0x600140512345678a'));
    const keys = ['wwn:600140512345678a'];
    for (const name of ['sdb', 'disk/by-id/wwn-0x600140512345678a'])
      expect(await deviceKeysOf({ type: 'block', path: join(devices, name) }, devices)).toEqual(keys);
    await rm(join(devices, 'sdb'));
    const away = join(devices, 'disk/by-id/wwn-0x600140512345678a');
    expect(await deviceKeysOf({ type: 'block', path: away }, devices)).toEqual(keys);
    expect(await deviceKeysOf({ type: 'file', path: '/pool/a.qcow2' }, devices)).toEqual([]);
  } finally {
    await rm(devices, { recursive: true });
  }
});

test('a device that is away is not known by where it was, and by what it is', async () => {
  const devices = await mkdtemp(join(tmpdir(), 'devices-'));
  try {
    await mkdir(join(devices, 'disk/by-id'), { recursive: true });
    await writeFile(join(devices, 'sda'), '');
    const isUnknown = (name: string, device: 'disk' | 'cdrom' = 'disk') =>
      isUnknownDevice({ type: 'block', device, path: join(devices, name) }, devices);
    expect(await isUnknown('sda')).toBe(false);
    expect(await isUnknown('sdb')).toBe(true);
    expect(await isUnknown('disk/by-path/pci-0000:00:1f.2-ata-1')).toBe(true);
    expect(await isUnknown('disk/by-id/wwn-0x600140512345678a')).toBe(false);
    expect(await isUnknown('sr0', 'cdrom')).toBe(false);
    const network = { protocol: 'iscsi', name: 'iqn.2013-07.com.example:lab/2' };
    expect(
      await isUnknownDevice({ type: 'network', device: 'disk', path: undefined, network }, devices),
    ).toBe(false);
    expect(await isUnknownDevice({ type: 'file', device: 'disk', path: '/pool/a.qcow2' }, devices)).toBe(
      false,
    );
  } finally {
    await rm(devices, { recursive: true });
  }
});

test.each([
  ['wwn:600140512345678a', true],
  ['iscsi:iqn.2013-07.com.example:lab/0', true],
  ['dm-uuid-LVM-abc', true],
  ['path:/dev/sdb', true],
  ['rbd:pool/image', false],
  ['nbd:store:10809/disk', false],
])('what is known as %s may be a block device: %p', (key, may) => {
  expect(mayBeBlockDevice(key)).toBe(may);
});
