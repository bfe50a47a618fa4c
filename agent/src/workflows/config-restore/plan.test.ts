import { describe, expect, test } from '@jest/globals';
import { serializeXml } from '../../domain-xml/index.ts';
import { readOvf } from '../../ovf/index.ts';
import { cpus, DESCRIPTORS, descriptor, memory, nic, system } from '../../ovf/test-kit.ts';
import { chosenNetworks, requireInFile } from './choose-networks.ts';
import type { NodeFacts } from './node-facts.ts';
import { type PlanChoice, planVm } from './plan.ts';

const FACTS: NodeFacts = { networks: ['default', 'lan'], bridges: ['br0'], hasKvm: true };
const CHOICE: PlanChoice = { system: '', configuration: '', networks: {}, virtio: false };

const HOSTILE = `<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>web</name><uuid>0b0a2f2c-6c3f-4a8e-9a7e-0f8d5a2b9c11</uuid>
  <metadata><virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1' template='yes' version='3'
    parent='1b0a2f2c-6c3f-4a8e-9a7e-0f8d5a2b9c11' parent-version='2'/></metadata>
  <memory unit='MiB'>512</memory><vcpu>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type><kernel>/etc/shadow</kernel></os>
  <cpu mode='host-passthrough' check='none' migratable='on'/>
  <devices>
    <emulator>/tmp/evil</emulator>
    <disk type='file' device='disk'><source file='/etc/shadow'/><target dev='vda' bus='virtio'/></disk>
    <disk type='block' device='lun'><source dev='/dev/sdz'/><target dev='sdb' bus='scsi'/></disk>
    <disk type='file' device='cdrom'><source file='/etc/passwd'/><target dev='sda' bus='sata'/><readonly/></disk>
    <interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br9'/><model type='virtio'/></interface>
    <interface type='network'><mac address='52:54:00:00:00:02'/><source network='lan'/></interface>
    <interface type='direct'><mac address='52:54:00:00:00:03'/><source dev='eth0' mode='bridge'/></interface>
    <hostdev mode='subsystem' type='pci'><source><address domain='0' bus='3' slot='0' function='0'/></source></hostdev>
  </devices>
  <qemu:commandline><qemu:arg value='-S'/></qemu:commandline>
</domain>`;

/** As a request names them. */
const chosen = (networks: Record<string, string>, facts: Partial<NodeFacts> = {}) =>
  chosenNetworks(networks, { ...FACTS, ...facts }, 'n1');

const planXml = (xml: string, choice: Partial<PlanChoice> = {}, facts: Partial<NodeFacts> = {}) => {
  const vm = planVm({ type: 'xml', xml }, { ...CHOICE, ...choice }, { ...FACTS, ...facts });
  return { ...vm, xml: serializeXml(vm.root), texts: vm.warnings.map(({ text }) => text) };
};
const planOvf = (name: string, choice: Partial<PlanChoice> = {}, facts: Partial<NodeFacts> = {}) =>
  planDescriptor(DESCRIPTORS[name]!, choice, facts);
const planDescriptor = (text: string, choice: Partial<PlanChoice> = {}, facts: Partial<NodeFacts> = {}) => {
  const envelope = readOvf(new TextEncoder().encode(text), 'web.ovf');
  const vm = planVm(
    { type: 'OVF', envelope, beside: null },
    { ...CHOICE, ...choice },
    { ...FACTS, ...facts },
  );
  return { ...vm, xml: serializeXml(vm.root), texts: vm.warnings.map(({ text }) => text) };
};

