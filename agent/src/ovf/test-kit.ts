// Descriptors that the tests of this folder make: shaped like those of the exporters, whose own text is not copied.
import { applianceOf, type DomainTarget, readOvf } from './index.ts';

const RASD = 'http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData';
export const OVF_1 = 'http://schemas.dmtf.org/ovf/envelope/1';

export const VMDK = 'http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized';

/** An item of hardware: the kind by its number, other fields of CIM, and what else. */
export function item(
  ResourceType: number,
  fields: Record<string, string | number> = {},
  { attributes = '', more = '', element = 'Item' } = {},
): string {
  const texts = Object.entries({ ...fields, ResourceType }).map(
    ([name, text]) => `<rasd:${name}>${text}</rasd:${name}>`,
  );
  return `<${element} ${attributes}>${texts.join('')}${more}</${element}>\n`;
}

export const cpus = (count: number, more = {}, rest = {}) =>
  item(3, { InstanceID: 1, VirtualQuantity: count, ...more }, rest);
export const memory = (quantity: number | string, unit = 'byte * 2^20', rest = {}) =>
  item(4, { InstanceID: 2, VirtualQuantity: quantity, AllocationUnits: unit }, rest);
export const scsi = (id: number, model: string, more = {}) =>
  item(6, { InstanceID: id, ResourceSubType: model, Address: 0, ...more });
export const sata = (id: number, model = 'vmware.sata.ahci') =>
  item(20, { InstanceID: id, ResourceSubType: model, Address: 0 });
export const ide = (id: number, address = 0) => item(5, { InstanceID: id, Address: address });
export const disk = (id: number, Parent: number, AddressOnParent: number, host = 'ovf:/disk/d1') =>
  item(17, { InstanceID: id, Parent, AddressOnParent, HostResource: host });
export const nic = (id: number, model: string, more = {}) =>
  item(10, { InstanceID: id, ResourceSubType: model, Connection: 'LAN', ...more });

export interface SystemParts {
  id?: string;
  name?: string;
  os?: string;
  items?: string;
  /** In the hardware, after its items. */
  settings?: string;
  /** Beside the hardware. */
  sections?: string;
}

export function system({
  id = 'vm1',
  name = 'web',
  os = `ovf:id="96" vmw:osType="debian12_64Guest"`,
  items = cpus(2) + memory(2048),
  settings = '',
  sections = '',
}: SystemParts = {}): string {
  return `<VirtualSystem ovf:id="${id}"><Info>A VM</Info>${name && `<Name>${name}</Name>`}
<OperatingSystemSection ${os}><Info/></OperatingSystemSection>
<VirtualHardwareSection><Info/>${items}${settings}</VirtualHardwareSection>${sections}</VirtualSystem>\n`;
}

export const FILE = '<File ovf:id="f1" ovf:href="web-disk1.vmdk" ovf:size="4096"/>';
export const DISK = `<Disk ovf:diskId="d1" ovf:fileRef="f1" ovf:capacity="8" ovf:capacityAllocationUnits="byte * 2^30" ovf:format="${VMDK}"/>`;

/** Default namespace and the usual prefixes; `content` stands for the VM. */
export function descriptor({
  files = FILE,
  disks = DISK,
  sections = '',
  content = system(),
  namespace = OVF_1,
} = {}): string {
  return `<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="${namespace}" xmlns:ovf="${namespace}" xmlns:rasd="${RASD}" xmlns:vmw="http://www.vmware.com/schema/ovf"
 xmlns:vbox="http://www.virtualbox.org/ovf/machine">
<References>${files}</References><DiskSection><Info/>${disks}</DiskSection>
<NetworkSection><Info/><Network ovf:name="LAN"/></NetworkSection>${sections}
${content}</Envelope>`;
}

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
export const read = (text: string) => readOvf(bytes(text), 'web.ovf');
/** The only VM of a descriptor of one VM with these parts. */
export const only = (parts: SystemParts, rest: Parameters<typeof descriptor>[0] = {}) =>
  applianceOf(read(descriptor({ ...rest, content: system(parts) })));

