/** A VM of Proxmox VE as an appliance: what stands in its configuration, and what the archive has of its disks. Pure. */
import { type GuestOs, guestOsOf } from '../domain-xml/index.ts';
import { type Appliance, type ApplianceNic, listed, quoted, type Warning } from '../ovf/index.ts';
import { type GuestConfig, invalid, isOn, partsOf, readGuestConfig } from './config.ts';
import { disksOf } from './storage.ts';

/** A device of the archive. */
export interface ArchiveDevice {
  name: string;
  sizeBytes: number;
  isMemory: boolean;
}

/** What the archive holds. */
export interface ArchiveContent {
  configs: readonly { name: string; bytes: Uint8Array }[];
  devices: readonly ArchiveDevice[];
}

export interface ProxmoxVm {
  /** Each of its disks has data: `file.id` names the device of the archive. */
  appliance: Appliance;
  /** Names of the devices, by the index of the disk. */
  devices: string[];
}

const CONFIG = 'qemu-server.conf';
const MAX_CPUS = 255;
const MAX_MEMORY_MIB = 16 * 1024 * 1024;
const DEFAULT_MEMORY_MIB = 512;
const MAX_SERIAL_PORTS = 4;
const MAX_WARNINGS = 500;
const MAX_NICS = 32;

/**
 * @param subject names the archive in errors
 * @throws VirtkeepError appliance_invalid when it has no such configuration, or one of a VM that cannot run here
 */
export function proxmoxVmOf({ configs, devices }: ArchiveContent, subject: string): ProxmoxVm {
  const file = configs.find(({ name }) => name === CONFIG);
  if (!file) throw invalid(subject, `it has no ${CONFIG}: it is no backup of a VM`);
  const config = readGuestConfig(file.bytes, subject);
  const { values } = config;
  const arch = values.get('arch') ?? 'x86_64';
  if (arch !== 'x86_64')
    throw invalid(subject, `its VM is of the architecture ${quoted(arch)}, and only x86_64 is read`);
  const warnings: Warning[] = [];
  const warn = warner(warnings);
  const machine = machineOf(values, warn);
  const disks = disksOf(config, devices, warn);
  const appliance: Appliance = {
    systemId: '',
    name: values.get('name') ?? '',
    description: config.description,
    configuration: null,
    os: { ...osOf(values), description: values.get('ostype') ?? '' },
    ...cpusOf(values, warn),
    memoryMiB: memoryOf(values, warn),
    machine,
    firmware: firmwareOf(values, machine, warn),
    tpm: values.has('tpmstate0'),
    controllers: disks.controllers,
    disks: disks.disks,
    drives: disks.drives,
    nics: nicsOf(values, warn),
    usb: [],
    sound: soundOf(values, warn),
    serialPorts: serialPortsOf(values, warn),
    warnings,
  };
  warnOfRest(config, warn);
  const rest = warnings.length - MAX_WARNINGS + 1;
  const more: Warning = { element: CONFIG, key: 'ignored', text: `There are ${rest} more warnings.` };
  if (rest > 1) warnings.splice(-rest, rest, more);
  return { appliance, devices: disks.disks.map(({ file: data }) => data!.id) };
}

/** Tells what became of a key of the configuration. */
export type Warn = (element: string, key: Warning['key'], text: string) => void;

const warner =
  (warnings: Warning[]): Warn =>
  (element, key, text) => {
    warnings.push({ element, key, text });
  };

type Values = GuestConfig['values'];

const WINDOWS = 'http://microsoft.com/win/';
const SYSTEMS: Readonly<Record<string, string>> = {
  l24: 'http://libosinfo.org/linux/2022', l26: 'http://libosinfo.org/linux/2022', win11: `${WINDOWS}11`, win10: `${WINDOWS}10`,
  win8: `${WINDOWS}8`, win7: `${WINDOWS}7`, wvista: `${WINDOWS}vista`, wxp: `${WINDOWS}xp`, w2k: `${WINDOWS}2k`,
  w2k3: `${WINDOWS}2k3`, w2k8: `${WINDOWS}2k8`,
}; // biome-ignore format: a table

function osOf(values: Values): GuestOs {
  const type = values.get('ostype') ?? '';
  return guestOsOf(Object.hasOwn(SYSTEMS, type) ? SYSTEMS[type]! : '');
}

/** A whole number of a range, or what is assumed. */
function whole(text: string | undefined, most: number): number | undefined {
  const number = /^\d{1,9}$/.test(text ?? '') ? Number(text) : 0;
  return number >= 1 && number <= most ? number : undefined;
}

