/** Controllers, disks and drives of a VM. */
import type { Envelope, OvfDisk, OvfFile, OvfItem, OvfSystem, Warning } from './model.ts';
import { quoted } from './tree.ts';
import { bytesOf, wholeOf } from './units.ts';

export type Bus = 'ide' | 'sata' | 'scsi' | 'virtio';
/** libvirt's names. */
export type ScsiModel = 'lsilogic' | 'lsisas1068' | 'vmpvscsi' | 'virtio-scsi';

export interface ApplianceController {
  bus: Bus;
  /** From 0 among those of its bus; of IDE it is the channel. */
  index: number;
  /** Of SCSI. */
  model: ScsiModel | null;
}

/** Where a device hangs: on which of the appliance's controllers, and where on it. */
export interface Slot {
  bus: Bus;
  /** Index among the appliance's controllers; null: it names none that is there. */
  controller: number | null;
  unit: number | null;
}

export interface ApplianceDisk extends Slot {
  diskId: string;
  /** null: an empty disk, or one with a fault. */
  file: OvfFile | null;
  /** Why it cannot be brought along. */
  fault: string | null;
  /** As declared, which often lies where there is a file: the image says what it has. */
  capacityBytes: number | null;
  populatedSizeBytes: number | null;
  /** What the image is said to be: the image itself has to prove it. */
  format: ImageFormat | null;
}

export type ImageFormat = 'vmdk' | 'vpc' | 'vhdx' | 'qcow2' | 'vdi' | 'raw';

export interface ApplianceDrive extends Slot {
  device: 'cdrom' | 'floppy';
  /** null: empty. */
  file: OvfFile | null;
}

export interface Storage {
  controllers: ApplianceController[];
  disks: ApplianceDisk[];
  drives: ApplianceDrive[];
}

export const STORAGE_TYPES = {
  ide: 5,
  scsi: 6,
  other: 20,
  floppy: 14,
  cdrom: 15,
  dvd: 16,
  disk: 17,
} as const;

type Kind = Pick<ApplianceController, 'bus' | 'model'>;
const KINDS: Record<string, Kind> = {
  lsilogic: { bus: 'scsi', model: 'lsilogic' },
  lsilogicsas: { bus: 'scsi', model: 'lsisas1068' },
  virtualscsi: { bus: 'scsi', model: 'vmpvscsi' },
  pvscsi: { bus: 'scsi', model: 'vmpvscsi' },
  buslogic: { bus: 'scsi', model: 'lsilogic' },
  virtio: { bus: 'scsi', model: 'virtio-scsi' },
  'virtio-scsi': { bus: 'scsi', model: 'virtio-scsi' },
  virtioscsi: { bus: 'scsi', model: 'virtio-scsi' },
  ahci: { bus: 'sata', model: null },
  'vmware.sata.ahci': { bus: 'sata', model: null },
  'vmware.nvme.controller': { bus: 'virtio', model: null },
  nvme: { bus: 'virtio', model: null },
};
/** Controllers that QEMU has not. */
const REPLACED: Record<string, string> = {
  buslogic: 'an LSI Logic controller, for which the guest needs a driver',
  'vmware.nvme.controller': 'virtio, for which the guest needs a driver',
  nvme: 'virtio, for which the guest needs a driver',
};
const IDE: Kind = { bus: 'ide', model: null };
const BY_TYPE: Record<number, Kind> = {
  [STORAGE_TYPES.ide]: IDE,
  [STORAGE_TYPES.scsi]: KINDS.lsilogic!,
  [STORAGE_TYPES.other]: KINDS.ahci!,
};

interface Reading {
  envelope: Envelope;
  system: OvfSystem;
  configuration: string | null;
  items: OvfItem[];
  warnings: Warning[];
}