export const TARGET: DomainTarget = {
  arch: 'x86_64',
  domainType: 'kvm',
  networks: { LAN: { type: 'bridge', name: 'br0' } },
  defaultNetwork: { type: 'network', name: 'default' },
  nicMac: 'keep',
  virtio: false,
  withDisks: true,
  diskPathOf: index => `/pool/disk${index}.qcow2`,
  drivePathOf: index => `/pool/drive${index}.iso`,
};

const setting = (key: string, value: string) =>
  `<vmw:Config ovf:required="false" vmw:key="${key}" vmw:value="${value}"/>`;
export const EFI = setting('firmware', 'efi');
export const SECURE_BOOT = setting('bootOptions.efiSecureBootEnabled', 'true');
const files = (...names: string[]) =>
  names.map((name, at) => `<File ovf:id="f${at + 1}" ovf:href="${name}" ovf:size="4096"/>`).join('');
const disks = (count: number) =>
  Array.from(
    { length: count },
    (_, at) =>
      `<Disk ovf:diskId="d${at + 1}" ovf:fileRef="f${at + 1}" ovf:capacity="${at + 1}" ovf:capacityAllocationUnits="GB" ovf:format="${VMDK}"/>`,
  ).join('');
const attached = (parent: number, units: number[]) =>
  units.map((unit, at) => disk(100 + at, parent, unit, `ovf:/disk/d${at + 1}`)).join('');

