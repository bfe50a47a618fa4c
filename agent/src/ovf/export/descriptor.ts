/** The text of an OVF 1.0 descriptor: elements in the order of DMTF's schema, fields of an item by their names (DSP8023, DSP0243). */
import { el, type Xml, xmlText } from '../xml-text.ts';
import type { ExportedController, ExportedVm, PackedContent, PackedFile, Place } from './model.ts';

const OVF = 'http://schemas.dmtf.org/ovf/envelope/1';
const CIM = 'http://schemas.dmtf.org/wbem/wscim/1';
const NAMESPACES = {
  xmlns: OVF,
  'xmlns:ovf': OVF,
  'xmlns:cim': `${CIM}/common`,
  'xmlns:rasd': `${CIM}/cim-schema/2/CIM_ResourceAllocationSettingData`,
  'xmlns:vssd': `${CIM}/cim-schema/2/CIM_VirtualSystemSettingData`,
  'xmlns:vmw': 'http://www.vmware.com/schema/ovf',
  'xmlns:xsi': 'http://www.w3.org/2001/XMLSchema-instance',
};
const VMDK = 'http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized';
const FILE_TYPES = { ide: 5, scsi: 6, sata: 20 } as const;
const CONTROLLER_NAMES = { ide: 'IDE', scsi: 'SCSI', sata: 'SATA' } as const;

type Fields = Record<string, string | number | null>;

/** A file with its ids in the descriptor. */
interface Referred extends PackedFile {
  id: string;
  target: string;
}

