/** What a definition says that OVF has no words for: named, one line for each kind of thing. Pure. */
import type { Element } from '@xmldom/xmldom';
import { attr, child, children, childrenAt, type DomainConfig, text } from '../../domain-xml/index.ts';
import type { Warning } from '../model.ts';
import { listed, quoted } from '../tree.ts';

/** Children of the domain that the descriptor tells, or that have a function here. */
const TOLD = [
  'name',
  'description',
  'memory',
  'currentMemory',
  'vcpu',
  'os',
  'cpu',
  'features',
  'clock',
  'devices',
  'metadata',
];
/** Those of the host, or that any VM gets anew. */
const OF_THE_HOST = ['uuid', 'seclabel', 'resource', 'on_poweroff', 'on_reboot', 'on_crash'];
/** Devices that have items of their own, that each VM has, or that belong to the host. */
const DEVICES = [
  'emulator',
  'disk',
  'interface',
  'controller',
  'serial',
  'console',
  'sound',
  'audio',
  'video',
  'tpm',
];
const FEATURES = ['acpi', 'apic', 'pae', 'smm', 'vmport'];
const DISK_PARTS = ['driver', 'source', 'target', 'address', 'alias', 'backingStore', 'boot'];
const NIC_PARTS = ['mac', 'source', 'model', 'target', 'address', 'alias', 'boot'];

export function leftBehind(domain: Element, config: DomainConfig): Warning[] {
  return [
    ...system(domain, config),
    ...start(domain),
    ...partsOf(domain),
    ...others(domain),
    ...devices(domain),
  ].map(([element, said]) => ({ element, key: 'ignored', text: said }));
}

type Said = [element: string, text: string];

function system(domain: Element, { os, metadata, memoryMiB, vcpus, tpm }: DomainConfig): Said[] {
  const said: Said[] = [];
  const memory = (name: string) => {
    const element = child(domain, name);
    return element && `${element.textContent?.trim()} ${attr(element, 'unit') ?? 'KiB'}`;
  };
  if (memory('currentMemory') !== undefined && memory('currentMemory') !== memory('memory'))
    said.push(['currentMemory', `The guest has all of its ${memoryMiB} MiB from the beginning.`]);
  const current = attr(child(domain, 'vcpu'), 'current');
  if (current !== undefined && Number(current) !== vcpus)
    said.push(['vcpu', `The guest has all of its ${vcpus} CPUs from the beginning.`]);
  const cpu = child(domain, 'cpu');
  if (cpu && (attr(cpu, 'mode') !== undefined || children(cpu).some(one => one.localName !== 'topology')))
    said.push(['cpu', 'The guest sees the CPU of its new host: model and features are not told.']);
  const holder = child(domain, 'features');
  const features = (holder ? children(holder) : [])
    .map(({ localName }) => localName ?? '')
    .filter(name => !FEATURES.includes(name));
  if (features.length > 0) said.push(['features', `They are not told: ${listed(features)}.`]);
  const offset = attr(child(domain, 'clock'), 'offset') ?? 'utc';
  if (offset !== (os.type === 'Windows' ? 'localtime' : 'utc'))
    said.push(['clock', `That it runs by ${quoted(offset)} is not told.`]);
  if (metadata.template) said.push(['metadata', 'That it is a template is not told.']);
  if (tpm)
    said.push([
      'tpm',
      'Its state stays behind: what the guest sealed with it (BitLocker) needs its recovery key.',
    ]);
  return said;
}

