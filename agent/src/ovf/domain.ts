import { withoutHidden } from '@virtkeep/shared/hidden-characters';
import { LIBOSINFO } from '../domain-xml/index.ts';
import type { Appliance, ApplianceNic } from './appliance.ts';
import type { OvfFile, Warning } from './model.ts';
import { type Machine, Placement, type TargetBus } from './placement.ts';
import { quoted } from './tree.ts';
import { el, type Xml, xmlText } from './xml-text.ts';

/** `user`: one that QEMU makes for the VM alone, where the node has none. */
export type NetworkTarget = { type: 'network' | 'bridge'; name: string } | { type: 'user' };

/** For warnings. */
export const networkText = (target: NetworkTarget): string =>
  target.type === 'user' ? "QEMU's own network" : `${target.type} ${quoted(target.name)}`;

export interface DomainTarget {
  /** Left out: libvirt makes one. */
  uuid?: string;
  /** As libvirt takes it; left out: the appliance's, without what libvirt refuses. */
  name?: string;
  arch: 'x86_64';
  /** Whether the node has KVM. */
  domainType: 'kvm' | 'qemu';
  /** By the descriptor's names of networks. */
  networks: Readonly<Record<string, NetworkTarget>>;
  /** For those that are not in it. */
  defaultNetwork: NetworkTarget;
  /** `new`: libvirt makes them. */
  nicMac: 'keep' | 'new';
  /** Disks and network adapters become virtio, for which the guest must have drivers. */
  virtio: boolean;
  /** The guest is given them before it starts. */
  hasDrivers?: boolean;
  /** false: no disk, no image of a drive is attached (specification 2.3, rule 4). */
  withDisks: boolean;
  /** Where the qcow2 of `appliance.disks[index]` lies; asked for disks without fault only. */
  diskPathOf(index: number): string;
  /** Where the image of `appliance.drives[index]`, which has a file, lies; undefined: the drive stays empty. */
  drivePathOf?(index: number): string | undefined;
}

export interface DomainDisk {
  /** In `appliance.disks`. */
  index: number;
  diskId: string;
  targetDev: string;
  bus: TargetBus;
  path: string;
  /** null: an empty disk of that capacity is to be made. */
  file: OvfFile | null;
  capacityBytes: number | null;
}

export interface ImportedDomain {
  xml: string;
  /** Those that the XML has. */
  disks: DomainDisk[];
  /** Of the appliance, then of this. */
  warnings: Warning[];
}

interface Making {
  appliance: Appliance;
  target: DomainTarget;
  machine: Machine;
  warnings: Warning[];
}

/** The domain that comes nearest to the appliance. Pure: the same twice is the same. Disks with a fault are left out. */
export function domainXmlOf(appliance: Appliance, target: DomainTarget): ImportedDomain {
  const { efi, secureBoot } = appliance.firmware;
  const making: Making = {
    appliance,
    target,
    machine: appliance.machine ?? (efi ? 'q35' : 'pc'),
    warnings: [],
  };
  const { os } = appliance;
  const placement = new Placement(appliance.controllers, making.machine, target.virtio);
  const { disks, elements } = disksOf(making, placement);
  const drives = drivesOf(making, placement);
  const isOrdered = startsFirst(disks);
  if (!isOrdered) {
    const cdrom = drives.find(({ attributes }) => attributes.device === 'cdrom');
    for (const [index, one] of [elements[0], cdrom].entries()) if (one) bootFrom(one, index + 1);
  }
  const xml = el('domain', { type: target.domainType }, [
    el('name', {}, target.name ?? nameOf(making)),
    target.uuid !== undefined && el('uuid', {}, target.uuid),
    appliance.description !== '' && el('description', {}, appliance.description),
    os.id !== '' &&
      el('metadata', {}, [
        el('libosinfo:libosinfo', { 'xmlns:libosinfo': LIBOSINFO }, [el('libosinfo:os', { id: os.id })]),
      ]),
    el('memory', { unit: 'MiB' }, String(appliance.memoryMiB)),
    el('vcpu', {}, String(appliance.cpus)),
    osElement(making, isOrdered),
    el('features', {}, [el('acpi'), el('apic'), secureBoot && el('smm', { state: 'on' })]),
    cpuElement(making),
    el('clock', { offset: os.type === 'Windows' ? 'localtime' : 'utc' }),
    el('devices', {}, [
      ...elements,
      ...drives,
      ...placement.controllers(),
      ...appliance.usb.map((model, index) => el('controller', { type: 'usb', index, model })),
      ...nicsOf(making),
      ...otherDevices(appliance),
    ]),
  ]);
  warnOfReplaced(making);
  return { xml: xmlText(xml), disks, warnings: [...appliance.warnings, ...making.warnings] };
}

