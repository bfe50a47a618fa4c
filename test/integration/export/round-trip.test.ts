// What is exported is imported again: the VM has what OVF carries, and its disks the same bytes.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { KiB, MiB } from '@virtkeep/shared/units';
import { applianceIn, carried, ExportLab, expectSame, expectStrict, type TestDisk, unpacked } from './lab.ts';

let lab: ExportLab;
beforeAll(async () => {
  lab = await ExportLab.start();
});
afterAll(() => lab?.alone.stop());
afterEach(() => lab.clear());

// an end that is inside of a grain, and one that is inside of a cluster
const DISKS: TestDisk[] = [
  { target: 'hda', bus: 'ide', format: 'qcow2', sizeBytes: 8 * MiB + 512 * 5 },
  { target: 'sda', bus: 'scsi', format: 'raw', sizeBytes: 5 * MiB },
  { target: 'sdb', bus: 'scsi', format: 'qcow2', sizeBytes: 3 * MiB + 4 * KiB },
  { target: 'sdc', bus: 'sata', format: 'qcow2', sizeBytes: 2 * MiB },
];
const ADDRESSES: Record<string, string> = {
  hda: "controller='0' bus='0' target='0' unit='0'",
  sda: "controller='0' bus='0' target='0' unit='0'",
  sdb: "controller='0' bus='0' target='0' unit='3'",
  sdc: "controller='0' bus='0' target='0' unit='1'",
};

function diskXml({ target, bus, format }: TestDisk, path: string): string {
  const address = ADDRESSES[target] ? `<address type='drive' ${ADDRESSES[target]}/>` : '';
  return `<disk type='file' device='disk'><driver name='qemu' type='${format}'/><source file='${path}'/>
    <target dev='${target}' bus='${bus}'/>${address}</disk>`;
}

const bios = (name: string, disks: string, iso: string) => `<domain type='qemu'><name>${name}</name>
  <description>Two lines &amp; more
of &lt;text&gt;</description>
  <metadata><libosinfo:libosinfo xmlns:libosinfo="http://libosinfo.org/xmlns/libvirt/domain/1.0">
    <libosinfo:os id="http://debian.org/debian/12"/></libosinfo:libosinfo></metadata>
  <memory unit='MiB'>96</memory><vcpu>4</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <cpu><topology sockets='2' cores='2' threads='1'/></cpu>
  <features><acpi/><apic/></features>
  <devices>${disks}
    <disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='${iso}'/>
      <target dev='hdc' bus='ide'/><readonly/></disk>
    <disk type='file' device='floppy'><target dev='fda' bus='fdc'/></disk>
    <controller type='scsi' index='0' model='lsilogic'/>
    <controller type='usb' model='qemu-xhci'/>
    <interface type='user'><mac address='52:54:00:12:34:56'/><model type='e1000'/></interface>
    <interface type='user'><model type='vmxnet3'/></interface>
    <sound model='ich9'/><serial type='pty'/><video><model type='vga'/></video><graphics type='vnc'/>
  </devices></domain>`;

async function defineBios(name: string) {
  const iso = join(lab.alone.world.node.pool(0).path, 'tools.iso');
  writeFileSync(iso, Buffer.alloc(300 * KiB, 7));
  const paths = new Map<string, string>();
  for (const disk of DISKS) paths.set(disk.target, await lab.image(disk));
  const disks = DISKS.map(disk => diskXml(disk, paths.get(disk.target)!)).join('');
  const guest = await lab.define(bios(name, disks, iso));
  return { guest, paths, iso };
}

