// What a domain becomes in a descriptor, that strict readers take it, and what is said of the rest.
import { describe, expect, test } from '@jest/globals';
import { applianceOf, domainXmlOf, readOvf } from '../index.ts';
import { faultsOf } from '../strict-kit.ts';
import { DESCRIPTORS, TARGET } from '../test-kit.ts';
import { descriptorOf } from './descriptor.ts';
import { vmOfDomain } from './from-domain.ts';
import type { ExportedVm } from './model.ts';

interface Parts {
  name?: string;
  head?: string;
  os?: string;
  devices?: string;
}

const PC = "<os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type></os>";
const domain = ({ name = 'web', head = '<vcpu>2</vcpu>', os = PC, devices = '' }: Parts) =>
  `<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>${name}</name>
   <memory unit='KiB'>1048577</memory>${head}${os}<devices>${devices}</devices></domain>`;

const disk = (target: string, bus: string, more = '') =>
  `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/p/${target}'/>
   <target dev='${target}' bus='${bus}'/>${more}</disk>`;
const cdrom = (target: string, bus: string, source = '') =>
  `<disk type='file' device='cdrom'>${source}<target dev='${target}' bus='${bus}'/><readonly/></disk>`;
const at = (controller: number, unit: number, bus = 0) =>
  `<address type='drive' controller='${controller}' bus='${bus}' target='0' unit='${unit}'/>`;
const targetsIn = (xml: string) =>
  new Set([...xml.matchAll(/device='disk'>[\s\S]*?<target dev='(\w+)'/g)].map(([, target]) => target!));

function exported(xml: string, images: string[] = []) {
  const { vm, warnings } = vmOfDomain(xml, { disks: targetsIn(xml), images: new Set(images) }, 'it');
  const text = textOf(vm, images);
  return { vm, text, warnings: warnings.map(one => `${one.element}: ${one.text}`) };
}

function textOf(vm: ExportedVm, images: string[]): string {
  const text = descriptorOf(vm, {
    disks: new Map(
      vm.disks.map(({ target }, index) => [
        target,
        { href: `web-disk${index + 1}.vmdk`, sizeBytes: 4096, capacityBytes: 8 * 2 ** 30 },
      ]),
    ),
    images: new Map(images.map(target => [target, { href: `web-${target}.iso`, sizeBytes: 2048 }])),
  });
  expect(faultsOf(text)).toEqual([]);
  return text;
}

const applianceIn = (text: string) => applianceOf(readOvf(new TextEncoder().encode(text), 'web.ovf'));
const placesOf = ({ vm }: { vm: ExportedVm }) =>
  [...vm.disks, ...vm.drives].map(({ target, controller, unit }) => {
    const holder = controller === null ? undefined : vm.controllers[controller]!;
    return `${target} ${holder ? `${holder.bus}${holder.index}` : ''}:${unit}`;
  });

/** What the VM is connected to bears the name of the node's network then. */
const unconnected = (xml: string) =>
  xml.replace(/<interface type='\w+'>/g, '<interface>').replace(/<source (bridge|network)='[^']*'\/>/g, '');

describe('what is imported and exported is the same', () => {
  test.each(Object.entries(DESCRIPTORS))('%s', (_, text) => {
    const envelope = readOvf(new TextEncoder().encode(text), 'web.ovf');
    const before = applianceOf(envelope, { system: envelope.systems[0]!.id });
    // NVMe, which becomes virtio, comes back as virtio's SCSI
    const virtio = before.controllers.some(({ bus }) => bus === 'virtio');
    const target = { ...TARGET, virtio, drivePathOf: () => undefined };
    const { xml } = domainXmlOf(before, target);
    const { xml: again } = domainXmlOf(applianceIn(exported(xml).text), target);
    expect(unconnected(again)).toBe(unconnected(xml));
  });
});

