import { expect, test } from '@jest/globals';
import type { NodeFacts } from '../config-restore/node-facts.ts';
import { definedDomain } from './definition.ts';

const UUID = '22222222-2222-4222-8222-222222222222';
const FACTS: NodeFacts = { networks: ['default'], bridges: [], hasKvm: true };
const disk = (dev: string, more = '') =>
  `<disk type="file" device="disk"><driver name="qemu" type="qcow2"/><source file="/etc/${dev}"/><target dev="${dev}" bus="sata"/>${more}</disk>`;
const XML = `<domain type="kvm" id="3"><name>web</name><uuid>11111111-1111-4111-8111-111111111111</uuid>
<memory unit="MiB">64</memory><vcpu>1</vcpu>
<os><type arch="x86_64" machine="pc">hvm</type><kernel>/etc/kernel</kernel></os>
<devices>${disk('sda', '<backingStore type="file"><source file="/etc/base"/></backingStore><boot order="1"/>')}${disk('sdb')}${disk('sdc')}
<disk type="file" device="cdrom"><source file="/etc/iso"/><target dev="sdd" bus="sata"/></disk>
<interface type="network"><mac address="52:54:00:00:00:01"/><source network="lan"/><model type="e1000"/></interface>
<hostdev mode="subsystem" type="pci"><source><address domain="0" bus="3" slot="0" function="0"/></source></hostdev>
</devices></domain>`;

const planned = (virtio: boolean, facts = FACTS) =>
  definedDomain(
    { xml: XML, targets: ['sdc', 'sda'] },
    { uuid: UUID, virtio, networks: {}, pathOf: index => `/pool/${index}.qcow2` },
    facts,
  );

test('disks with data are where they were, at new paths; nothing else of the other host stays', () => {
  const { xml, disks, warnings } = planned(false);
  expect(disks).toEqual([
    { index: 1, path: '/pool/1.qcow2', targetDev: 'sda' },
    { index: 0, path: '/pool/0.qcow2', targetDev: 'sdc' },
  ]);
  expect(xml).not.toContain('/etc/');
  expect(xml).not.toContain('hostdev');
  expect(xml).toContain(UUID);
  expect(xml).toContain('<boot order="1"/>');
  expect(warnings.map(({ element }) => element)).toEqual([
    'Disk sdb',
    'Drive sdd',
    'Host device pci',
    'os/kernel',
    'Network network "lan"',
  ]);
});

test('with virtio they have other targets, and adapters another model', () => {
  const { xml, disks } = planned(true);
  expect(disks.map(({ targetDev }) => targetDev)).toEqual(['vda', 'vdb']);
  expect(xml.match(/bus="virtio"/g)).toHaveLength(2);
  expect(xml).toContain('<model type="virtio"/>');
});

test('a node without KVM emulates it', () => {
  expect(planned(false, { ...FACTS, hasKvm: false }).xml).toContain('<domain type="qemu"');
});
