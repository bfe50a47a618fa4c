import { spawnSync } from 'node:child_process';
import { describe, expect, test } from '@jest/globals';
import type { NewDomain } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../domain-xml/index.ts';
import { checkNewDomain, type DomainPlace, newDomainOf } from './new-domain.ts';

const DOMAIN: NewDomain = {
  ...{ name: 'shop', memoryCount: 512n, cpuCount: 2, osType: 'Linux', firmware: '', network: 'lan' },
  virtio: true,
};
const place = (part: Partial<DomainPlace> = {}): DomainPlace => ({
  ...{ uuid: newId(), path: '/p/x.qcow2', bus: 'virtio', hasKvm: true },
  network: { type: 'network', name: 'lan' },
  ...part,
});

describe('a new VM', () => {
  test.each([
    ['virtio', 'vda', {}],
    ['scsi', 'sda', { firmware: 'uefi' }],
    ['sata', 'sda', { osType: 'Windows', virtio: false }],
    ['sata', 'sda', { osType: '', firmware: 'uefi' }],
  ] as const)('on %s has the disk as %s and is one that libvirt takes (%j)', (bus, target, change) => {
    const { xml, targetDev } = newDomainOf({ ...DOMAIN, ...change }, place({ bus }));
    expect(spawnSync('virt-xml-validate', ['-', 'domain'], { input: xml })).toMatchObject({ status: 0 });
    const { disks, name, memoryMiB, vcpus, interfaces } = parseDomain(xml);
    expect({ targetDev, name, memoryMiB, vcpus }).toEqual({
      ...{ targetDev: target, name: 'shop', memoryMiB: 512, vcpus: 2 },
    });
    expect(disks).toMatchObject([{ targetDev: target, bus, format: 'qcow2', path: '/p/x.qcow2' }]);
    // libvirt makes the address
    expect(interfaces).toEqual([]);
    expect(xml).toContain(
      `<source network="lan"/>`.replaceAll('"', xml.includes("network='lan'") ? "'" : '"'),
    );
  });

  test('has no adapter without a network', () => {
    expect(newDomainOf(DOMAIN, place({ network: null })).xml).not.toContain('<interface');
  });

  test('warns of what its guest needs, and of a node without KVM', () => {
    expect(newDomainOf(DOMAIN, place()).warnings).toEqual([]);
    const windows = newDomainOf({ ...DOMAIN, osType: 'Windows' }, place({ hasKvm: false }));
    expect(windows.warnings).toEqual([
      expect.stringContaining('Windows does not start from it'),
      expect.stringContaining('emulated'),
    ]);
    const sata = { ...DOMAIN, osType: 'Windows', virtio: false };
    expect(newDomainOf(sata, place({ bus: 'sata' })).warnings).toEqual([]);
  });

  test.each([
    [{ name: '' }, 'missing_field'],
    [{ memoryCount: 0n }, 'invalid_field'],
    [{ cpuCount: 256 }, 'invalid_field'],
    [{ osType: 'BeOS' }, 'invalid_field'],
    [{ firmware: 'coreboot' }, 'invalid_field'],
  ])('with %p is refused', (change, msgKey) => {
    expect(() => checkNewDomain({ ...DOMAIN, ...change })).toThrow(expect.objectContaining({ msgKey }));
  });
});
