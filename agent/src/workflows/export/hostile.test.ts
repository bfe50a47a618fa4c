/** What an archive that nobody vouches for names, and what of it an export takes. */
import { basename } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { definitionAt } from './directory.ts';
import { EXPORT_FORMATS, planExport } from './plan.ts';

const XML = `<domain type='kvm'><name>web</name><uuid>11111111-2222-4333-8444-555555555555</uuid>
  <memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type><nvram>/var/lib/libvirt/qemu/nvram/web_VARS.fd</nvram></os>
  <devices><emulator>/tmp/x</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/old/vda.qcow2'/><target dev='vda' bus='virtio'/></disk>
    <disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='/dev/sda'/><target dev='vdb' bus='virtio'/></disk>
    <graphics type='vnc' port='-1' autoport='yes' passwd='geheim'/>
  </devices></domain>`;

describe('the definition of an export', () => {
  const disks = [{ target: 'vda', href: 'web-vda.qcow2' }] as never;
  const { definition, leftOut } = definitionAt(XML, '/p/backups/web', { disks, images: [] });

  test('has the images of the package and no other file, device or program of a node', () => {
    expect(definition).toContain('/p/backups/web/web-vda.qcow2');
    for (const foreign of ['/tmp/x', '/dev/sda', '/old/', 'nvram/web_VARS.fd'])
      expect(definition).not.toContain(foreign);
  });

  test('is of another VM than the one that was backed up', () => {
    expect(definition).not.toContain('11111111-2222-4333-8444-555555555555');
    expect(definition).toContain('<name>web</name>');
  });

  test('says no password, and that it was left out', () => {
    expect(definition).not.toContain('passwd');
    expect(leftOut).toContain('devices/graphics@passwd');
  });
});

test.each(EXPORT_FORMATS)('a target that is a path is no name of a file of an export as %s', format => {
  const manifest = {
    disks: [],
    isos: [{ target: '/../../../var/lib/x', member: 'a.iso' }],
    snapshots: [],
    nvram: null,
    tpm: null,
  };
  const archive = { members: [{ name: 'a.iso', sizeBytes: 1 }] };
  const plan = () => planExport({ archive, manifest, xml: XML, filename: 'web.tar' } as never, format);
  expect(plan).toThrow(expect.objectContaining({ msgKey: 'archive_damaged' }));
  const lawful = { ...manifest, isos: [{ target: 'sda', member: 'a.iso' }] };
  const { images, disks } = planExport(
    { archive, manifest: lawful, xml: XML, filename: 'web.tar' } as never,
    format,
  );
  for (const { href } of [...images, ...disks]) expect(basename(href)).toBe(href);
});