test.each([
  ['ova', { compress: false, hashSum: true }],
  ['ovf', { compress: true }],
])('a BIOS VM with disks on every bus, as %s of %j', async (format, how) => {
  const { guest, paths, iso } = await defineBios('Магазин №1 shop');
  const archive = await lab.backup(guest, how);
  const before = readFileSync(join(lab.directory, archive));
  const exported = await lab.export(archive, { format });
  const files = await unpacked(exported, join(lab.alone.world.dir, 'unpacked'));
  const text = expectStrict(files);
  expect(readFileSync(join(lab.directory, archive)).equals(before)).toBe(true);
  const appliance = applianceIn(text);
  expect(appliance).toMatchObject({
    ...{ name: guest.name, cpus: 4, coresPerSocket: 2, memoryMiB: 96, sound: 'ich9', usb: ['qemu-xhci'] },
    description: 'Two lines & more\nof <text>',
    os: { type: 'Linux', version: 'debian/12' },
    firmware: { efi: false, secureBoot: false },
    nics: [{ model: 'e1000', mac: '52:54:00:12:34:56', network: 'user' }, { model: 'vmxnet3' }],
    drives: [
      { device: 'cdrom', bus: 'ide', file: { href: expect.stringMatching(/hdc\.iso$/) } },
      { device: 'floppy' },
    ],
  });
  const images = [...files].filter(([name]) => name.endsWith('.vmdk'));
  for (const [at, { target, format: of }] of DISKS.entries())
    await expectSame(images[at]![1], 'vmdk', paths.get(target)!, of);
  const [, image] = [...files].find(([name]) => name.endsWith('.iso'))!;
  expect(readFileSync(image).equals(readFileSync(iso))).toBe(true);
  expect(exported.operation.warnings.join('\n')).toMatch(/graphics/);
  const { guest: copy, paths: restored } = await lab.back(exported);
  expect([...restored.keys()]).toHaveLength(DISKS.length);
  for (const { target, format: of } of DISKS)
    await expectSame(restored.get(target)!, 'qcow2', paths.get(target)!, of);
  const all = DISKS.map(({ target }) => target);
  const [xml, copied] = [await guest.xml(true), await copy.xml(true)];
  expect(carried(copied, all)).toEqual(carried(xml, all));
  await lab.remove(copy, restored.values());
  await lab.remove(guest, [...paths.values(), iso]);
});

test('a VM with UEFI, secure boot and a TPM, of a zst archive', async () => {
  const disk: TestDisk = { target: 'sda', bus: 'sata', format: 'qcow2', sizeBytes: 4 * MiB };
  const path = await lab.image(disk);
  const guest = await lab.define(`<domain type='qemu'><name>win</name>
  <metadata><libosinfo:libosinfo xmlns:libosinfo="http://libosinfo.org/xmlns/libvirt/domain/1.0">
    <libosinfo:os id="http://microsoft.com/win/11"/></libosinfo:libosinfo></metadata>
  <memory unit='MiB'>2048</memory><vcpu>2</vcpu>
  <os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type>
    <firmware><feature enabled='yes' name='enrolled-keys'/><feature enabled='yes' name='secure-boot'/></firmware>
    <loader secure='yes'/></os>
  <features><acpi/><apic/><smm state='on'/></features><clock offset='localtime'/>
  <devices>${diskXml(disk, path)}
    <interface type='user'><model type='e1000e'/></interface>
    <tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>
    <video><model type='vga'/></video>
  </devices></domain>`);
  const archive = await lab.backup(guest, { compress: true });
  const exported = await lab.export(archive, { format: 'ova', name: 'win-11' });
  expect(exported.filename).toBe('win-11.ova');
  const text = expectStrict(await unpacked(exported, join(lab.alone.world.dir, 'unpacked')));
  expect(applianceIn(text)).toMatchObject({
    firmware: { efi: true, secureBoot: true },
    ...{ tpm: true, os: { version: 'win/11' } },
  });
  expect(text).toContain('vmx-14');
  const { guest: copy, paths } = await lab.back(exported);
  await expectSame(paths.get('sda')!, 'qcow2', path, 'qcow2');
  expect(carried(await copy.xml(true), ['sda'])).toEqual(carried(await guest.xml(true), ['sda']));
  await lab.remove(copy, paths.values());
  await lab.remove(guest, [path]);
});
