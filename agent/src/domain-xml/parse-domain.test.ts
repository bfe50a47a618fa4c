import { describe, expect, test } from '@jest/globals';
import { parseDomain } from './parse-domain.ts';
import { parseSnapshot } from './parse-snapshot.ts';
import { LIVE_XML, SNAPSHOT_XML, UUID } from './sample-xml.ts';

describe('parseDomain', () => {
  const config = parseDomain(LIVE_XML);

  test('reads identity, size and firmware', () => {
    expect(config).toMatchObject({
      uuid: UUID,
      name: 'web & db',
      description: 'two\r\nlines',
      memoryMiB: 129,
      vcpus: 2,
      arch: 'x86_64',
      machine: 'pc-q35-7.2',
      nvram: {
        path: '/var/lib/libvirt/qemu/nvram/web_VARS.fd',
        template: '/usr/share/OVMF/OVMF_VARS.fd',
      },
      tpm: { model: 'tpm-crb', backend: 'emulator', version: '2.0' },
      agentChannel: 'connected',
      os: { type: 'Linux', version: 'debian/12' },
    });
  });

  test('reads disks of every kind with their chains', () => {
    expect(config.disks.map(disk => [disk.targetDev, disk.device, disk.type, disk.source])).toEqual([
      ['vda', 'disk', 'file', '/pool/top.qcow2'],
      ['sda', 'lun', 'block', '/dev/sdx'],
      ['sdb', 'cdrom', 'file', '/iso/a.iso'],
      ['vdb', 'disk', 'network', 'rbd:rbd/image'],
      ['vdc', 'disk', 'volume', 'p/v'],
    ]);
    expect(config.disks[0]).toMatchObject({
      format: 'qcow2',
      cache: 'none',
      serial: 'S1',
      bus: 'virtio',
      backingChain: [
        { type: 'file', path: '/pool/mid.qcow2' },
        { type: 'file', path: '/pool/base.img' },
      ],
    });
    expect(config.disks[1]).toMatchObject({ shareable: true, backingChain: undefined });
    expect(config.disks[2]?.readonly).toBe(true);
    expect(config.disks[4]?.transient).toBe(true);
  });

  test('reads interfaces and host devices', () => {
    expect(config.interfaces).toEqual([{ mac: '52:54:00:aa:bb:cc' }]);
    expect(config.hostdevs).toEqual([
      { type: 'mdev', address: 'dddddddd-2222-4333-8444-555555555555' },
      { type: 'pci', address: '0000:03:1f.2' },
    ]);
  });

  test('reads its own metadata', () => {
    expect(config.metadata).toEqual({
      template: true,
      templateVersion: 3,
      parent: { id: 'aaaaaaaa-2222-4333-8444-555555555555', version: 2 },
      attachments: [
        {
          diskId: 'bbbbbbbb-2222-4333-8444-555555555555',
          ownerId: 'cccccccc-2222-4333-8444-555555555555',
          attachedId: 'bbbbbbbb-2222-4333-8444-555555555555',
          targetDev: 'vdb',
          path: '/pool/frozen.qcow2',
          thinClone: true,
        },
      ],
    });
  });

  test.each([
    ['http://microsoft.com/win/2k22', 'Windows'],
    ['http://microsoft.com/msdos/6.22', 'Other'],
    ['http://oracle.com/solaris/11', 'Other'],
    ['http://oracle.com/ol/9', 'Linux'],
    ['http://freebsd.org/freebsd/14', 'Other'],
    ['http://libosinfo.org/linux/2022', 'Linux'],
    ['nonsense', 'Other'],
  ])('%s is %s', (id, type) => {
    expect(parseDomain(LIVE_XML.replace('http://debian.org/debian/12', id)).os.type).toBe(type);
  });

  // of a backup that others made, it is what they wrote
  test.each([
    ['MiB', 512],
    ['GiB', 524_288],
    ['constructor', 1],
    ['__proto__', 1],
  ])('of 512 %s of memory it has %d MiB', (unit, memoryMiB) => {
    const xml = `<domain><name>x</name><memory unit='${unit}'>512</memory></domain>`;
    expect(parseDomain(xml)).toMatchObject({ memoryMiB });
  });

  test('a minimal domain has defaults', () => {
    expect(parseDomain('<domain><name>x</name></domain>')).toMatchObject({
      uuid: '',
      name: 'x',
      vcpus: 1,
      disks: [],
      agentChannel: 'absent',
      os: { type: 'Other' },
      metadata: { template: false, attachments: [] },
    });
  });
});

describe('parseSnapshot', () => {
  test('reads states with memory, disks and the domain inside', () => {
    const state = parseSnapshot(SNAPSHOT_XML);
    expect(state).toMatchObject({
      name: 'second',
      parent: 'first',
      creationTime: 1_700_000_000,
      memory: { mode: 'external', path: '/pool/second.memory' },
      deleteInProgress: false,
    });
    expect(state.disks).toEqual([
      { name: 'vda', mode: 'external', path: '/pool/top.qcow2' },
      { name: 'sda', mode: 'no', path: undefined },
    ]);
    expect(state.domain?.disks[0]?.path).toBe('/pool/mid.qcow2');
    expect(state.inactiveDomain).toBeUndefined();
  });

  test('sees an interrupted delete', () => {
    const xml = SNAPSHOT_XML.replace("<driver type='qcow2'/>\n", '<snapshotDeleteInProgress/>');
    expect(parseSnapshot(xml).deleteInProgress).toBe(true);
  });
});