describe('controllers', () => {
  test('of virtio are SCSI, for guests with its drivers and for those without', () => {
    const { vm, text } = exported(domain({ devices: disk('vda', 'virtio') + disk('vdb', 'virtio') }));
    expect(placesOf({ vm })).toEqual(['vda scsi0:0', 'vdb scsi0:1']);
    expect(vm.controllers).toEqual([{ bus: 'scsi', index: 0, subType: 'virtio lsilogic' }]);
    expect(applianceIn(text).controllers).toEqual([{ bus: 'scsi', index: 0, model: 'virtio-scsi' }]);
  });

  test('the place of the controller itself is nobody’s, and a seventeenth disk has a controller of its own', () => {
    const names = Array.from({ length: 17 }, (_, index) => `vd${String.fromCharCode(97 + index)}`);
    const places = placesOf(exported(domain({ devices: names.map(name => disk(name, 'virtio')).join('') })));
    expect(places.slice(6, 8)).toEqual(['vdg scsi0:6', 'vdh scsi0:8']);
    expect(places.slice(14)).toEqual(['vdo scsi0:15', 'vdp scsi1:0', 'vdq scsi1:1']);
  });

  test('of the domain keep their numbers, also beside those of virtio', () => {
    const devices =
      disk('vda', 'virtio') +
      disk('sda', 'scsi', at(0, 3)) +
      disk('sdb', 'scsi', at(1, 0)) +
      disk('sdc', 'scsi', at(0, 7)) +
      "<controller type='scsi' index='0' model='lsisas1068'/><controller type='scsi' index='1' model='vmpvscsi'/>";
    const { vm } = exported(domain({ devices }));
    expect(placesOf({ vm })).toEqual(['vda scsi2:0', 'sda scsi0:3', 'sdb scsi1:0', 'sdc scsi0:0']);
    expect(vm.controllers.map(({ subType }) => subType)).toEqual([
      'virtio lsilogic',
      'lsilogicsas',
      'VirtualSCSI',
    ]);
  });

  test('more than four disks of IDE go to SATA, each named', () => {
    const names = ['hda', 'hdb', 'hdc', 'hdd', 'hde', 'hdf'];
    const { vm, warnings } = exported(domain({ devices: names.map(name => disk(name, 'ide')).join('') }));
    expect(placesOf({ vm })).toEqual([
      ...['hda ide0:0', 'hdb ide0:1', 'hdc ide1:0', 'hdd ide1:1', 'hde sata0:0', 'hdf sata0:1'],
    ]);
    expect(warnings.filter(text => text.includes('four places'))).toHaveLength(2);
  });

  test('disks of USB and others hang on SATA, drives have their images', () => {
    const devices =
      disk('sda', 'usb') +
      cdrom('hdc', 'ide', "<source file='/i.iso'/>") +
      cdrom('sdb', 'sata', "<source file='/gone.iso'/>") +
      "<disk type='file' device='floppy'><target dev='fda' bus='fdc'/></disk>";
    const { vm, text, warnings } = exported(domain({ devices }), ['hdc']);
    expect(placesOf({ vm })).toEqual(['sda sata0:0', 'hdc ide0:0', 'sdb sata0:1', 'fda :0']);
    expect(warnings).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/Disk "sda": It hangs on sata in place of "usb"/),
        expect.stringMatching(/Drive "sdb": Its image is not in the backup/),
      ]),
    );
    expect(applianceIn(text).drives).toMatchObject([
      { device: 'cdrom', bus: 'ide', file: { href: 'web-hdc.iso' } },
      { device: 'cdrom', bus: 'sata', file: null },
      { device: 'floppy', file: null },
    ]);
  });

  test('a disk that is not in the backup is left out and named', () => {
    const xml = domain({ devices: disk('vda', 'virtio') + disk('vdb', 'virtio') });
    const { vm, warnings } = vmOfDomain(xml, { disks: new Set(['vdb']), images: new Set() }, 'it');
    expect(vm.disks.map(({ target }) => target)).toEqual(['vdb']);
    expect(warnings.map(({ element }) => element)).toContain('Disk "vda"');
  });
});