const MAX_NAME_BYTES = 200;

/** libvirt makes file names of it. */
function nameOf({ appliance: { name, systemId }, warnings }: Making): string {
  const plain = fittingName(name) || fittingName(systemId) || 'imported';
  if (plain !== name)
    warnings.push({ element: 'Name', key: 'replaced', text: `The VM is named ${quoted(plain)}.` });
  return plain;
}

/** No character has less than a byte, so all that can stay stands in the first ones; a stranger's name may have millions more. */
function fittingName(name: string): string {
  const whole = withoutHidden(name).replaceAll('/', '_').trim();
  let plain = whole.slice(0, MAX_NAME_BYTES).toWellFormed().trim();
  while (Buffer.byteLength(plain) > MAX_NAME_BYTES) plain = [...plain].slice(0, -1).join('').trim();
  return plain === '.' || plain === '..' ? '' : plain;
}

/**
 * libvirt starts from its first disk, and puts those of one bus into the order of their names. A disk of IDE is named by its place: the one
 * that is started from may have a later one than others.
 */
function startsFirst([first, ...others]: readonly DomainDisk[]): boolean {
  return !others.some(({ bus, targetDev }) => bus === first!.bus && isBefore(targetDev, first!.targetDev));
}

/** Of names on one bus: `sdz` comes before `sdaa`. */
const isBefore = (one: string, other: string): boolean =>
  one.length === other.length ? one < other : one.length < other.length;

/** Where one device says so, libvirt takes no order from the system's element. */
function bootFrom({ content }: Xml, order: number): void {
  if (typeof content !== 'string') content.push(el('boot', { order }));
}

/** @param isOrdered the first disk is the one to start from, and no device says otherwise */
function osElement({ appliance: { firmware }, target, machine }: Making, isOrdered: boolean): Xml {
  const { efi, secureBoot } = firmware;
  const enabled = secureBoot ? 'yes' : 'no';
  const features = [
    secureBoot && el('feature', { enabled, name: 'enrolled-keys' }),
    el('feature', { enabled, name: 'secure-boot' }),
  ];
  return el('os', efi ? { firmware: 'efi' } : {}, [
    el('type', { arch: target.arch, machine }, 'hvm'),
    efi && el('firmware', {}, features),
    secureBoot && el('loader', { secure: 'yes' }),
    isOrdered && el('boot', { dev: 'hd' }),
    isOrdered && el('boot', { dev: 'cdrom' }),
  ]);
}

/** Systems of today do not start on the CPU that libvirt takes when none is told. */
function cpuElement({ appliance: { cpus, coresPerSocket }, target }: Making): Xml {
  const mode = target.domainType === 'kvm' ? 'host-model' : 'maximum';
  const topology = { sockets: cpus / (coresPerSocket ?? 1), cores: coresPerSocket ?? 1, threads: 1 };
  return el('cpu', { mode }, [coresPerSocket !== null && el('topology', topology)]);
}

function disksOf(
  { appliance, target, warnings }: Making,
  placement: Placement,
): { disks: DomainDisk[]; elements: Xml[] } {
  const disks: DomainDisk[] = [];
  const elements: Xml[] = [];
  for (const [index, disk] of appliance.disks.entries()) {
    const element = `Disk ${quoted(disk.diskId)}`;
    if (!target.withDisks) warnings.push({ element, key: 'not_attached', text: 'The disk is not attached.' });
    if (!target.withDisks || disk.fault !== null) continue;
    const { bus, dev, address } = placement.disk(disk);
    const path = target.diskPathOf(index);
    const { diskId, file, capacityBytes } = disk;
    disks.push({ index, diskId, targetDev: dev, bus, path, file, capacityBytes });
    elements.push(
      el('disk', { type: 'file', device: 'disk' }, [
        el('driver', { name: 'qemu', type: 'qcow2' }),
        el('source', { file: path }),
        el('target', { dev, bus }),
        address,
      ]),
    );
    const { bus: former } = disk;
    if (bus !== former && former !== 'virtio' && !target.virtio)
      warnings.push({ element, key: 'replaced', text: `It hangs on ${bus} in place of ${former}.` });
  }
  return { disks, elements };
}

