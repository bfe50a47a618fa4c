/** The disk that a domain gets: under which name, on which bus, and how libvirt is told. Pure. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { DOMParser } from '@xmldom/xmldom';
import { type DomainConfig, serializeXml } from '../../domain-xml/index.ts';
import { freeTarget } from '../lend/target.ts';

const BUSES = ['virtio', 'scsi', 'sata'] as const;
export type DiskBus = (typeof BUSES)[number];

export interface OwnDisk {
  /** Of a qcow2. */
  path: string;
  targetDev: string;
  bus: string;
}

/** @param bus empty: virtio @throws VirtkeepError invalid_field */
export function requireBus(bus: string): DiskBus {
  const found = BUSES.find(name => name === (bus || 'virtio'));
  if (found) return found;
  throw busRefused(`must be one of ${BUSES.join(', ')}`);
}

const busRefused = (reason: string) => new VirtkeepError('invalid_field', { field: 'target_bus', reason });

/** A domain as it runs and as it is defined; undefined what it has not. */
interface Forms {
  live: Pick<DomainConfig, 'disks'> | undefined;
  config: Pick<DomainConfig, 'disks'> | undefined;
}

/**
 * The first name that is free in both. libvirt takes no disk of SATA while the domain runs, and would add a SCSI controller whose model the
 * guest need not know.
 * @param hasScsi there is a SCSI controller
 * @throws VirtkeepError invalid_field
 */
export function nextTarget(bus: DiskBus, { live, config }: Forms, hasScsi: boolean): string {
  if (bus === 'sata' && live)
    throw busRefused('cannot be sata while the VM runs; take virtio, or switch it off');
  if (bus === 'scsi' && !hasScsi)
    throw busRefused('cannot be scsi: the VM has no SCSI controller; take virtio, or add one');
  const taken = [live, config].flatMap(form => form?.disks ?? []).map(({ targetDev }) => targetDev);
  return freeTarget(taken, bus === 'virtio' ? 'vd' : 'sd');
}

/** The `<disk>`, for libvirt's attachDevice and detachDevice. */
export function ownDiskXml({ path, targetDev, bus }: OwnDisk): string {
  const document = new DOMParser().parseFromString('<disk/>', 'text/xml');
  const disk = document.documentElement!;
  const add = (name: string, attributes: Record<string, string>) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    disk.appendChild(element);
  };
  disk.setAttribute('type', 'file');
  disk.setAttribute('device', 'disk');
  add('driver', { name: 'qemu', type: 'qcow2' });
  add('source', { file: path });
  add('target', { dev: targetDev, bus });
  return serializeXml(disk);
}
