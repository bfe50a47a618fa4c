/** Where disks and drives hang in a machine of libvirt: each at an address of its own, as near to the descriptor's as it has room. */
import type { Appliance } from './appliance.ts';
import { type Bus, free, type ScsiModel, type Slot } from './storage.ts';
import { el, type Xml } from './xml-text.ts';

export type Machine = 'pc' | 'q35';
export type TargetBus = Bus | 'fdc';

export interface Place {
  bus: TargetBus;
  /** `sda`; hd and fd by their place, the others in the order they are placed. */
  dev: string;
  /** null: libvirt chooses, of virtio. */
  address: Xml | null;
}

/** Two channels of two. */
const IDE_UNITS = 4;
const FLOPPIES = 2;
/** Of QEMU's AHCI. */
const SATA_UNITS = 6;
/** Of QEMU's models: ids on the bus, except its own. */
const SCSI_UNITS: Record<ScsiModel, number> = { lsilogic: 7, lsisas1068: 8, vmpvscsi: 64, 'virtio-scsi': 64 };

interface ScsiController {
  model: ScsiModel;
  taken: Set<number>;
}

/** Places one after the other; the controllers that are needed then are told at the end. */
export class Placement {
  readonly #machine: Machine;
  readonly #isVirtio: boolean;
  readonly #controllers: Appliance['controllers'];
  /** In the order of their indexes, which have no gaps in a definition. */
  readonly #scsi: ScsiController[] = [];
  readonly #scsiOf = new Map<number, number>();
  readonly #taken = { ide: new Set<number>(), sata: new Set<number>(), fdc: new Set<number>() };
  readonly #count = { sd: 0, vd: 0 };

  /** @param isVirtio disks are virtio's, whatever they were */
  constructor(controllers: Appliance['controllers'], machine: Machine, isVirtio: boolean) {
    this.#controllers = controllers;
    this.#machine = machine;
    this.#isVirtio = isVirtio;
    if (isVirtio) return;
    const scsi = controllers
      .map((controller, at) => ({ ...controller, at }))
      .filter(({ model }) => model !== null);
    for (const { model, at } of scsi.toSorted((one, other) => one.index - other.index)) {
      this.#scsiOf.set(at, this.#scsi.length);
      this.#scsi.push({ model: model!, taken: new Set() });
    }
  }

  disk(slot: Slot): Place {
    if (this.#isVirtio || slot.bus === 'virtio')
      return { bus: 'virtio', dev: `vd${letters(this.#count.vd++)}`, address: null };
    return slot.bus === 'scsi' ? this.#onScsi(slot) : this.#onIdeOrSata(slot);
  }

  cdrom(slot: Slot): Place {
    return slot.bus === 'scsi' && !this.#isVirtio ? this.#onScsi(slot) : this.#onIdeOrSata(slot);
  }

  /** undefined: there are two already */
  floppy({ unit }: Slot): Place | undefined {
    const taken = this.#taken.fdc;
    const at = take(taken, unit !== null && unit < FLOPPIES ? unit : 0);
    if (at >= FLOPPIES) return undefined;
    return { bus: 'fdc', dev: `fd${letters(at)}`, address: drive({ unit: at }) };
  }

  /** Those of SCSI, those of SATA that are used or stood in the descriptor; of IDE and floppies libvirt has its own. */
  controllers(): Xml[] {
    const sataTaken = Math.max(-1, ...this.#taken.sata);
    const declared = this.#controllers.some(({ bus }) => bus === 'sata') ? 1 : 0;
    const count = Math.max(declared, Math.ceil((sataTaken + 1) / SATA_UNITS));
    const sata = Array.from({ length: count }, (_, index) => el('controller', { type: 'sata', index }));
    return [
      ...this.#scsi.map(({ model }, index) => el('controller', { type: 'scsi', index, model })),
      ...sata,
    ];
  }

  #onScsi({ controller, unit }: Slot): Place {
    const wanted = this.#scsiOf.get(controller ?? -1) ?? 0;
    const model = this.#scsi[wanted]?.model ?? 'lsilogic';
    const room = ({ model: its, taken }: ScsiController) => its === model && taken.size < SCSI_UNITS[its];
    const hasRoom = this.#scsi[wanted] !== undefined && room(this.#scsi[wanted]);
    let index = hasRoom ? wanted : this.#scsi.findIndex(room);
    if (index < 0) index = this.#scsi.push({ model, taken: new Set() }) - 1;
    const isFitting = unit !== null && unit < SCSI_UNITS[model];
    const at = take(this.#scsi[index]!.taken, isFitting ? unit : 0);
    // QEMU's models take several ids but one unit each, LSI Logic's the other way round in libvirt's words
    const place = model === 'lsilogic' ? { unit: at } : { target: at };
    return { bus: 'scsi', dev: this.#nextSd(), address: drive({ controller: index, ...place }) };
  }

  #onIdeOrSata({ bus, controller, unit }: Slot): Place {
    const index = this.#controllers[controller ?? -1]?.index ?? 0;
    if (this.#machine === 'pc' && bus !== 'sata' && this.#taken.ide.size < IDE_UNITS) {
      const preferred = bus === 'ide' && unit !== null && unit < 2 && index < 2 ? index * 2 + unit : 0;
      const at = take(this.#taken.ide, preferred);
      return {
        bus: 'ide',
        dev: `hd${letters(at)}`,
        address: drive({ bus: Math.floor(at / 2), unit: at % 2 }),
      };
    }
    const perController = bus === 'sata' ? SATA_UNITS : 2;
    const preferred = unit !== null && unit < perController ? index * perController + unit : 0;
    const at = take(this.#taken.sata, preferred);
    const address = drive({ controller: Math.floor(at / SATA_UNITS), unit: at % SATA_UNITS });
    return { bus: 'sata', dev: this.#nextSd(), address };
  }

  #nextSd(): string {
    return `sd${letters(this.#count.sd++)}`;
  }
}

/** The wanted number, or the lowest that is free. */
function take(taken: Set<number>, wanted: number): number {
  const at = taken.has(wanted) ? free(taken) : wanted;
  taken.add(at);
  return at;
}

function drive(at: { controller?: number; bus?: number; target?: number; unit?: number }): Xml {
  return el('address', { type: 'drive', controller: 0, bus: 0, target: 0, unit: 0, ...at });
}

/** 0 → a, 25 → z, 26 → aa. */
function letters(index: number): string {
  const last = String.fromCharCode(97 + (index % 26));
  return index < 26 ? last : `${letters(Math.floor(index / 26) - 1)}${last}`;
}