function cpusOf(values: Values, warn: Warn): Pick<Appliance, 'cpus' | 'coresPerSocket'> {
  const count = (key: string): number => {
    const text = values.get(key);
    const number = whole(text, MAX_CPUS);
    if (text !== undefined && number === undefined)
      warn(key, 'assumed', `${quoted(text)} is no number of CPUs: 1 is taken.`);
    return number ?? 1;
  };
  const [cores, sockets] = [count('cores'), count('sockets')];
  const isMany = cores * sockets > MAX_CPUS;
  if (isMany) warn('cores', 'assumed', `Of ${cores * sockets} CPUs it has ${MAX_CPUS}.`);
  const vcpus = values.get('vcpus');
  if (vcpus !== undefined && vcpus !== String(cores * sockets))
    warn('vcpus', 'replaced', `All of its ${cores * sockets} CPUs are plugged in from the start.`);
  const model = values.get('cpu');
  if (model !== undefined)
    warn('cpu', 'replaced', `The model ${quoted(model)} becomes the one that is nearest to the node's.`);
  return isMany ? { cpus: MAX_CPUS, coresPerSocket: null } : { cpus: cores * sockets, coresPerSocket: cores };
}

function memoryOf(values: Values, warn: Warn): number {
  const text = values.get('memory');
  const memoryMiB =
    text === undefined ? DEFAULT_MEMORY_MIB : whole(partsOf(text, 'current').main, MAX_MEMORY_MIB);
  if (memoryMiB === undefined)
    warn('memory', 'assumed', `Its memory cannot be told: it has ${DEFAULT_MEMORY_MIB} MiB.`);
  return memoryMiB ?? DEFAULT_MEMORY_MIB;
}

function machineOf(values: Values, warn: Warn): 'pc' | 'q35' {
  const text = values.get('machine');
  if (text === undefined) return 'pc';
  const { main, options } = partsOf(text, 'type');
  const machine = main.includes('q35') ? 'q35' : 'pc';
  if (!/^(pc|q35|)$/.test(main) || [...options.keys()].some(key => key !== 'type'))
    warn(
      'machine',
      'replaced',
      `${quoted(text)} becomes the newest ${machine} of the node, without options.`,
    );
  return machine;
}

function firmwareOf(values: Values, machine: 'pc' | 'q35', warn: Warn): Appliance['firmware'] {
  const bios = values.get('bios') ?? 'seabios';
  const efi = bios === 'ovmf';
  if (!efi && bios !== 'seabios')
    warn('bios', 'assumed', `The firmware ${quoted(bios)} is not known: it is BIOS.`);
  const isSecure = efi && isOn(partsOf(values.get('efidisk0') ?? '').options.get('pre-enrolled-keys'));
  if (values.has('efidisk0'))
    warn(
      'efidisk0',
      'replaced',
      'The variables of its firmware are made anew: boot entries and keys of its own are lost.',
    );
  if (isSecure && machine === 'pc')
    warn('efidisk0', 'replaced', 'Secure boot is off: the machine pc has none here.');
  return { efi, secureBoot: isSecure && machine === 'q35' };
}

const NIC_MODELS: Readonly<Record<string, ApplianceNic['model']>> = {
  virtio: 'virtio', e1000: 'e1000', 'e1000-82540em': 'e1000', e1000e: 'e1000e', vmxnet3: 'vmxnet3', pcnet: 'pcnet', rtl8139: 'rtl8139',
}; // biome-ignore format: a table
/** Of an adapter: what has no counterpart. */
const NIC_LOST = ['tag', 'trunks', 'rate', 'queues', 'mtu', 'link_down', 'firewall'];

function nicsOf(values: Values, warn: Warn): ApplianceNic[] {
  const taken = new Set<string>();
  return numbered(values, 'net', MAX_NICS).map(([key, value]) => {
    const { main, options } = partsOf(value, 'model');
    const known = [...options.keys()].find(name => Object.hasOwn(NIC_MODELS, name));
    const name = main || known || options.get('model') || [...options.keys()][0] || '';
    const model = Object.hasOwn(NIC_MODELS, name) ? NIC_MODELS[name]! : 'e1000';
    if (!Object.hasOwn(NIC_MODELS, name)) warn(key, 'replaced', `The model ${quoted(name)} becomes e1000.`);
    const address = options.get('macaddr') ?? options.get(name);
    const mac = address === undefined ? null : macOf(address);
    const isUsed = mac !== null && !taken.has(mac);
    if (address !== undefined && !isUsed)
      warn(
        key,
        'replaced',
        `The MAC address ${quoted(address)} ${mac ? 'is another one’s' : 'is none'}: it gets a new one.`,
      );
    if (isUsed) taken.add(mac);
    const lost = NIC_LOST.filter(one => options.has(one) && options.get(one) !== '0');
    if (lost.length > 0) warn(key, 'ignored', `Settings of its network are left out: ${listed(lost)}.`);
    return { model, mac: isUsed ? mac : null, network: options.get('bridge') ?? null };
  });
}

