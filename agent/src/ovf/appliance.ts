import { VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import { chooseConfiguration, chooseSystem, configurationsOf, itemsOf } from './choose.ts';
import type { Envelope, OvfConfiguration, OvfItem, OvfSystem, Warning } from './model.ts';
import { type ApplianceOs, osOf } from './os.ts';
import { STORAGE_TYPES, type Storage, storageOf } from './storage.ts';
import { listed, quoted } from './tree.ts';
import { bytesOf, unitBytes, wholeOf } from './units.ts';

/** One VM of a descriptor, in one configuration. */
export interface Appliance extends Storage {
  systemId: string;
  name: string;
  description: string;
  /** null: the descriptor has none. */
  configuration: string | null;
  os: ApplianceOs;
  /** From 1 to 255. */
  cpus: number;
  /** Divides `cpus`; null: not told, or it does not. */
  coresPerSocket: number | null;
  memoryMiB: number;
  /** Left out: q35 with EFI, else pc. */
  machine?: 'pc' | 'q35';
  firmware: { efi: boolean; secureBoot: boolean };
  tpm: boolean;
  nics: ApplianceNic[];
  /** Models of libvirt, each once; none: the descriptor has no USB controller. */
  usb: string[];
  sound: string | null;
  serialPorts: number;
  /** All that was replaced or left out; at most 500. */
  warnings: Warning[];
}

export interface ApplianceNic {
  /** Of libvirt. */
  model: 'e1000' | 'e1000e' | 'vmxnet3' | 'pcnet' | 'virtio' | 'rtl8139';
  /** Lower case, with colons. */
  mac: string | null;
  /** Name of the network of the descriptor. */
  network: string | null;
}

export interface SystemSummary {
  id: string;
  name: string;
  os: ApplianceOs;
  /** In the default configuration, as the rest. */
  cpus: number;
  memoryMiB: number;
  disks: number;
  configurations: OvfConfiguration[];
}

const CPU = 3;
const MEMORY = 4;
const NIC = 10;
const OTHER = 1;
const SERIAL = 21;
const USB = 23;
const VIDEO = 24;
const SOUND = 35;
const HANDLED: readonly number[] = [
  ...Object.values(STORAGE_TYPES),
  CPU,
  MEMORY,
  NIC,
  SERIAL,
  USB,
  VIDEO,
  SOUND,
];

/** Of the machine types that libvirt makes of it; more than any exported VM has. */
const MAX_CPUS = 255;
const MAX_MEMORY_MIB = 16 * 1024 * 1024;
const SMALL_MEMORY_MIB = 32;
const DEFAULT_MEMORY_MIB = 1024;
const MAX_SERIAL_PORTS = 4;
const MAX_WARNINGS = 500;

/** The VMs of a descriptor, of which a user chooses one; each in its default configuration. */
export function systemsOf(envelope: Envelope): SystemSummary[] {
  return envelope.systems.map(system => {
    const { name, os, cpus, memoryMiB, disks } = readAppliance(envelope, system);
    const configurations = configurationsOf(envelope, system);
    return { id: system.id, name, os, cpus, memoryMiB, disks: disks.length, configurations };
  });
}

/**
 * @param choice `system`: an id, or a name that only one has; undefined: the only one. `configuration`: an id; undefined: the default
 * @throws VirtkeepError ovf_system_ambiguous, ovf_system_unknown, ovf_configuration_unknown
 */
export function applianceOf(
  envelope: Envelope,
  choice: { system?: string; configuration?: string } = {},
): Appliance {
  return readAppliance(envelope, chooseSystem(envelope, choice.system), choice.configuration);
}

/**
 * Whoever brings disks along asks first.
 * @throws VirtkeepError ovf_disk_unusable for the first disk whose data cannot be had
 */
export function requireUsableDisks({ name, disks }: Appliance): void {
  const bad = disks.find(({ fault }) => fault !== null);
  if (!bad) return;
  const disk = bad.diskId === '' ? 'without a name' : quoted(bad.diskId);
  throw new VirtkeepError('ovf_disk_unusable', { name: quoted(name), disk, reason: bad.fault! });
}

function readAppliance(envelope: Envelope, system: OvfSystem, wanted?: string): Appliance {
  const configuration = chooseConfiguration(envelope, system, wanted);
  const items = itemsOf(system, configuration);
  const warnings = [...envelope.warnings, ...system.warnings];
  warnOfDuplicates(items, warnings);
  const ofType = (type: number) => items.filter(({ resourceType }) => resourceType === type);
  const others = ofType(OTHER);
  const appliance = {
    systemId: system.id,
    name: system.name,
    description: system.description,
    configuration,
    os: osOf(system),
    ...cpusOf(ofType(CPU), warnings),
    memoryMiB: memoryOf(ofType(MEMORY), warnings),
    firmware: firmwareOf(system, warnings),
    tpm: Boolean(system.settings.get('tpm')) || others.some(isTpm),
    ...storageOf({ envelope, system, configuration, items, warnings }),
    nics: nicsOf(ofType(NIC), warnings),
    usb: [...new Set(ofType(USB).map(usbModel))],
    sound: soundOf([...ofType(SOUND), ...others.filter(isSound)], warnings),
    serialPorts: serialPortsOf(ofType(SERIAL), warnings),
  };
  const ignored = items.filter(
    item => !HANDLED.includes(item.resourceType) && !isTpm(item) && !isSound(item),
  );
  for (const item of ignored) warnings.push(ignoredItem(item));
  warnOfSettings(system, warnings);
  return { ...appliance, warnings: bounded(warnings) };
}

function bounded(warnings: Warning[]): Warning[] {
  if (warnings.length <= MAX_WARNINGS) return warnings;
  const rest = warnings.length - MAX_WARNINGS + 1;
  const last: Warning = { element: 'Envelope', key: 'ignored', text: `There are ${rest} more warnings.` };
  return [...warnings.slice(0, MAX_WARNINGS - 1), last];
}

function warnOfDuplicates(items: readonly OvfItem[], warnings: Warning[]): void {
  const seen = new Set<string>();
  for (const { instanceId, label } of items) {
    if (instanceId !== '' && seen.has(instanceId)) {
      const text =
        'Another item has this InstanceID: devices that name it as parent go to the first controller.';
      warnings.push({ element: label, key: 'contradiction', text });
    }
    seen.add(instanceId);
  }
}

/** Of several items the first counts: no writer is known that means their sum. */
function only(items: readonly OvfItem[], warnings: Warning[]): OvfItem | undefined {
  for (const { label } of items.slice(1))
    warnings.push({
      element: label,
      key: 'contradiction',
      text: 'Another one stands before it, which is taken.',
    });
  return items[0];
}

function cpusOf(items: OvfItem[], warnings: Warning[]): Pick<Appliance, 'cpus' | 'coresPerSocket'> {
  const item = only(items, warnings);
  const element = item?.label ?? 'VirtualHardwareSection';
  const told = wholeOf(item?.quantity ?? undefined);
  const cpus = Math.min(told || 1, MAX_CPUS);
  if (told !== cpus) {
    const text = told
      ? `Of ${told} CPUs it has ${cpus}.`
      : 'It does not tell its number of CPUs: it has one.';
    warnings.push({ element, key: 'assumed', text });
  }
  const cores = item?.coresPerSocket ?? null;
  if (cores === null || cpus % cores === 0) return { cpus, coresPerSocket: cores };
  const text = `${cpus} CPUs cannot be divided into sockets of ${cores}: each has a socket of its own.`;
  warnings.push({ element, key: 'ignored', text });
  return { cpus, coresPerSocket: null };
}

function memoryOf(items: OvfItem[], warnings: Warning[]): number {
  const item = only(items, warnings);
  const element = item?.label ?? 'VirtualHardwareSection';
  const unit = item?.unit ?? 'MegaBytes';
  const isUnit = unitBytes(unit) !== undefined;
  if (!isUnit)
    warnings.push({ element, key: 'assumed', text: `The unit ${quoted(unit)} is not known: MiB is taken.` });
  const bytes = bytesOf(item?.quantity ?? '', isUnit ? unit : 'MegaBytes');
  const memoryMiB = bytes === undefined ? 0 : Math.ceil(bytes / MiB);
  if (memoryMiB === 0 || memoryMiB > MAX_MEMORY_MIB) {
    const text = `Its memory cannot be told: it has ${DEFAULT_MEMORY_MIB} MiB.`;
    warnings.push({ element, key: 'assumed', text });
    return DEFAULT_MEMORY_MIB;
  }
  if (memoryMiB < SMALL_MEMORY_MIB)
    warnings.push({ element, key: 'guest_must_support', text: `It has only ${memoryMiB} MiB of memory.` });
  return memoryMiB;
}

const isOn = (text: string | undefined): boolean => text?.toLowerCase() === 'true';

function firmwareOf({ settings }: OvfSystem, warnings: Warning[]): Appliance['firmware'] {
  const firmware = settings.get('firmware')?.toLowerCase() ?? 'bios';
  const isSecure =
    isOn(settings.get('bootoptions.efisecurebootenabled')) || isOn(settings.get('uefi.secureboot.enabled'));
  if (settings.get('nvram')) {
    const text =
      'The variables of its firmware are not those of the firmware here: they are made anew, and boot entries are lost.';
    warnings.push({ element: 'ExtraConfig "nvram"', key: 'replaced', text });
  }
  if (firmware !== 'efi' && firmware !== 'bios') {
    const text = `The firmware ${quoted(firmware)} is not known: it is BIOS.`;
    warnings.push({ element: 'Config "firmware"', key: 'assumed', text });
  }
  const efi = firmware === 'efi';
  if (isSecure && !efi) {
    const text = 'Secure boot is off: the firmware is not EFI.';
    warnings.push({ element: 'Config "bootOptions.efiSecureBootEnabled"', key: 'contradiction', text });
  }
  return { efi, secureBoot: efi && isSecure };
}

const NIC_MODELS: Record<string, ApplianceNic['model']> = {
  e1000: 'e1000',
  e1000e: 'e1000e',
  vmxnet3: 'vmxnet3',
  pcnet32: 'pcnet',
  virtio: 'virtio',
};

function nicsOf(items: OvfItem[], warnings: Warning[]): ApplianceNic[] {
  const taken = new Set<string>();
  return items.map(({ label, subTypes, address, connection }) => {
    const name = subTypes.find(type => Object.hasOwn(NIC_MODELS, type));
    if (name === undefined && subTypes.length > 0) {
      const text = `The model ${quoted(subTypes[0]!)} is not known: it becomes e1000.`;
      warnings.push({ element: label, key: 'replaced', text });
    }
    const mac = address === null ? null : macOf(address);
    const isUsed = mac !== null && !taken.has(mac);
    if (address !== null && !isUsed) {
      const text = `The MAC address ${quoted(address)} ${mac ? 'is another one’s' : 'is none'}: it gets a new one.`;
      warnings.push({ element: label, key: 'replaced', text });
    }
    if (isUsed) taken.add(mac);
    const model = name === undefined ? 'e1000' : NIC_MODELS[name]!;
    return { model, mac: isUsed ? mac : null, network: connection };
  });
}

/** `00:50:56:AA:BB:CC`, `00-50-56-…`, and VirtualBox's `005056AABBCC`; no group's address, and not the empty one. */
function macOf(address: string): string | null {
  const digits = address.replaceAll(/[:.-]/g, '').toLowerCase();
  if (!/^[\da-f]{12}$/.test(digits) || /^0{12}$/.test(digits)) return null;
  const isGroup = (Number.parseInt(digits.slice(0, 2), 16) & 1) === 1;
  return isGroup ? null : digits.match(/../g)!.join(':');
}

function usbModel({ subTypes }: OvfItem): string {
  return subTypes.some(type => type.includes('xhci')) ? 'qemu-xhci' : 'ich9-ehci1';
}

const isTpm = ({ subTypes }: OvfItem): boolean => subTypes.includes('vmware.vtpm');
const isSound = ({ subTypes }: OvfItem): boolean =>
  subTypes.some(type => type.startsWith('vmware.soundcard.'));

const SOUND_MODELS: Record<string, string> = {
  hdaudio: 'ich9',
  hda: 'ich9',
  ensoniq1371: 'es1370',
  es1371: 'es1370',
  ac97: 'ac97',
  sb16: 'sb16',
};

function soundOf(items: OvfItem[], warnings: Warning[]): string | null {
  const item = only(items, warnings);
  if (!item) return null;
  const name = item.subTypes
    .map(type => type.split('.').at(-1)!)
    .find(type => Object.hasOwn(SOUND_MODELS, type));
  if (name !== undefined) return SOUND_MODELS[name]!;
  if (item.subTypes.length > 0) {
    const text = `The model ${quoted(item.subTypes[0]!)} is not known: it becomes ich9.`;
    warnings.push({ element: item.label, key: 'replaced', text });
  }
  return 'ich9';
}

function serialPortsOf(items: OvfItem[], warnings: Warning[]): number {
  for (const { label } of items.slice(0, MAX_SERIAL_PORTS))
    warnings.push({ element: label, key: 'replaced', text: 'Its other end is a terminal of the node.' });
  for (const { label } of items.slice(MAX_SERIAL_PORTS))
    warnings.push({
      element: label,
      key: 'ignored',
      text: `A VM has at most ${MAX_SERIAL_PORTS} serial ports.`,
    });
  return Math.min(items.length, MAX_SERIAL_PORTS);
}

/** What of the other host is no part of the VM here. */
const HOST_PARTS: [RegExp, string][] = [
  [/^vmware\.vmci$/, 'Only VMware has it.'],
  [/pcipassthrough|vmware\.pci/, 'Devices of the other host are not passed through.'],
];

function ignoredItem({ label, subTypes, resourceType }: OvfItem): Warning {
  const part = HOST_PARTS.find(([pattern]) => subTypes.some(type => pattern.test(type)));
  const kind = `${resourceType}${subTypes.length > 0 ? ` (${quoted(subTypes[0]!)})` : ''}`;
  return { element: label, key: 'ignored', text: part?.[1] ?? `Devices of the kind ${kind} are left out.` };
}

const READ_SETTINGS = [
  'firmware',
  'bootoptions.efisecurebootenabled',
  'uefi.secureboot.enabled',
  'nvram',
  'tpm',
];

function warnOfSettings({ settings }: OvfSystem, warnings: Warning[]): void {
  const rest = [...settings.keys()].filter(key => !READ_SETTINGS.includes(key));
  if (rest.length === 0) return;
  const text = `Settings of the other hypervisor have no counterpart: ${listed(rest)}.`;
  warnings.push({ element: 'VirtualHardwareSection', key: 'ignored', text });
}