export function storageOf(reading: Reading): Storage {
  const { items, warnings } = reading;
  const controllers: ApplianceController[] = [];
  const byId = new Map<string, number>();
  for (const item of items.filter(({ resourceType }) => Object.hasOwn(BY_TYPE, resourceType))) {
    // of two with one id the first is the parent that is meant
    if (!byId.has(item.instanceId)) byId.set(item.instanceId, controllers.length);
    controllers.push(controllerOf(item, controllers, warnings));
  }
  const slotOf = (item: OvfItem) => slot(item, { controllers, byId, warnings });
  const ofTypes = (...types: number[]) => items.filter(({ resourceType }) => types.includes(resourceType));
  return {
    controllers,
    disks: disksOf(ofTypes(STORAGE_TYPES.disk), reading, slotOf),
    drives: ofTypes(STORAGE_TYPES.cdrom, STORAGE_TYPES.dvd, STORAGE_TYPES.floppy).map(item => ({
      device: item.resourceType === STORAGE_TYPES.floppy ? 'floppy' : 'cdrom',
      file: driveFile(item, reading),
      ...(item.resourceType === STORAGE_TYPES.floppy
        ? { bus: 'ide', controller: null, unit: item.addressOnParent }
        : slotOf(item)),
    })),
  };
}

function controllerOf(
  item: OvfItem,
  others: readonly ApplianceController[],
  warnings: Warning[],
): ApplianceController {
  const { label, subTypes, resourceType } = item;
  const isIde = resourceType === STORAGE_TYPES.ide;
  const name = isIde ? undefined : subTypes.find(type => Object.hasOwn(KINDS, type));
  const kind = name === undefined ? BY_TYPE[resourceType]! : KINDS[name]!;
  if (name !== undefined && Object.hasOwn(REPLACED, name))
    warnings.push({ element: label, key: 'replaced', text: `It becomes ${REPLACED[name]}.` });
  else if (name === undefined && !isIde && subTypes.length > 0) {
    const text = `The model ${quoted(subTypes[0]!)} is not known: it becomes ${kind.model ?? kind.bus}.`;
    warnings.push({ element: label, key: 'replaced', text });
  }
  const taken = new Set(others.filter(({ bus }) => bus === kind.bus).map(({ index }) => index));
  const address = wholeOf(item.address ?? undefined);
  return {
    ...kind,
    index: address !== undefined && address < 4 && !taken.has(address) ? address : free(taken),
  };
}

/** The lowest number from 0 that is not taken. */
export function free(taken: ReadonlySet<number>): number {
  let number = 0;
  while (taken.has(number)) number += 1;
  return number;
}

interface Controllers {
  controllers: readonly ApplianceController[];
  byId: ReadonlyMap<string, number>;
  warnings: Warning[];
}

/** A device without a controller goes to the first one that there is. */
function slot(item: OvfItem, { controllers, byId, warnings }: Controllers): Slot {
  const controller = item.parent === null ? undefined : byId.get(item.parent);
  const unit = item.addressOnParent;
  if (controller !== undefined) return { bus: controllers[controller]!.bus, controller, unit };
  const text = `It names no controller that is there: it goes to ${controllers[0]?.bus ?? 'sata'}.`;
  warnings.push({ element: item.label, key: 'contradiction', text });
  return { bus: controllers[0]?.bus ?? 'sata', controller: controllers.length > 0 ? 0 : null, unit: null };
}

/** `ovf:/disk/vmdisk1`, `/file/file2`; older ones have two slashes. */
function hostOf(item: OvfItem): { kind: 'disk' | 'file'; id: string } | null {
  const [, kind, id] = /^(?:ovf:)?\/{1,2}(disk|file)\/(.+)$/i.exec(item.hostResource ?? '') ?? [];
  return kind && id ? { kind: kind.toLowerCase() as 'disk' | 'file', id } : null;
}

function disksOf(items: OvfItem[], reading: Reading, slotOf: (item: OvfItem) => Slot): ApplianceDisk[] {
  const seen = new Set<string>();
  return items.flatMap(item => {
    const host = hostOf(item);
    if (host && seen.has(`${host.kind} ${host.id}`)) {
      const text = `The disk ${quoted(host.id)} is attached already; it is not attached twice.`;
      reading.warnings.push({ element: item.label, key: 'contradiction', text });
      return [];
    }
    if (host) seen.add(`${host.kind} ${host.id}`);
    return [{ ...diskOf(item, reading), ...slotOf(item) }];
  });
}