function drivesOf({ appliance, target, warnings }: Making, placement: Placement): Xml[] {
  return appliance.drives.flatMap((drive, index) => {
    const place = drive.device === 'floppy' ? placement.floppy(drive) : placement.cdrom(drive);
    if (!place) {
      warnings.push({ element: 'Floppy', key: 'ignored', text: 'A VM has at most two floppy drives.' });
      return [];
    }
    const { bus, dev, address } = place;
    const path = drive.file && target.withDisks ? target.drivePathOf?.(index) : undefined;
    if (drive.file && path === undefined) {
      const text = `The drive ${dev} is empty: ${quoted(drive.file.href)} is not put in.`;
      warnings.push({ element: `File ${quoted(drive.file.id)}`, key: 'not_attached', text });
    }
    return [
      el('disk', { type: 'file', device: drive.device }, [
        el('driver', { name: 'qemu', type: 'raw' }),
        path !== undefined && el('source', { file: path }),
        el('target', { dev, bus }),
        drive.device === 'cdrom' && el('readonly'),
        address,
      ]),
    ];
  });
}

function nicsOf({ appliance, target, warnings }: Making): Xml[] {
  const missing = new Set<string>();
  const elements = appliance.nics.map(({ model, mac, network }) => {
    const isMapped = network !== null && Object.hasOwn(target.networks, network);
    if (network !== null && !isMapped) missing.add(network);
    const to = isMapped ? target.networks[network]! : target.defaultNetwork;
    return el('interface', { type: to.type }, [
      mac !== null && target.nicMac === 'keep' && el('mac', { address: mac }),
      to.type !== 'user' && el('source', { [to.type]: to.name }),
      el('model', { type: target.virtio ? 'virtio' : model }),
    ]);
  });
  for (const network of missing) {
    const text = `Its adapters are connected to ${networkText(target.defaultNetwork)}.`;
    warnings.push({ element: `Network ${quoted(network)}`, key: 'replaced', text });
  }
  return elements;
}

/** What the appliance has, and what a VM needs to be used at all: a screen, a console, a pointer, a guest agent's channel. */
function otherDevices({ serialPorts, sound, tpm }: Appliance): Xml[] {
  const ports = Array.from({ length: Math.max(serialPorts, 1) }, (_, port) => port);
  return [
    ...ports.map(port => el('serial', { type: 'pty' }, [el('target', { port })])),
    el('console', { type: 'pty' }, [el('target', { type: 'serial', port: 0 })]),
    el('channel', { type: 'unix' }, [el('target', { type: 'virtio', name: 'org.qemu.guest_agent.0' })]),
    el('input', { type: 'tablet', bus: 'usb' }),
    el('graphics', { type: 'vnc', autoport: 'yes' }),
    el('video', {}, [el('model', { type: 'vga' })]),
    ...(sound === null ? [] : [el('sound', { model: sound })]),
    ...(tpm ? [el('tpm', { model: 'tpm-crb' }, [el('backend', { type: 'emulator', version: '2.0' })])] : []),
  ];
}

const isVirtio = ({ model }: ApplianceNic): boolean => model === 'virtio';

function warnOfReplaced({ appliance, target, warnings }: Making): void {
  const { os, tpm, disks, nics } = appliance;
  const isChanged = disks.some(({ bus }) => bus !== 'virtio') || nics.some(nic => !isVirtio(nic));
  if (target.virtio && !target.hasDrivers && isChanged && os.type !== 'Linux') {
    const guest =
      os.type === 'Windows' ? 'Windows does not start from them' : 'The guest may not start from them';
    const text = `Disks and network adapters are virtio. ${guest} unless the drivers of virtio were installed before.`;
    warnings.push({ element: 'VirtualHardwareSection', key: 'guest_must_support', text });
  }
  if (!tpm) return;
  const text =
    'The TPM is new and empty: what the guest sealed with the former one (BitLocker) needs its recovery key.';
  warnings.push({ element: 'TPM', key: 'replaced', text });
}
