/** Which CD-ROM drive of a domain takes the guest tools image: pure. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { DOMParser } from '@xmldom/xmldom';
import { type DiskConfig, type DomainConfig, serializeXml } from '../../domain-xml/index.ts';

export interface Drive {
  targetDev: string;
  bus: string;
  /** Where the change is made. */
  live: boolean;
  definition: boolean;
  /** The drive is added. */
  isNew: boolean;
  /** The image is in it already. */
  isMounted: boolean;
}

/**
 * Name of a drive that was added to a running domain. libvirt cannot change the medium of such a one (it does not know that it
 * has a tray), so the drive itself goes with the image.
 */
export const ADDED_DRIVE = 'ua-virtkeep-guest-tools';

/** Only these take another drive while the domain runs. */
const HOT_PLUG_BUSES = ['scsi', 'usb'];

/**
 * A drive that has the image, else an empty one, else a new one.
 * @param live what runs; null when it is off
 * @param definition null for a domain that has none
 * @throws VirtkeepError guest_tools_unavailable when there is no drive and none can be added
 */
export function freeDrive(live: DomainConfig | null, definition: DomainConfig | null, path: string): Drive {
  const forms = [live, definition].filter(form => form !== null);
  const drives = (forms[0]?.disks ?? []).filter(({ device }) => device === 'cdrom');
  const within = { live: live !== null, definition: definition !== null };
  const counterpart = ({ targetDev, bus }: DiskConfig) =>
    definition?.disks.find(
      disk => disk.device === 'cdrom' && disk.targetDev === targetDev && disk.bus === bus,
    );
  const isFreeEverywhere = (drive: DiskConfig) => {
    const other = definition && counterpart(drive);
    return drive.source === '' && (!definition || (other !== undefined && (other?.source ?? '') === ''));
  };
  const mounted = drives.find(drive => holdsImage(drive, path));
  if (mounted) {
    const other = counterpart(mounted);
    // a definition without it is changed as well, where its drive is free
    const isWhole = !definition || (other !== undefined && holdsImage(other, path));
    const definitionToo = !isWhole && other !== undefined && other.source === '';
    const { targetDev, bus } = mounted;
    return {
      targetDev,
      bus,
      live: false,
      definition: definitionToo,
      isNew: false,
      isMounted: !definitionToo,
    };
  }
  const empty = drives.find(isFreeEverywhere);
  if (empty) {
    const { targetDev, bus } = empty;
    return { targetDev, bus, ...within, isNew: false, isMounted: false };
  }
  return { ...newDrive(live, definition), ...within, isNew: true, isMounted: false };
}

/** Whether a CD-ROM drive holds that image. */
export function holdsImage({ device, path }: DiskConfig, image: string): boolean {
  return device === 'cdrom' && path === image;
}

function newDrive(
  live: DomainConfig | null,
  definition: DomainConfig | null,
): { targetDev: string; bus: string } {
  const forms = [live, definition].filter(form => form !== null);
  const disks = forms.flatMap(form => form.disks);
  const bus = live
    ? HOT_PLUG_BUSES.find(name => live.disks.some(disk => disk.bus === name))
    : coldBus(forms[0]!);
  if (bus === undefined)
    throw new VirtkeepError('guest_tools_unavailable', {
      reason:
        'the running domain has no empty CD-ROM drive, and none can be added while it runs; add one while it is off',
    });
  const prefix = bus === 'ide' ? 'hd' : 'sd';
  const taken = new Set(disks.map(({ targetDev }) => targetDev));
  for (let code = 'a'.charCodeAt(0); code <= 'z'.charCodeAt(0); code += 1) {
    const targetDev = prefix + String.fromCharCode(code);
    // a PC has four IDE drives
    if (!taken.has(targetDev) && (bus !== 'ide' || targetDev <= 'hdd')) return { targetDev, bus };
  }
  throw new VirtkeepError('guest_tools_unavailable', {
    reason: 'the domain has no room for another CD-ROM drive',
  });
}

function coldBus({ machine, arch }: DomainConfig): string {
  if (!/^(x86_64|i686)$/.test(arch)) return 'scsi';
  return /q35/.test(machine) ? 'sata' : 'ide';
}

/** The drive's `<disk>`. The image serves many domains: it keeps its owner. */
export function driveXml(
  { targetDev, bus, live, isNew }: Pick<Drive, 'targetDev' | 'bus' | 'live' | 'isNew'>,
  path: string | null,
): string {
  const document = new DOMParser().parseFromString('<disk/>', 'text/xml');
  const disk = document.documentElement!;
  const add = (parent: typeof disk, name: string, attributes: Record<string, string>) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    parent.appendChild(element);
    return element;
  };
  disk.setAttribute('type', 'file');
  disk.setAttribute('device', 'cdrom');
  add(disk, 'driver', { name: 'qemu', type: 'raw' });
  if (path !== null) add(add(disk, 'source', { file: path }), 'seclabel', { model: 'dac', relabel: 'no' });
  add(disk, 'target', { dev: targetDev, bus });
  add(disk, 'readonly', {});
  if (live && isNew) add(disk, 'alias', { name: ADDED_DRIVE });
  return serializeXml(disk);
}