function diskOf(item: OvfItem, reading: Reading): Omit<ApplianceDisk, keyof Slot> {
  const { envelope, warnings } = reading;
  const host = hostOf(item);
  const disk = host?.kind === 'disk' ? envelope.disks.get(host.id) : undefined;
  const fileId = host?.kind === 'file' ? host.id : disk?.fileRef;
  const file = fileId == null ? undefined : envelope.files.get(fileId);
  const capacityBytes = disk ? capacityOf(disk, reading) : null;
  const isEmpty = disk !== undefined && fileId === null;
  let fault: string | null = null;
  if (host?.kind === 'disk' && !disk) fault = `the descriptor has no disk ${quoted(host.id)}`;
  else if (!host) fault = 'its item names no disk of the descriptor';
  else if (disk?.parentRef) fault = `it holds only the changes to the disk ${quoted(disk.parentRef)}`;
  else if (fileId != null && !file) fault = `the descriptor has no file ${quoted(fileId)}`;
  else if (file?.fault) fault = `the file ${quoted(file.href)} cannot be used: ${file.fault}`;
  else if (isEmpty && !capacityBytes) fault = 'it is empty, and its capacity cannot be told';
  if (fault !== null)
    warnings.push({ element: item.label, key: 'ignored', text: `Its data cannot be had: ${fault}.` });
  else if (disk?.capacity && capacityBytes === null) {
    const text = `Its capacity ${quoted(`${disk.capacity} ${disk.capacityUnit}`)} is not read: that of the image counts.`;
    warnings.push({ element: item.label, key: 'ignored', text });
  }
  return {
    diskId: host?.id ?? '',
    file: fault === null ? (file ?? null) : null,
    fault,
    capacityBytes,
    populatedSizeBytes: disk?.populatedSizeBytes ?? null,
    format: formatOf(disk?.format ?? '', file?.paths[0] ?? ''),
  };
}

function capacityOf(disk: OvfDisk, { system, configuration, warnings }: Reading): number | null {
  const key = /^\$\{(.+)\}$/.exec(disk.capacity ?? '')?.[1];
  if (key === undefined) return bytesOf(disk.capacity ?? '', disk.capacityUnit) ?? null;
  const property = system.properties.find(one => one.key === key);
  const set = property?.values.get(configuration ?? '') || property?.value;
  const bytes = bytesOf(set ?? '', disk.capacityUnit);
  if (bytes !== undefined) {
    const text = `Its capacity is the property ${quoted(key)}, whose default ${quoted(set!)} is taken.`;
    warnings.push({ element: `Disk ${quoted(disk.diskId)}`, key: 'assumed', text });
  }
  return bytes ?? null;
}

const FORMATS: [RegExp, ImageFormat][] = [
  [/vmdk/i, 'vmdk'],
  [/vhdx/i, 'vhdx'],
  [/vhd|linkid=137171/i, 'vpc'],
  [/qcow/i, 'qcow2'],
  [/vdi\b/i, 'vdi'],
  [/\b(raw|img)\b/i, 'raw'],
];

/** By the URI, else by the ending of the file; that of a raw image proves nothing, for others are named so, too. null: the bytes tell. */
function formatOf(uri: string, path: string): ImageFormat | null {
  const ending = /\.(\w{1,8})$/.exec(path.replace(/\.gz$/i, ''))?.[1] ?? '';
  const find = (text: string) => FORMATS.find(([pattern]) => pattern.test(text))?.[1];
  const byEnding = find(ending);
  return find(uri) ?? (byEnding === 'raw' ? null : byEnding) ?? null;
}

function driveFile(item: OvfItem, { envelope, warnings }: Reading): OvfFile | null {
  const host = hostOf(item);
  if (item.hostResource !== null && !host) {
    const text = `What it showed (${quoted(item.hostResource)}) belongs to another host: the drive is empty.`;
    warnings.push({ element: item.label, key: 'ignored', text });
  }
  if (!host) return null;
  const id = host.kind === 'file' ? host.id : (envelope.disks.get(host.id)?.fileRef ?? '');
  const file = envelope.files.get(id);
  if (file && file.fault === null) return file;
  const reason = file
    ? `the file ${quoted(file.href)} cannot be used: ${file.fault}`
    : `there is no ${quoted(host.id)}`;
  warnings.push({ element: item.label, key: 'ignored', text: `The drive is empty: ${reason}.` });
  return null;
}