describe('a domain XML', () => {
  test('gives a VM without disks, devices and anything of the node, and a warning of each', () => {
    const { xml, config, texts, disks, images } = planXml(HOSTILE);
    for (const word of ['/etc/', '/dev/', 'evil', 'hostdev', 'qemu:', 'kernel', 'br9', 'eth0'])
      expect(xml).not.toContain(word);
    expect(config.disks.map(({ targetDev, source }) => [targetDev, source])).toEqual([['sda', '']]);
    expect(texts).toEqual([
      'Disk vda: /etc/shadow is not attached.',
      'Disk sdb: /dev/sdz is not attached.',
      'Drive sda: It is empty: /etc/passwd is not put in.',
      'Host device pci 0000:03:00.0: It is not passed through.',
      'os/kernel: Left out, since a file must not bring it to a node.',
      'devices/emulator: Left out, since a file must not bring it to a node.',
      'qemu:commandline: Left out, since a file must not bring it to a node.',
      'Network bridge "br9": The node does not have it: its adapters are connected to network "default".',
      'Network direct "eth0": The node does not have it: its adapters are connected to network "default".',
    ]);
    expect(disks).toMatchObject([
      { targetDev: 'vda', targetBus: 'virtio', path: '/etc/shadow', excluded: true },
      { targetDev: 'sdb', excluded: true },
    ]);
    expect(images).toMatchObject([{ targetDev: 'sda', path: '/etc/passwd', included: false }]);
  });

  test('a template stays one, and is no clone of any', () => {
    const { template, templateVersion, parent } = planXml(HOSTILE).config.metadata;
    expect({ template, templateVersion, parent }).toEqual({ template: true, templateVersion: 3 });
  });

  test('networks are those that were chosen, else those that are there, else what the node has', () => {
    const own = planXml(HOSTILE, { networks: chosen({ br9: 'br0', lan: 'default' }) });
    expect(own.networks).toEqual(['br9', 'lan', 'eth0']);
    expect(own.xml).toMatch(/type="bridge">\s*<mac[^>]*:01"\/>\s*<model[^>]*>\s*<source bridge="br0"/);
    expect(own.xml).not.toContain('network="lan"');
    expect(own.texts.filter(text => text.startsWith('Network'))).toHaveLength(1);
    expect(planXml(HOSTILE, {}, { networks: [] }).texts).toContainEqual(
      expect.stringContaining('connected to bridge "br0".'),
    );
    const none = planXml(HOSTILE, {}, { networks: [], bridges: [] });
    expect(none.xml.match(/<interface type="user"/g)).toHaveLength(3);
  });

  test('which network an adapter has tells the attribute that libvirt reads, of every kind that QEMU has', () => {
    const nics = `<interface type='bridge'><source network='br0' bridge='br9'/></interface>
      <interface type='network'><source network='nope' bridge='br0'/></interface>
      <interface type='internal'><source network='lan'/></interface>`;
    const xml = HOSTILE.replace(/<interface.*<\/interface>/s, nics);
    const vm = planXml(xml);
    expect(vm.networks).toEqual(['br9', 'nope', 'lan']);
    expect(vm.xml.match(/<interface type="network">\s*<source network="default"\/>/g)).toHaveLength(3);
    expect(vm.texts.filter(text => text.startsWith('Network'))).toHaveLength(3);
  });

  test('a warning is one line of bounded length, whatever the file names', () => {
    const xml = HOSTILE.replace('br9', `\u202e${'x'.repeat(100_000)}`);
    for (const text of planXml(xml).texts) expect(text).toMatch(/^[^\u202e\n]{1,1000}$/);
  });

  test('without KVM it is emulated', () => {
    const { xml, texts } = planXml(HOSTILE, {}, { hasKvm: false });
    expect(xml).toContain('<cpu mode="maximum"/>');
    expect(texts).toContain('domain@type: The node has no KVM: the VM is emulated.');
  });

  test('one of another hypervisor is refused', () => {
    expect(() => planXml("<domain type='xen'><name>x</name></domain>")).toThrow(
      expect.objectContaining({ msgKey: 'xml_invalid' }),
    );
  });
});

describe('an OVF descriptor', () => {
  test('gives a VM without disks; the gate has nothing to take away', () => {
    for (const name of Object.keys(DESCRIPTORS).filter(each => !each.startsWith('cluster'))) {
      const { xml, texts } = planOvf(name);
      expect(xml).not.toMatch(/device=.disk./);
      expect(texts.filter(text => text.includes('a file must not bring'))).toEqual([]);
    }
    const { disks, texts } = planOvf('vmware-bios-lsilogic');
    expect(disks).toMatchObject([
      { id: 'd1', path: 'web-disk1.vmdk', virtualSize: 8n << 30n, excluded: true },
    ]);
    expect(texts).toContain('Disk "d1": The disk is not attached.');
    expect(texts).toContain('Network "LAN": Its adapters are connected to network "default".');
  });

  test('adapters are moved once, from the names that the file has', () => {
    const two = descriptor({
      content: system({
        items:
          cpus(1) + memory(512) + nic(5, 'E1000', { Connection: 'A' }) + nic(6, 'E1000', { Connection: 'B' }),
      }),
    });
    const networks = ['A', 'B', 'default'];
    const sources = (xml: string) => [...xml.matchAll(/<source network="(\w+)"/g)].map(([, name]) => name);
    const swapped = planDescriptor(two, { networks: chosen({ A: 'B', B: 'A' }, { networks }) }, { networks });
    expect(sources(swapped.xml)).toEqual(['B', 'A']);
    expect(swapped.networks).toEqual(['A', 'B']);
    const stays = planDescriptor(two, {}, { networks: ['A', 'default'] });
    expect(sources(stays.xml)).toEqual(['A', 'default']);
    expect(stays.texts.filter(text => text.startsWith('Network'))).toEqual([
      'Network "B": Its adapters are connected to network "default".',
    ]);
  });

  test('on a node without networks QEMU makes one', () => {
    const { xml, texts } = planOvf('vmware-bios-lsilogic', {}, { networks: [], bridges: [], hasKvm: false });
    expect(xml).toContain('interface type="user"');
    expect(xml).toContain('domain type="qemu"');
    expect(texts).toContain('Network "LAN": Its adapters are connected to QEMU\'s own network.');
  });

  test('of several VMs one is chosen', () => {
    expect(() => planOvf('cluster-of-two')).toThrow(
      expect.objectContaining({ msgKey: 'ovf_system_ambiguous' }),
    );
    expect(() => planOvf('cluster-of-two', { system: 'nope' })).toThrow(
      expect.objectContaining({ msgKey: 'ovf_system_unknown' }),
    );
  });
});

describe('networks that a user has chosen', () => {
  test('are ones that the node has', () => {
    expect(chosen({ LAN: 'lan', WAN: 'br0' })).toEqual({
      LAN: { type: 'network', name: 'lan' },
      WAN: { type: 'bridge', name: 'br0' },
    });
    expect(() => chosen({ LAN: 'nope' })).toThrow(
      'The node n1 has no network or bridge nope. It has: default, lan, br0.',
    );
  });

  test('are for names that the file has', () => {
    requireInFile({ LAN: 'lan' }, ['LAN', 'WAN'], 'web.ovf');
    expect(() => requireInFile({ Lan: 'lan' }, ['LAN', 'WAN'], 'web.ovf')).toThrow(
      'No network adapter of the VM in web.ovf is connected to "Lan". Networks of its adapters: "LAN", "WAN".',
    );
    expect(() => requireInFile({ LAN: 'lan' }, [], 'web.ovf')).toThrow('Networks of its adapters: none.');
  });
});