function start(domain: Element): Said[] {
  const said: Said[] = [];
  const os = child(domain, 'os');
  if (!os) return said;
  const type = child(domain, 'os/type');
  const arch = attr(type, 'arch') ?? 'x86_64';
  const isEfi = attr(os, 'firmware') === 'efi' || attr(child(os, 'loader'), 'type') === 'pflash';
  if (arch !== 'x86_64') said.push(['os/type', `The architecture ${quoted(arch)} is not told.`]);
  if (attr(type, 'machine')?.includes('q35') && !isEfi)
    said.push(['os/type', 'The machine q35 is not told: with BIOS it is what its new host takes.']);
  if (isEfi) said.push(['os/nvram', 'The variables of UEFI stay behind: boot entries are made anew.']);
  if (text(domain, 'os/kernel'))
    said.push([
      'os/kernel',
      'The VM starts from a kernel of its host, which stays behind: elsewhere its disk must start by itself.',
    ]);
  const order = childrenAt(domain, 'os/boot').map(boot => attr(boot, 'dev') ?? '');
  const isUsual = order.length === 0 || order.join(' ') === 'hd' || order.join(' ') === 'hd cdrom';
  const isByDevice = children(child(domain, 'devices') ?? os).some(device => child(device, 'boot'));
  if (!isUsual || isByDevice)
    said.push(['os/boot', 'The order in which devices are started from is not told.']);
  const rest = children(os)
    .map(({ localName }) => localName ?? '')
    .filter(
      name => !['type', 'loader', 'nvram', 'boot', 'firmware', 'kernel', 'initrd', 'cmdline'].includes(name),
    );
  if (rest.length > 0) said.push(['os', `It is not told: ${listed(rest)}.`]);
  return said;
}

/** Settings of disks and adapters. */
function partsOf(domain: Element): Said[] {
  const lost = (device: Element, known: readonly string[]) =>
    [...new Set(children(device).map(({ localName }) => localName ?? ''))].filter(
      name => !known.includes(name),
    );
  const disks = childrenAt(domain, 'devices/disk').flatMap((disk): Said[] => {
    const isDrive = attr(disk, 'device') === 'cdrom';
    const names = lost(disk, isDrive ? [...DISK_PARTS, 'readonly'] : DISK_PARTS);
    const driver = Array.from(child(disk, 'driver')?.attributes ?? [], ({ name }) => name);
    names.push(...driver.filter(name => name !== 'name' && name !== 'type'));
    const element = `disk ${attr(child(disk, 'target'), 'dev') ?? ''}`;
    return names.length > 0 ? [[element, `It is not told: ${listed(names)}.`]] : [];
  });
  const nics = childrenAt(domain, 'devices/interface').flatMap((nic): Said[] => {
    const names = lost(nic, NIC_PARTS);
    const element = `interface ${attr(child(nic, 'mac'), 'address') ?? ''}`.trim();
    return names.length > 0 ? [[element, `It is not told: ${listed(names)}.`]] : [];
  });
  return [...disks, ...nics];
}

function others(domain: Element): Said[] {
  return children(domain)
    .filter(element => element.namespaceURI || !isTold(element))
    .map((element): Said => [element.tagName, 'It is not told.']);
}

function isTold({ localName }: Element): boolean {
  return TOLD.includes(localName ?? '') || OF_THE_HOST.includes(localName ?? '');
}

/** One line for all of them, most of which every VM of libvirt has. */
function devices(domain: Element): Said[] {
  const holder = child(domain, 'devices');
  if (!holder) return [];
  const names = children(holder)
    .filter(device => !DEVICES.includes(device.localName ?? '') && !isImplied(device))
    .map(nameOf);
  const serial = childrenAt(domain, 'devices/serial').length;
  const said: Said[] = serial > 4 ? [['serial', 'Of the serial ports four are told.']] : [];
  if (names.length > 0) said.push(['devices', `They have no counterpart: ${listed([...new Set(names)])}.`]);
  return said;
}

/** Every PC has a keyboard and a mouse. */
const isImplied = (device: Element): boolean => device.localName === 'input' && attr(device, 'bus') === 'ps2';

function nameOf(device: Element): string {
  const kind = attr(child(device, 'target'), 'name') ?? attr(device, 'type') ?? attr(device, 'model') ?? '';
  return `${device.localName} ${kind}`.trim();
}