/** No group's address, and not the empty one. */
function macOf(address: string): string | null {
  const mac = address.toLowerCase();
  const isMac = /^[\da-f]{2}(:[\da-f]{2}){5}$/.test(mac) && mac !== '00:00:00:00:00:00';
  return isMac && (Number.parseInt(mac.slice(0, 2), 16) & 1) === 0 ? mac : null;
}

const SOUNDS: Readonly<Record<string, string>> = {
  'ich9-intel-hda': 'ich9',
  'intel-hda': 'ich6',
  ac97: 'ac97',
};

function soundOf(values: Values, warn: Warn): string | null {
  const value = values.get('audio0');
  if (value === undefined) return null;
  const { options, main } = partsOf(value, 'device');
  const name = (options.get('device') ?? main).toLowerCase();
  if (!Object.hasOwn(SOUNDS, name)) warn('audio0', 'replaced', `The model ${quoted(name)} becomes ich9.`);
  return Object.hasOwn(SOUNDS, name) ? SOUNDS[name]! : 'ich9';
}

function serialPortsOf(values: Values, warn: Warn): number {
  const ports = numbered(values, 'serial', MAX_SERIAL_PORTS);
  for (const [key] of ports) warn(key, 'replaced', 'Its other end is a terminal of the node.');
  return ports.length;
}

/** `net0`, `net1`…, in the order of their numbers. */
export function numbered(values: Values, name: string, most: number): [string, string][] {
  return Array.from({ length: most }, (_, number) => `${name}${number}`).flatMap(key => {
    const value = values.get(key);
    return value === undefined ? [] : [[key, value] as [string, string]];
  });
}

/** Keys that are read above or in `storage.ts`, that every VM here has, or that say nothing of what the guest sees. */
const READ =
  /^(name|description|ostype|arch|cores|sockets|vcpus|cpu|memory|machine|bios|efidisk0|audio0|scsihw|boot|bootdisk|agent|tablet|acpi|kvm|meta|onboot|tags|digest|localtime|(net|serial|ide|sata|scsi|virtio)\d{1,3})$/;

const TOLD: Readonly<Record<string, string>> = {
  args: 'Arguments of QEMU are not taken from a file.',
  hookscript: 'Programs of the other host are not run.',
  smbios1:
    'The VM has a new uuid; serial numbers and names in its SMBIOS are left out, which licences may be bound to.',
  vmgenid: 'The VM has no generation id: a guest is not told that it is a copy.',
  template: 'It becomes a VM.',
  vga: 'The screen is VGA with VNC.',
};

function warnOfRest({ values, sections, unread, keyOfDevice }: GuestConfig, warn: Warn): void {
  const rest: string[] = [];
  for (const [key, value] of values) {
    if (READ.test(key)) {
      if ((key === 'acpi' || key === 'kvm' || key === 'tablet') && value === '0') rest.push(key);
      continue;
    }
    if (
      key === 'tpmstate0' ||
      (key === 'vga' && /^std\b/.test(value)) ||
      (key === 'template' && value === '0')
    )
      continue;
    if (/^(hostpci|usb|parallel)\d+$/.test(key))
      warn(key, 'ignored', 'Devices of the other host are not passed through.');
    else if (/^unused\d+$/.test(key)) warn(key, 'not_attached', 'The archive does not have it.');
    else if (Object.hasOwn(TOLD, key))
      warn(key, key === 'vga' || key === 'smbios1' ? 'replaced' : 'ignored', TOLD[key]!);
    else if (value !== '0') rest.push(key);
  }
  if (rest.length > 0)
    warn(CONFIG, 'ignored', `Settings of Proxmox VE have no counterpart: ${listed(rest)}.`);
  if (sections.length > 0)
    warn(CONFIG, 'ignored', `Saved states and pending changes are left out: ${listed(sections)}.`);
  if (unread > 0) warn(CONFIG, 'ignored', `${unread} of its lines are none of a configuration.`);
  if (keyOfDevice.size === 0)
    warn(CONFIG, 'assumed', 'It does not tell which disk is which: the names of the data are taken.');
}
