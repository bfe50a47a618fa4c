/** Where disks and drives hang on controllers that other hypervisors have: as near to the domain's as there is room. */
import type { Element } from '@xmldom/xmldom';
import { attr, child, childrenAt } from '../../domain-xml/index.ts';
import type { Warning } from '../model.ts';
import { free } from '../storage.ts';
import { quoted } from '../tree.ts';
import { wholeOf } from '../units.ts';
import type { ExportedController, ExportedDisk, ExportedDrive, Place } from './model.ts';

export interface ExportedStorage {
  controllers: ExportedController[];
  disks: ExportedDisk[];
  drives: ExportedDrive[];
  warnings: Warning[];
}

/** Targets whose content the package has. */
export interface Packed {
  disks: ReadonlySet<string>;
  images: ReadonlySet<string>;
}

/** Two channels, each a controller of its own in a descriptor. */
const IDE_CHANNELS = 2;
const IDE_UNITS = 2;
const SATA_UNITS = 30;
/** Ids of a bus with 16 of them, where the controller itself has one. */
const SCSI_UNITS = 16;
const SCSI_OWN_ID = 7;
const FLOPPIES = 2;
/** Of a kind; VMware takes no more. */
const MAX_CONTROLLERS = 4;

/** In the order of preference, as DSP0243 allows: for guests with the drivers of virtio where it is known, and what every platform has. */
const VIRTIO = 'virtio lsilogic';
const SCSI_MODELS: Record<string, string> = {
  lsilogic: 'lsilogic',
  lsisas1068: 'lsilogicsas',
  vmpvscsi: 'VirtualSCSI',
  buslogic: 'buslogic',
  'virtio-scsi': VIRTIO,
  'virtio-transitional': VIRTIO,
  'virtio-non-transitional': VIRTIO,
  auto: 'lsilogic',
};

/** Pure; in the order of the definition. */
export function storageOfDomain(domain: Element, packed: Packed): ExportedStorage {
  const placing = new Placing(domain);
  const disks: ExportedDisk[] = [];
  const drives: ExportedDrive[] = [];
  for (const element of childrenAt(domain, 'devices/disk')) {
    const target = attr(child(element, 'target'), 'dev') ?? '';
    const device = attr(element, 'device') ?? 'disk';
    if (device === 'floppy') drives.push(...placing.floppy(target));
    else if (device === 'cdrom') drives.push({ target, device, ...placing.place(element, target) });
    else if (packed.disks.has(target)) {
      const place = placing.place(element, target);
      disks.push({ target, ...place, adapter: placing.adapterAt(place) });
    } else placing.warn(`Disk ${quoted(target)}`, 'ignored', 'It is not in the backup, and is left out.');
    const hasImage = attr(child(element, 'source'), 'file') !== undefined;
    if ((device === 'cdrom' || device === 'floppy') && hasImage && !packed.images.has(target))
      placing.warn(`Drive ${quoted(target)}`, 'ignored', 'Its image is not in the backup: it is empty.');
  }
  return { ...placing.result(), disks, drives };
}

class Placing {
  readonly #controllers: (ExportedController & { taken: Set<number> })[] = [];
  readonly #warnings: Warning[] = [];
  readonly #scsiModels = new Map<number, string>();
  #floppies = 0;

  constructor(domain: Element) {
    for (const element of childrenAt(domain, 'devices/controller'))
      if (attr(element, 'type') === 'scsi')
        this.#scsiModels.set(wholeOf(attr(element, 'index')) ?? 0, attr(element, 'model') ?? 'auto');
  }

  warn(element: string, key: Warning['key'], text: string): void {
    this.#warnings.push({ element, key, text });
  }

