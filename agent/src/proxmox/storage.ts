/** Disks and drives of a VM of Proxmox VE, and the data that the archive has of them. */
import { type Appliance, type ApplianceDisk, quoted } from '../ovf/index.ts';
import type { ArchiveDevice, Warn } from './appliance.ts';
import { type GuestConfig, partsOf } from './config.ts';

type Storage = Pick<Appliance, 'controllers' | 'disks' | 'drives'>;
type Controller = Appliance['controllers'][number];
type Bus = Controller['bus'];

const UNITS: Readonly<Record<Bus, number>> = { ide: 4, sata: 6, scsi: 31, virtio: 16 };
const BUSES: readonly Bus[] = ['scsi', 'virtio', 'sata', 'ide'];
const SCSI_MODELS: Readonly<Record<string, Controller['model']>> = {
  lsi: 'lsilogic', lsi53c810: 'lsilogic', 'virtio-scsi-pci': 'virtio-scsi', 'virtio-scsi-single': 'virtio-scsi', pvscsi: 'vmpvscsi',
}; // biome-ignore format: a table

/** A volume that Proxmox VE itself makes for the guest's cloud-init: of its name, not of its storage's. */
const CLOUD_INIT = /[:/](?:vm-\d+-)?cloudinit(?:\.[a-z0-9]+)?$/;

interface Drive {
  key: string;
  bus: Bus;
  number: number;
  file: string;
  options: Map<string, string>;
}

export function disksOf(config: GuestConfig, devices: readonly ArchiveDevice[], warn: Warn): Storage {
  const all = drivesOf(config);
  const data = dataOf(config, devices, warn);
  const controllers = controllersOf(config, all, warn);
  const slot = ({ bus, number }: Drive) => {
    const channel = bus === 'ide' ? Math.floor(number / 2) : 0;
    const controller = controllers.findIndex(one => one.bus === bus && one.index === channel);
    return { bus, controller: controller < 0 ? null : controller, unit: bus === 'ide' ? number % 2 : number };
  };
  const storage: Storage = { controllers, disks: [], drives: [] };
  for (const drive of inBootOrder(config, all, warn)) {
    const { key, file, options } = drive;
    if (options.get('media') === 'cdrom' || CLOUD_INIT.test(file)) {
      if (!/^(none|)$/.test(file))
        warn(key, 'not_attached', `The drive is empty: ${quoted(file)} belongs to the other host.`);
      storage.drives.push({ device: 'cdrom', file: null, ...slot(drive) });
      continue;
    }
    const device = data.get(key);
    data.delete(key);
    if (!device)
      warn(
        key,
        'not_attached',
        `The archive does not have the data of ${quoted(file)}: the disk is left out.`,
      );
    else storage.disks.push({ ...diskOf(device), ...slot(drive) });
  }
  for (const [key, { name }] of data) {
    if (!/^(efidisk|tpmstate)0$/.test(key))
      warn(key, 'ignored', `The configuration has no disk for the data of ${quoted(name)}.`);
  }
  return storage;
}

function drivesOf({ values }: GuestConfig): Drive[] {
  const drives: Drive[] = [];
  for (const bus of BUSES) {
    for (let number = 0; number < UNITS[bus]; number++) {
      const value = values.get(`${bus}${number}`);
      if (value === undefined) continue;
      const { main, options } = partsOf(value, 'file');
      drives.push({ key: `${bus}${number}`, bus, number, file: main, options });
    }
  }
  return drives;
}

/** The archive's devices by the key of the disk. Where the configuration does not tell it, their names do. */
function dataOf(
  { keyOfDevice }: GuestConfig,
  devices: readonly ArchiveDevice[],
  warn: Warn,
): Map<string, ArchiveDevice> {
  const data = new Map<string, ArchiveDevice>();
  for (const device of devices) {
    const { name, isMemory } = device;
    const key = keyOfDevice.get(name) ?? /^drive-([a-z]+\d+)(-backup)?$/.exec(name)?.[1] ?? name;
    if (isMemory)
      warn('vmstate', 'ignored', 'The memory that was saved with it is left out: the VM starts anew.');
    else if (data.has(key))
      warn(key, 'contradiction', `The data of ${quoted(name)} are another one's, which is taken.`);
    else data.set(key, device);
  }
  return data;
}

function controllersOf({ values }: GuestConfig, drives: readonly Drive[], warn: Warn): Controller[] {
  const uses = (bus: Bus, channel?: number) =>
    drives.some(one => one.bus === bus && (channel === undefined || Math.floor(one.number / 2) === channel));
  const controllers: Controller[] = [0, 1].flatMap(index =>
    uses('ide', index) ? [{ bus: 'ide' as const, index, model: null }] : [],
  );
  if (uses('sata')) controllers.push({ bus: 'sata', index: 0, model: null });
  if (!uses('scsi')) return controllers;
  const name = values.get('scsihw') ?? 'lsi';
  const isKnown = Object.hasOwn(SCSI_MODELS, name);
  if (name === 'megasas' || !isKnown)
    warn(
      'scsihw',
      'replaced',
      `The controller ${quoted(name)} becomes lsisas1068, for which the guest needs a driver.`,
    );
  if (name === 'virtio-scsi-single')
    warn('scsihw', 'replaced', 'All disks share one controller, without threads of their own.');
  return [...controllers, { bus: 'scsi', index: 0, model: isKnown ? SCSI_MODELS[name]! : 'lsisas1068' }];
}

/** The first disk is the one that is booted from. */
function inBootOrder({ values }: GuestConfig, drives: readonly Drive[], warn: Warn): Drive[] {
  const text = values.get('boot') ?? '';
  const order = (/(?:^|,)order=([^,]*)/.exec(text)?.[1] ?? values.get('bootdisk') ?? '').split(';');
  if (/^net\d/.test(order[0]!) || /^n/.test(text))
    warn('boot', 'replaced', 'It boots from its disks, then from CD-ROM, not from a network.');
  const place = ({ key }: Drive) => (order.includes(key) ? order.indexOf(key) : order.length);
  return drives.toSorted((one, other) => place(one) - place(other));
}

/** Options of the other host (cache, threads, limits) say nothing of the disk itself. */
function diskOf({ name, sizeBytes }: ArchiveDevice): Omit<ApplianceDisk, 'bus' | 'controller' | 'unit'> {
  return {
    diskId: name,
    file: {
      id: name,
      href: name,
      paths: [],
      fault: null,
      sizeBytes,
      compression: 'none',
      chunkSizeBytes: null,
    },
    fault: null,
    capacityBytes: sizeBytes,
    populatedSizeBytes: null,
    format: 'raw',
  };
}
