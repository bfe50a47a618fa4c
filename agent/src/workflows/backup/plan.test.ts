import { describe, expect, test } from '@jest/globals';
import { parseDomain } from '../../domain-xml/index.ts';
import { safeFileStem, timeStamp } from '../archives/file-name.ts';
import { type ContentOptions, keepIds, planContent } from './plan.ts';

const ID = '11111111-1111-4111-8111-111111111111';
const domain = (disks: string, metadata = '') =>
  parseDomain(
    `<domain><name>vm</name><uuid>${ID}</uuid><metadata>${metadata}</metadata><devices>${disks}</devices></domain>`,
  );
const disk = (target: string, inner: string, device = 'disk', type = 'file') =>
  `<disk type='${type}' device='${device}'><driver name='qemu' type='qcow2'/>${inner}<target dev='${target}' bus='virtio'/></disk>`;
const rules = {
  poolOf: () => null,
  diskIdOf: (path: string) => `id:${path}`,
  firstLayerOf: (_target: string, path: string) => path,
  imageFaults: new Map<string, string>(),
};
const plan = (disks: string, options: Partial<ContentOptions> = {}, metadata = '') =>
  planContent(domain(disks, metadata), { excludeIso: false, excludeVdisks: [], ...options }, rules);

describe('what goes into a backup', () => {
  test('each kind of disk has its rule', () => {
    const content = plan(
      disk('vda', "<source file='/a'/>") +
        disk('vdb', "<source file='/b'/><readonly/>") +
        disk('vdc', "<source file='/c'/><shareable/>") +
        disk('vdd', "<source file='/d'/><transient/>") +
        disk('vde', "<source protocol='rbd' name='p/i'/>", 'disk', 'network') +
        disk('sda', "<source dev='/dev/sdq'/>", 'lun', 'block') +
        disk('sdb', "<source file='/i.iso'/>", 'cdrom') +
        disk('sdc', "<source dev='/dev/sr0'/>", 'cdrom', 'block') +
        disk('sdd', '', 'cdrom') +
        disk('fda', "<source file='/f.img'/>", 'floppy'),
    );
    expect(content.disks.map(({ config, writable }) => [config.targetDev, writable])).toEqual([
      ['vda', true],
      ['vdb', false],
    ]);
    expect(content.recorded.map(({ targetDev }) => targetDev)).toEqual(['vdc', 'vdd', 'vde', 'sdc']);
    expect(content.warnings).toHaveLength(4);
    expect(content.luns).toEqual([{ targetDev: 'sda', source: '/dev/sdq' }]);
    expect(content.images.map(({ targetDev, included }) => [targetDev, included])).toEqual([
      ['sdb', true],
      ['fda', true],
    ]);
  });

  test('options leave out images and disks, and unknown ids are refused', () => {
    const two =
      disk('vda', "<source file='/a'/>") +
      disk('vdb', "<source file='/b'/>") +
      disk('sdb', "<source file='/i.iso'/>", 'cdrom');
    const content = plan(two, { excludeIso: true, excludeVdisks: ['id:/a'] });
    expect(content.disks.map(({ id }) => id)).toEqual(['id:/b']);
    expect(content.recorded).toEqual([{ targetDev: 'vda', id: 'id:/a', source: '/a', reason: 'excluded' }]);
    expect(content.images[0]!.included).toBe(false);
    expect(() => plan(two, { excludeVdisks: ['id:/x'] })).toThrow(
      expect.objectContaining({ msgKey: 'vdisk_not_found' }),
    );
  });

  test('an image in a drive goes in when its file is all of it', () => {
    const drives =
      disk('sda', "<source file='/own.qcow2'/>", 'cdrom') +
      disk('sdb', "<source file='/overlay.qcow2'/>", 'cdrom') +
      disk('sdc', "<source file='/a.vmdk'/>", 'cdrom').replace('qcow2', 'vmdk') +
      disk(
        'fda',
        "<source file='/f'><slices><slice type='storage' offset='0' size='1'/></slices></source>",
        'floppy',
      );
    const faults = new Map([['sdb', 'has a backing file that does not belong to it']]);
    const options = { excludeIso: false, excludeVdisks: [] };
    const content = planContent(domain(drives), options, { ...rules, imageFaults: faults });
    expect(content.images.map(({ targetDev }) => targetDev)).toEqual(['sda']);
    expect(content.recorded.map(({ targetDev }) => targetDev)).toEqual(['sdb', 'sdc', 'fda']);
    expect(content.warnings).toEqual([
      expect.stringContaining('/overlay.qcow2, which has a backing file'),
      expect.stringContaining('vmdk'),
      expect.stringContaining('a part of a file'),
    ]);
  });

  test("a disk lent by another VM is not this VM's", () => {
    const lent = `<v:domain xmlns:v='urn:virtkeep:domain:1'><v:attachment disk='${ID}' owner='${ID}' target='vdb' path='/b'/></v:domain>`;
    const content = plan(
      disk('vda', "<source file='/a'/>") + disk('vdb', "<source file='/b'/><readonly/>"),
      {},
      lent,
    );
    expect(content.disks.map(({ config }) => config.targetDev)).toEqual(['vda']);
  });

  test('what could not be restored is refused', () => {
    const vmdk = disk('vda', "<source file='/a'/>").replace('qcow2', 'vmdk');
    const sliced = disk(
      'vda',
      "<source file='/a'><slices><slice type='storage' offset='0' size='1'/></slices></source>",
    );
    for (const xml of [vmdk, sliced])
      expect(() => plan(xml)).toThrow(expect.objectContaining({ msgKey: 'snapshot_chain_unsupported' }));
  });

  test('two disks never share an id', () => {
    const same = { ...rules, diskIdOf: () => 'same' };
    const content = planContent(
      domain(disk('vda', "<source file='/a'/>") + disk('vdb', "<source file='/b'/>")),
      { excludeIso: false, excludeVdisks: [] },
      same,
    );
    expect(new Set(content.disks.map(({ id }) => id)).size).toBe(2);
    const [vda] = content.disks.map(({ id }) => id);
    expect(vda).toBe('same');
    // the archive has the second one as that already
    keepIds(content, ID, new Map([['vdb', 'same']]));
    expect(content.disks[1]!.id).toBe('same');
    expect(content.disks[0]!.id).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('the name of the file', () => {
  test.each([
    ['web server/1', 'web_server_1'],
    ['../../etc/passwd', '__.._etc_passwd'],
    ['-rf', '_rf'],
    ['.hidden', '_hidden'],
    ['сервер', 'сервер'],
    ['', '_'],
    ['x'.repeat(300), 'x'.repeat(120)],
    ['\n\0', '__'],
  ])('%j becomes %j', (name, stem) => {
    expect(safeFileStem(name)).toBe(stem);
  });
  test('carries the time in UTC', () => {
    expect(timeStamp(new Date('2026-11-20T23:27:00.123Z'))).toBe('20261120T232700Z');
  });
});