describe('the rest of the VM', () => {
  test('memory is rounded up, threads and dies are cores', () => {
    const head = "<vcpu>8</vcpu><cpu><topology sockets='2' dies='2' cores='1' threads='2'/></cpu>";
    const { vm, text, warnings } = exported(domain({ head }));
    expect(vm).toMatchObject({ cpus: 8, coresPerSocket: 4, memoryMiB: 1025 });
    expect(applianceIn(text)).toMatchObject({ cpus: 8, coresPerSocket: 4, memoryMiB: 1025 });
    expect(warnings).toContain('cpu/topology: Each socket has 4 cores in place of dies and threads.');
  });

  const efi = (features: string, loader = '') =>
    `<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type><firmware>${features}</firmware>${loader}</os>`;
  const flash = (template: string) =>
    `<os><type arch='x86_64' machine='q35'>hvm</type><loader secure='yes' type='pflash'>/c.fd</loader>
     <nvram template='${template}'/></os>`;
  test.each([
    [PC, false, false],
    [efi("<feature enabled='no' name='secure-boot'/>"), true, false],
    [
      efi("<feature enabled='yes' name='secure-boot'/><feature enabled='yes' name='enrolled-keys'/>"),
      true,
      true,
    ],
    [
      efi("<feature enabled='yes' name='secure-boot'/><feature enabled='no' name='enrolled-keys'/>"),
      true,
      false,
    ],
    [flash('/usr/share/OVMF/OVMF_VARS_4M.ms.fd'), true, true],
    [flash('/usr/share/OVMF/OVMF_VARS_4M.fd'), true, false],
  ])('firmware %s', (os, isEfi, isSecure) => {
    const { text, warnings } = exported(domain({ os }));
    expect(applianceIn(text).firmware).toEqual({ efi: isEfi, secureBoot: isSecure });
    expect(text).toContain(isSecure ? 'vmx-13' : 'vmx-10');
    expect(warnings.some(one => one.startsWith('os/nvram'))).toBe(isEfi);
  });

  test.each([
    ['http://microsoft.com/win/2k22', "ovf:id='123' vmw:osType='windows2019srvNext_64Guest'", 'win/2k22'],
    ['http://microsoft.com/win/99', "ovf:id='120' vmw:osType='windows9_64Guest'", 'win/10'],
    ['http://redhat.com/rhel/9.2', "ovf:id='80' vmw:osType='rhel9_64Guest'", 'rhel/9-unknown'],
    ['http://debian.org/debian/testing', "ovf:id='96' vmw:osType='otherLinux64Guest'", 'linux/2022'],
    ['http://ubuntu.com/ubuntu/22.04', "ovf:id='94' vmw:osType='ubuntu64Guest'", 'linux/2022'],
    ['http://altlinux.org/alt/10.0', "ovf:id='101' vmw:osType='otherLinux64Guest'", 'linux/2022'],
    ['http://freebsd.org/freebsd/13', "ovf:id='1' vmw:osType='otherGuest64'", ''],
  ])('system %s', (id, attributes, version) => {
    const head = `<metadata><l:libosinfo xmlns:l="http://libosinfo.org/xmlns/libvirt/domain/1.0"><l:os id="${id}"/></l:libosinfo></metadata>`;
    const { text } = exported(domain({ head }));
    expect(text).toContain(`<OperatingSystemSection ${attributes}>`);
    expect(applianceIn(text).os).toMatchObject({
      version: expect.stringContaining(version),
      description: id,
    });
  });

  test('adapters, with networks by the names of the node', () => {
    const devices = [
      "<interface type='network'><mac address='52:54:00:00:00:01'/><source network='LAN &amp; more'/><model type='virtio'/></interface>",
      "<interface type='bridge'><source bridge='br0'/><model type='e1000e'/><vlan/><mtu size='9000'/></interface>",
      "<interface type='direct'><source dev='eth1' mode='bridge'/><model type='rtl8139'/></interface>",
      "<interface type='user'/>",
    ].join('');
    const { text, warnings } = exported(domain({ devices }));
    expect(applianceIn(text).nics).toEqual([
      { model: 'virtio', mac: '52:54:00:00:00:01', network: 'LAN & more' },
      { model: 'e1000e', mac: null, network: 'br0' },
      { model: 'e1000', mac: null, network: 'eth1' },
      { model: 'e1000', mac: null, network: 'user' },
    ]);
    expect(warnings).toEqual(
      expect.arrayContaining([
        'interface: It is not told: "vlan", "mtu".',
        'interface: The model "rtl8139" becomes E1000.',
        'interface: Its connection of the type "direct" becomes the network "eth1".',
      ]),
    );
  });
});