/** @param content of each disk of the VM; of the drives whose image is there */
export function descriptorOf(vm: ExportedVm, content: PackedContent): string {
  const targets = [
    ...vm.disks.map(({ target }) => ({ target, file: content.disks.get(target)! })),
    ...vm.drives.flatMap(({ target }) => {
      const file = content.images.get(target);
      return file ? [{ target, file }] : [];
    }),
  ];
  const files = targets.map(({ target, file }, at): Referred => ({ ...file, target, id: `file${at + 1}` }));
  const networks = [...new Set(vm.nics.map(({ network }) => network))];
  const envelope = el('Envelope', NAMESPACES, [
    el(
      'References',
      {},
      files.map(({ id, href, sizeBytes }) =>
        el('File', { 'ovf:href': href, 'ovf:id': id, 'ovf:size': sizeBytes }),
      ),
    ),
    vm.disks.length > 0 && diskSection(vm, files, content),
    networks.length > 0 &&
      el('NetworkSection', {}, [
        el('Info', {}, 'Logical networks'),
        ...networks.map(name => el('Network', { 'ovf:name': name }, [el('Description', {}, name)])),
      ]),
    virtualSystem(vm, files),
  ]);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${xmlText(envelope)}`;
}

const idOfDisk = (at: number): string => `vmdisk${at + 1}`;

function diskSection(vm: ExportedVm, files: readonly Referred[], { disks }: PackedContent): Xml {
  return el('DiskSection', {}, [
    el('Info', {}, 'Virtual disks'),
    ...vm.disks.map(({ target }, at) =>
      el('Disk', {
        'ovf:capacity': disks.get(target)!.capacityBytes,
        'ovf:capacityAllocationUnits': 'byte',
        'ovf:diskId': idOfDisk(at),
        'ovf:fileRef': files[at]!.id,
        'ovf:format': VMDK,
      }),
    ),
  ]);
}

function virtualSystem(vm: ExportedVm, files: readonly Referred[]): Xml {
  const { os } = vm;
  return el('VirtualSystem', { 'ovf:id': vm.name }, [
    el('Info', {}, 'A virtual machine'),
    el('Name', {}, vm.name),
    el('OperatingSystemSection', { 'ovf:id': os.cimId, 'vmw:osType': os.vmwareType }, [
      el('Info', {}, 'The operating system of the guest'),
      os.description !== '' && el('Description', {}, os.description),
    ]),
    hardware(vm, files),
    vm.description !== '' &&
      el('AnnotationSection', {}, [
        el('Info', {}, 'A description of the virtual machine'),
        el('Annotation', {}, vm.description),
      ]),
  ]);
}

/** The oldest virtual hardware of VMware that has all of it: SATA came with 10, secure boot with 13, a TPM with 14. */
function familyOf({ firmware, tpm }: ExportedVm): string {
  if (tpm) return 'vmx-14';
  return firmware.secureBoot ? 'vmx-13' : 'vmx-10';
}

function hardware(vm: ExportedVm, files: readonly Referred[]): Xml {
  const items = new Items();
  items.add(
    {
      AllocationUnits: 'hertz * 10^6',
      Description: 'Number of virtual CPUs',
      ElementName: `${vm.cpus} virtual CPU(s)`,
      ResourceType: 3,
      VirtualQuantity: vm.cpus,
    },
    { coresPerSocket: vm.coresPerSocket },
  );
  items.add({
    AllocationUnits: 'byte * 2^20',
    Description: 'Memory size',
    ElementName: `${vm.memoryMiB}MB of memory`,
    ResourceType: 4,
    VirtualQuantity: vm.memoryMiB,
  });
  const parents = vm.controllers.map(controller => items.add(controllerFields(controller)));
  addDisks(items, vm, parents);
  addDrives(items, vm, { parents, files });
  for (const [at, { subType, mac, network }] of vm.nics.entries())
    items.add({
      Address: mac,
      AddressOnParent: at,
      AutomaticAllocation: 'true',
      Connection: network,
      Description: `${subType.split(' ').at(-1)} network adapter on ${network}`,
      ElementName: `Network adapter ${at + 1}`,
      ResourceSubType: subType,
      ResourceType: 10,
    });
  addOthers(items, vm);
  const system = el('System', {}, [
    el('vssd:ElementName', {}, 'Virtual Hardware Family'),
    el('vssd:InstanceID', {}, '0'),
    el('vssd:VirtualSystemIdentifier', {}, vm.name),
    el('vssd:VirtualSystemType', {}, familyOf(vm)),
  ]);
  const { efi, secureBoot } = vm.firmware;
  return el('VirtualHardwareSection', {}, [
    el('Info', {}, 'Virtual hardware'),
    system,
    ...items.elements,
    efi && config('firmware', 'efi'),
    secureBoot && config('bootOptions.efiSecureBootEnabled', 'true'),
  ]);
}

const config = (key: string, value: string): Xml =>
  el('vmw:Config', { 'ovf:required': 'false', 'vmw:key': key, 'vmw:value': value });

function controllerFields({ bus, index, subType }: ExportedController): Fields {
  const name = CONTROLLER_NAMES[bus];
  return {
    Address: index,
    Description: `${name} controller`,
    ElementName: `${name} controller ${index}`,
    ResourceSubType: subType ?? (bus === 'sata' ? 'vmware.sata.ahci' : null),
    ResourceType: FILE_TYPES[bus],
  };
}

const on = (parents: readonly number[], { controller, unit }: Place): Fields => ({
  AddressOnParent: unit,
  Parent: parents[controller]!,
});

function addDisks(items: Items, { disks }: ExportedVm, parents: readonly number[]): void {
  for (const [at, disk] of disks.entries())
    items.add({
      ...on(parents, disk),
      Description: 'Disk drive',
      ElementName: `Hard disk ${at + 1}`,
      HostResource: `ovf:/disk/${idOfDisk(at)}`,
      ResourceType: 17,
    });
}

function addDrives(
  items: Items,
  { drives }: ExportedVm,
  { parents, files }: { parents: readonly number[]; files: readonly Referred[] },
): void {
  for (const { target, device, controller, unit } of drives) {
    const file = files.find(one => one.target === target);
    const isFloppy = device === 'floppy';
    const medium = isFloppy ? 'vmware.floppy' : 'vmware.cdrom';
    const empty = isFloppy ? 'remotedevice' : 'remotepassthrough';
    items.add(
      {
        ...(controller === null ? { AddressOnParent: unit } : on(parents, { controller, unit })),
        AutomaticAllocation: file ? 'true' : 'false',
        Description: isFloppy ? 'Floppy drive' : 'CD/DVD drive',
        ElementName: `${isFloppy ? 'Floppy' : 'CD/DVD'} drive ${target}`,
        HostResource: file ? `ovf:/file/${file.id}` : null,
        ResourceSubType: `${medium}.${file ? (isFloppy ? 'image' : 'iso') : empty}`,
        ResourceType: isFloppy ? 14 : 15,
      },
      { required: false },
    );
  }
}

/** Platforms without them may leave them out. */
function addOthers(items: Items, { usb, sound, serialPorts, video, tpm }: ExportedVm): void {
  const optional = (fields: Fields) => items.add(fields, { required: false });
  for (const [at, model] of usb.entries())
    optional({
      Address: at,
      Description: `USB controller (${model.toUpperCase()})`,
      ElementName: `USB controller ${at + 1}`,
      ResourceSubType: `vmware.usb.${model}`,
      ResourceType: 23,
    });
  for (let port = 0; port < serialPorts; port += 1)
    optional({
      Address: port,
      AutomaticAllocation: 'false',
      Description: 'Serial port',
      ElementName: `Serial port ${port + 1}`,
      ResourceType: 21,
    });
  if (video) optional({ AutomaticAllocation: 'false', ElementName: 'Video card', ResourceType: 24 });
  if (sound !== null)
    optional({
      AutomaticAllocation: 'false',
      ElementName: 'Sound card',
      ResourceSubType: sound,
      // VMware's own names are those of devices that CIM has no number for
      ResourceType: sound.startsWith('vmware.') ? 1 : 35,
    });
  if (tpm)
    optional({
      AutomaticAllocation: 'false',
      ElementName: 'Virtual TPM',
      ResourceSubType: 'vmware.vtpm',
      ResourceType: 1,
    });
}

/** Items get their ids in the order they are added, and their fields in that of the schema, which is the alphabet's. */
class Items {
  readonly elements: Xml[] = [];

  /** @returns its InstanceID */
  add(
    fields: Fields,
    { required = true, coresPerSocket = null }: { required?: boolean; coresPerSocket?: number | null } = {},
  ): number {
    const id = this.elements.length + 1;
    const named = Object.entries({ ...fields, InstanceID: id }).filter(([, value]) => value !== null);
    named.sort(([one], [other]) => (one < other ? -1 : 1));
    this.elements.push(
      el('Item', required ? {} : { 'ovf:required': 'false' }, [
        ...named.map(([name, value]) => el(`rasd:${name}`, {}, String(value))),
        coresPerSocket !== null &&
          el('vmw:CoresPerSocket', { 'ovf:required': 'false' }, String(coresPerSocket)),
      ]),
    );
    return id;
  }
}