  result(): Pick<ExportedStorage, 'controllers' | 'warnings'> {
    for (const bus of ['sata', 'scsi'] as const) {
      const count = this.#controllers.filter(one => one.bus === bus).length;
      if (count > MAX_CONTROLLERS)
        this.warn(
          'controller',
          'guest_must_support',
          `There are ${count} controllers of ${bus}; VMware takes ${MAX_CONTROLLERS}.`,
        );
    }
    const controllers = this.#controllers.map(({ bus, index, subType }) => ({ bus, index, subType }));
    return { controllers, warnings: this.#warnings };
  }

  place(disk: Element, target: string): Place {
    const bus = attr(child(disk, 'target'), 'bus') ?? '';
    const address = addressOf(disk);
    if (bus === 'ide') return this.#onIde(address, target);
    if (bus === 'scsi') return this.#onScsi(address);
    if (bus === 'virtio') return this.#next('scsi', VIRTIO);
    if (bus !== 'sata')
      this.warn(`Disk ${quoted(target)}`, 'replaced', `It hangs on sata in place of ${quoted(bus)}.`);
    return this.#onSata(bus === 'sata' ? address : undefined);
  }

  floppy(target: string): ExportedDrive[] {
    if (this.#floppies < FLOPPIES)
      return [{ target, device: 'floppy', controller: null, unit: this.#floppies++ }];
    this.warn(`Drive ${quoted(target)}`, 'ignored', 'A VM has at most two floppy drives.');
    return [];
  }

  adapterAt({ controller }: Place): ExportedDisk['adapter'] {
    const { bus, subType } = this.#controllers[controller]!;
    if (bus === 'ide') return 'ide';
    return subType === 'buslogic' ? 'buslogic' : 'lsilogic';
  }

  #onIde(address: Address | undefined, target: string): Place {
    const wanted = address && { index: address.bus, unit: address.unit };
    const places = [0, 1, 2, 3].map(at => ({ index: at >> 1, unit: at & 1 }));
    const isFree = ({ index, unit }: { index: number; unit: number }) =>
      !this.#find('ide', index)?.taken.has(unit);
    const isPlace = wanted && wanted.index < IDE_CHANNELS && wanted.unit < IDE_UNITS && isFree(wanted);
    const chosen = isPlace ? wanted : places.find(isFree);
    if (chosen) return this.#take('ide', chosen.index, chosen.unit);
    this.warn(`Disk ${quoted(target)}`, 'replaced', 'It hangs on sata: there are four places on ide.');
    return this.#onSata(undefined);
  }

  #onSata(address: Address | undefined): Place {
    if (
      address &&
      address.unit < SATA_UNITS &&
      !this.#find('sata', address.controller)?.taken.has(address.unit)
    )
      return this.#take('sata', address.controller, address.unit);
    return this.#next('sata', null);
  }

  /** LSI Logic's ids are units in libvirt's words, those of others targets. */
  #onScsi(address: Address | undefined): Place {
    const index = address?.controller ?? 0;
    const model = this.#scsiModels.get(index) ?? 'auto';
    const subType = SCSI_MODELS[model] ?? 'lsilogic';
    if (!Object.hasOwn(SCSI_MODELS, model) && !this.#find('scsi', index))
      this.warn(`controller scsi ${index}`, 'replaced', `The model ${quoted(model)} becomes lsilogic.`);
    const unit = address && (address.target === 0 ? address.unit : address.target);
    const isPlace = unit !== undefined && unit < SCSI_UNITS && unit !== SCSI_OWN_ID;
    const there = this.#find('scsi', index);
    if (isPlace && !there?.taken.has(unit) && (there?.subType ?? subType) === subType)
      return this.#take('scsi', index, unit, subType);
    return this.#next('scsi', subType);
  }

  #find(bus: ExportedController['bus'], index: number) {
    return this.#controllers.find(one => one.bus === bus && one.index === index);
  }

  /** The first free place on a controller of that kind; on a new one when there is none. */
  #next(bus: 'sata' | 'scsi', subType: string | null): Place {
    const most = bus === 'sata' ? SATA_UNITS : SCSI_UNITS - 1;
    const room = this.#controllers.find(
      one => one.bus === bus && one.taken.size < most && (bus === 'sata' || one.subType === subType),
    );
    const used = new Set(this.#controllers.filter(one => one.bus === bus).map(({ index }) => index));
    // a controller of the domain that comes later keeps its number
    const reserved = bus === 'scsi' ? [...this.#scsiModels.keys()] : [];
    const index = room?.index ?? free(new Set([...used, ...reserved]));
    const taken = new Set(room?.taken ?? []);
    if (bus === 'scsi') taken.add(SCSI_OWN_ID);
    return this.#take(bus, index, free(taken), subType);
  }

  #take(bus: ExportedController['bus'], index: number, unit: number, subType: string | null = null): Place {
    let there = this.#find(bus, index);
    if (!there) {
      there = { bus, index, subType, taken: new Set() };
      this.#controllers.push(there);
    }
    there.taken.add(unit);
    return { controller: this.#controllers.indexOf(there), unit };
  }
}

interface Address {
  controller: number;
  bus: number;
  target: number;
  unit: number;
}

function addressOf(disk: Element): Address | undefined {
  const address = child(disk, 'address');
  if (attr(address, 'type') !== 'drive') return undefined;
  const number = (name: string) => wholeOf(attr(address, name)) ?? 0;
  return {
    controller: number('controller'),
    bus: number('bus'),
    target: number('target'),
    unit: number('unit'),
  };
}