test('nothing goes silently', () => {
  const head = `<vcpu current='1'>2</vcpu><currentMemory unit='KiB'>1024</currentMemory><title>t</title>
    <memoryBacking><hugepages/></memoryBacking><clock offset='localtime'/>
    <features><acpi/><hyperv/></features><cpu mode='host-passthrough'/>
    <qemu:commandline><qemu:arg value='-S'/></qemu:commandline>`;
  const os = `<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><kernel>/k</kernel><boot dev='network'/><bootmenu enable='yes'/></os>`;
  const devices =
    disk('vda', 'virtio', '<serial>S</serial><iotune/>') +
    "<sound model='usb'/><input type='tablet' bus='usb'/><input type='mouse' bus='ps2'/><graphics type='vnc'/>" +
    "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel><hostdev type='pci'/>" +
    "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>";
  const { warnings } = exported(domain({ head, os, devices }));
  const elements = [
    ...['vcpu', 'currentMemory', 'title', 'memoryBacking', 'clock', 'features', 'cpu', 'qemu:commandline'],
    ...['os/type', 'os/kernel', 'os/boot', 'os', 'disk vda', 'sound', 'devices', 'tpm'],
  ];
  for (const element of elements)
    expect(warnings.filter(text => text.startsWith(`${element}: `))).toHaveLength(1);
  expect(warnings.find(text => text.startsWith('devices'))).toBe(
    'devices: They have no counterpart: "input tablet", "graphics vnc", "channel org.qemu.guest_agent.0", "hostdev pci".',
  );
  expect(warnings.find(text => text.startsWith('disk vda'))).toContain('"serial", "iotune"');
});

test('a VM without anything, and names of any letters', () => {
  const { vm, text } = exported(domain({ name: 'Магазин &lt;№1&gt; &amp; "co"', head: '' }));
  expect(applianceIn(text)).toMatchObject({ name: 'Магазин <№1> & "co"', disks: [], nics: [], cpus: 1 });
  expect(vm.controllers).toEqual([]);
});

test('the strict reader finds what is wrong', () => {
  const { text } = exported(domain({ devices: disk('vda', 'virtio') }));
  const broken: [string | RegExp, string, RegExp][] = [
    ["ovf:fileRef='file1'", "ovf:fileRef='file9'", /refers to no file/],
    ['ovf:/disk/vmdisk1', 'ovf:/disk/other', /leads nowhere/],
    ['<rasd:InstanceID>2<', '<rasd:InstanceID>1<', /InstanceID is not unique/],
    [/(<rasd:Parent>.*\n\s*)(<rasd:ResourceType>.*\n)/, '$2$1', /another order/],
    [/<rasd:Parent>\d/, '<rasd:Parent>1', /no controller/],
    ["ovf:capacityAllocationUnits='byte'", "ovf:capacityAllocationUnits='stone'", /unit of capacity/],
  ];
  for (const [from, to, fault] of broken) {
    expect(text.replace(from, to)).not.toBe(text);
    expect(faultsOf(text.replace(from, to)).join()).toMatch(fault);
  }
});
