import { describe, expect, test } from '@jest/globals';
import { type DomainConfig, parseDomain } from '../../domain-xml/index.ts';
import { ADDED_DRIVE, driveXml, freeDrive } from './drive.ts';

const IMAGE = '/images/tools.iso';
const cdrom = (target: string, bus: string, file = '') =>
  `<disk type='file' device='cdrom'>${file ? `<source file='${file}'/>` : ''}<target dev='${target}' bus='${bus}'/><readonly/></disk>`;
const disk = (target: string, bus: string) =>
  `<disk type='file' device='disk'><source file='/images/${target}'/><target dev='${target}' bus='${bus}'/></disk>`;

function domain(machine: string, ...devices: string[]): DomainConfig {
  return parseDomain(
    `<domain type='kvm'><name>vm</name><uuid>6b0f1c5e-64a4-4c2b-9a64-3cf1f8c1a111</uuid><memory>1</memory><vcpu>1</vcpu>
     <os><type arch='x86_64' machine='${machine}'>hvm</type></os><devices>${devices.join('')}</devices></domain>`,
  );
}

const refusal = (work: () => unknown) => {
  try {
    work();
  } catch (error) {
    return (error as { msgKey: string }).msgKey;
  }
  return 'taken';
};

describe('the drive for the guest tools', () => {
  test('is an empty one, in both forms', () => {
    const vm = domain(
      'q35',
      disk('vda', 'virtio'),
      cdrom('sda', 'sata', '/images/other.iso'),
      cdrom('sdb', 'sata'),
    );
    expect(freeDrive(vm, vm, IMAGE)).toEqual({
      targetDev: 'sdb', bus: 'sata', live: true, definition: true, isNew: false, isMounted: false,
    }); // biome-ignore format: short
  });

  test('is the one that has the image', () => {
    const vm = domain('q35', cdrom('sda', 'sata'), cdrom('sdb', 'sata', IMAGE));
    expect(freeDrive(vm, vm, IMAGE)).toMatchObject({ targetDev: 'sdb', isMounted: true });
    const defined = domain('q35', cdrom('sda', 'sata'), cdrom('sdb', 'sata'));
    expect(freeDrive(vm, defined, IMAGE)).toMatchObject({
      targetDev: 'sdb',
      live: false,
      definition: true,
      isMounted: false,
    });
  });

  test('is added to one that is off, at the bus of its machine', () => {
    expect(freeDrive(null, domain('pc-q35-9.0', disk('sda', 'sata')), IMAGE)).toMatchObject({
      targetDev: 'sdb',
      bus: 'sata',
      isNew: true,
    });
    expect(freeDrive(null, domain('pc-i440fx-9.0', disk('hda', 'ide')), IMAGE)).toMatchObject({
      targetDev: 'hdb',
      bus: 'ide',
    });
    const full = domain('pc-i440fx-9.0', ...['hda', 'hdb', 'hdc', 'hdd'].map(name => disk(name, 'ide')));
    expect(refusal(() => freeDrive(null, full, IMAGE))).toBe('guest_tools_unavailable');
  });

  test('is added to a running one where a controller takes it', () => {
    const scsi = domain('q35', disk('sda', 'scsi'));
    const drive = freeDrive(scsi, scsi, IMAGE);
    expect(drive).toMatchObject({ targetDev: 'sdb', bus: 'scsi', isNew: true });
    expect(driveXml(drive, IMAGE)).toContain(ADDED_DRIVE);
    const virtio = domain('q35', disk('vda', 'virtio'), cdrom('sda', 'sata', '/images/other.iso'));
    expect(refusal(() => freeDrive(virtio, virtio, IMAGE))).toBe('guest_tools_unavailable');
  });

  test('leaves the image its owner', () => {
    const xml = driveXml({ targetDev: 'sda', bus: 'sata', live: true, isNew: false }, "/images/a'b&c.iso");
    expect(xml).toContain('relabel="no"');
    expect(xml).toContain('&amp;c.iso');
    expect(driveXml({ targetDev: 'sda', bus: 'sata', live: true, isNew: false }, null)).not.toContain(
      '<source',
    );
  });
});
