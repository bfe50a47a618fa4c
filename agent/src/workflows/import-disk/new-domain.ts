/** The definition of a new VM around an imported disk: pure. It is made as that of an appliance with one disk (`ovf/`). */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { NewDomain } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { guestOsOf, type OsType } from '../../domain-xml/index.ts';
import { type Appliance, domainXmlOf, type NetworkTarget } from '../../ovf/index.ts';
import type { DiskBus } from './own-disk.ts';

/** libosinfo's names for a system of which no more is known. */
const OS_IDS: Record<OsType, string> = {
  Linux: 'http://libosinfo.org/linux/2022',
  Windows: 'http://microsoft.com/win/10',
  Other: '',
};
/** Of the machine types that libvirt makes of it. */
const MAX_CPUS = 255;
const MAX_MEMORY_MIB = 16n * 1024n * 1024n;

/** @throws VirtkeepError missing_field, invalid_field */
export function checkNewDomain({ name, memoryCount, cpuCount, osType, firmware }: NewDomain): void {
  const refuse = (field: string, reason: string) => new VirtkeepError('invalid_field', { field, reason });
  if (name === '') throw new VirtkeepError('missing_field', { field: 'new_domain.name' });
  if (memoryCount < 1n || memoryCount > MAX_MEMORY_MIB)
    throw refuse('memory_count', `must be 1 to ${MAX_MEMORY_MIB} MiB`);
  if (cpuCount < 1 || cpuCount > MAX_CPUS) throw refuse('cpu_count', `must be 1 to ${MAX_CPUS}`);
  if (osType !== '' && !Object.hasOwn(OS_IDS, osType))
    throw refuse('os_type', `must be one of ${Object.keys(OS_IDS).join(', ')}`);
  if (!['', 'bios', 'uefi'].includes(firmware)) throw refuse('firmware', 'must be bios or uefi');
}

export interface PlannedDomain {
  xml: string;
  targetDev: string;
  warnings: string[];
}

export interface DomainPlace {
  uuid: string;
  path: string;
  bus: DiskBus;
  hasKvm: boolean;
  /** null: it has no adapter. */
  network: NetworkTarget | null;
}

/** @param domain as `checkNewDomain` lets it through */
export function newDomainOf(domain: NewDomain, place: DomainPlace): PlannedDomain {
  const { uuid, path, hasKvm, network } = place;
  const { xml, disks } = domainXmlOf(applianceOf(domain, place), {
    uuid,
    name: domain.name,
    arch: 'x86_64',
    domainType: hasKvm ? 'kvm' : 'qemu',
    networks: {},
    defaultNetwork: network ?? { type: 'user' },
    nicMac: 'new',
    // disk and adapter are each what was asked for
    virtio: false,
    withDisks: true,
    diskPathOf: () => path,
  });
  return { xml, targetDev: disks[0]!.targetDev, warnings: warningsOf(domain, place) };
}

function applianceOf(domain: NewDomain, { bus, network }: DomainPlace): Appliance {
  const { name, memoryCount, cpuCount, osType, firmware, virtio } = domain;
  const controller = { index: 0, model: bus === 'scsi' ? ('virtio-scsi' as const) : null };
  const disk = { diskId: name, file: null, fault: null, capacityBytes: null, populatedSizeBytes: null };
  return {
    ...{ systemId: '', name, description: '', configuration: null, coresPerSocket: null },
    os: { ...guestOsOf(OS_IDS[(osType || 'Other') as OsType]), description: '' },
    cpus: cpuCount,
    memoryMiB: Number(memoryCount),
    firmware: { efi: firmware === 'uefi', secureBoot: false },
    controllers: bus === 'virtio' ? [] : [{ bus, ...controller }],
    disks: [{ ...disk, bus, controller: bus === 'virtio' ? null : 0, unit: 0, format: 'qcow2' }],
    drives: [],
    nics: network === null ? [] : [{ model: virtio ? 'virtio' : 'e1000', mac: null, network: null }],
    ...{ tpm: false, usb: [], sound: null, serialPorts: 0, warnings: [] },
  };
}

function warningsOf({ osType, virtio }: NewDomain, { bus, hasKvm, network }: DomainPlace): string[] {
  const isVirtio = bus !== 'sata' || (virtio && network !== null);
  const guest = osType === 'Windows' ? 'Windows does not start from it' : 'The guest may not start from it';
  return [
    ...(isVirtio && osType !== 'Linux'
      ? [`The VM has virtio devices. ${guest} unless the drivers of virtio were installed before.`]
      : []),
    ...(hasKvm ? [] : ['The node has no KVM: the VM is emulated.']),
  ];
}