/** One of each kind that is met: what is kept of them stands in `golden/`. */
export const DESCRIPTORS: Record<string, string> = {
  'vmware-bios-lsilogic': descriptor({
    content: system({
      items:
        cpus(4, {}, { more: '<vmw:CoresPerSocket ovf:required="false">2</vmw:CoresPerSocket>' }) +
        memory(4096) +
        scsi(3, 'lsilogic') +
        ide(4, 1) +
        disk(5, 3, 0) +
        item(15, { InstanceID: 6, Parent: 4, AddressOnParent: 0, ResourceSubType: 'vmware.cdrom.atapi' }) +
        item(14, { InstanceID: 7, AddressOnParent: 0 }) +
        nic(8, 'VmxNet3', { Address: '00:50:56:AA:BB:CC' }) +
        item(1, { InstanceID: 9, ElementName: 'VMCI device', ResourceSubType: 'vmware.vmci' }),
      sections:
        '<AnnotationSection><Info/><Annotation>two\nlines &amp; more</Annotation></AnnotationSection>',
    }),
  }),
  'vmware-secure-windows': descriptor({
    files: files('web.vmdk', 'web.nvram'),
    content: system({
      name: 'Büro',
      os: 'ovf:id="1" vmw:osType="windows2019srvNext_64Guest"',
      items:
        cpus(2) +
        memory(4, 'byte * 2^30') +
        scsi(3, 'lsilogicsas') +
        sata(4) +
        disk(5, 3, 0) +
        item(15, { InstanceID: 6, Parent: 4, AddressOnParent: 0 }) +
        item(1, { InstanceID: 7, ResourceSubType: 'vmware.vtpm' }) +
        item(23, { InstanceID: 8, ResourceSubType: 'vmware.usb.xhci' }) +
        item(1, { InstanceID: 9, ResourceSubType: 'vmware.soundcard.hdaudio' }) +
        nic(10, 'E1000e'),
      settings: `${EFI}${SECURE_BOOT}<vmw:ExtraConfig vmw:key="nvram" vmw:value="ovf:/file/f2"/>`,
    }),
  }),
  'vmware-many-disks': descriptor({
    files: files(...Array.from({ length: 12 }, (_, at) => `d${at}.vmdk`)),
    disks: disks(12),
    content: system({
      items:
        cpus(1) +
        memory(512) +
        scsi(3, 'buslogic', { Address: 1 }) +
        scsi(4, 'VirtualSCSI', { Address: 0 }) +
        attached(3, [0, 1, 2, 3, 4, 5, 6, 8, 9]) +
        disk(201, 4, 15, 'ovf:/disk/d10') +
        disk(202, 4, 15, 'ovf:/disk/d11') +
        disk(203, 99, 0, 'ovf:/disk/d12'),
    }),
  }),
  'virtualbox-efi': descriptor({
    files: files('vb-disk001.vmdk', 'guest.iso'),
    content: system({
      os: 'ovf:id="94"',
      items:
        cpus(2) +
        memory(2048, 'MegaBytes') +
        ide(3, 0) +
        ide(4, 1) +
        sata(5, 'AHCI') +
        item(23, { InstanceID: 6 }) +
        item(35, { InstanceID: 7, ResourceSubType: 'ensoniq1371' }) +
        disk(8, 5, 0, '/disk/d1') +
        item(15, { InstanceID: 9, Parent: 4, AddressOnParent: 0, HostResource: '/file/f2' }) +
        nic(10, 'E1000', { Address: '080027A1B2C3', Connection: 'NAT' }),
      sections:
        '<vbox:Machine ovf:required="false"><Hardware><Firmware type="EFI"/></Hardware></vbox:Machine>',
    }),
  }),
  'cluster-of-two': descriptor({
    files: files('a.vmdk', 'b.vmdk'),
    disks: disks(2),
    sections: '<vmw:ClusterSection ovf:required="true"><Info/></vmw:ClusterSection>',
    content: `<VirtualSystemCollection ovf:id="all"><Info/><StartupSection><Info/></StartupSection>
${system({ id: 'a', items: cpus(1) + memory(512) + sata(3) + disk(4, 3, 0, 'ovf:/disk/d1') })}
<VirtualSystemCollection ovf:id="inner"><Info/>${system({ id: 'b', name: 'web', items: cpus(2) + memory(1, 'GB') + scsi(3, 'virtio lsilogic') + disk(4, 3, 0, 'ovf:/disk/d2') })}
</VirtualSystemCollection></VirtualSystemCollection>`,
  }),
  'sizes-to-choose': descriptor({
    sections: `<DeploymentOptionSection><Info/><Configuration ovf:id="small"><Label>Small</Label></Configuration>
<Configuration ovf:id="big" ovf:default="true"/></DeploymentOptionSection>`,
    disks: `${DISK}<Disk ovf:diskId="data" ovf:capacity="\${size}" ovf:capacityAllocationUnits="byte * 2 ^ 30"/>`,
    content: system({
      items:
        cpus(1, {}, { attributes: 'ovf:configuration="small"' }) +
        cpus(8, {}, { attributes: 'ovf:configuration="big"' }) +
        memory(1024) +
        memory(8192, 'byte*2^20', { attributes: 'ovf:configuration="other big"' }) +
        sata(3, 'vmware.nvme.controller') +
        disk(4, 3, 0) +
        disk(5, 3, 1, 'ovf:/disk/data') +
        nic(6, 'someother, PCNet32'),
      sections: `<ProductSection><Info/><Property ovf:key="size" ovf:type="int" ovf:value="5">
<Value ovf:configuration="big" ovf:value="50"/></Property></ProductSection>`,
    }),
  }),
  'no-default-namespace': `<o:Envelope xmlns:o="${OVF_1}" xmlns:r="${RASD}"><o:References/><o:VirtualSystem o:id="bare"><o:Info/>
<o:VirtualHardwareSection><o:Info/><o:Item><r:InstanceId>1</r:InstanceId><r:ResourceType>3</r:ResourceType>
<r:VirtualQuantity>1</r:VirtualQuantity></o:Item></o:VirtualHardwareSection></o:VirtualSystem></o:Envelope>`,
};
