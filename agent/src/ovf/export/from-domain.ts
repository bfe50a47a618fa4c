/** A domain of libvirt as a VM of OVF: the other way round of `domain.ts`. What has no counterpart is a warning that names it. Pure. */
import type { Element } from '@xmldom/xmldom';
import { attr, child, childrenAt, type DomainConfig, parseDomain, parseXml } from '../../domain-xml/index.ts';
import type { Warning } from '../model.ts';
import { quoted } from '../tree.ts';
import { wholeOf } from '../units.ts';
import { leftBehind } from './left-behind.ts';
import type { ExportedNic, ExportedVm } from './model.ts';
import { osNamesOf } from './os-names.ts';
import { type Packed, storageOfDomain } from './storage.ts';

/** More than any platform takes; the rest would be refused as a whole. */
const MAX_SERIAL_PORTS = 4;

/**
 * @param subject names the definition in errors
 * @throws VirtkeepError xml_invalid
 */
export function vmOfDomain(
  xml: string,
  packed: Packed,
  subject: string,
): { vm: ExportedVm; warnings: Warning[] } {
  const config = parseDomain(xml, subject);
  const { root: domain } = parseXml(xml, 'domain', subject);
  const warnings: Warning[] = [];
  const { warnings: ofStorage, ...storage } = storageOfDomain(domain, packed);
  const vm: ExportedVm = {
    name: config.name,
    description: config.description,
    os: osNamesOf(config.os),
    cpus: config.vcpus,
    coresPerSocket: coresOf(domain, config, warnings),
    memoryMiB: config.memoryMiB,
    firmware: firmwareOf(domain),
    tpm: config.tpm !== undefined,
    ...storage,
    nics: childrenAt(domain, 'devices/interface').map(element => nicOf(element, warnings)),
    usb: usbOf(domain, warnings),
    sound: soundOf(domain, warnings),
    serialPorts: Math.min(childrenAt(domain, 'devices/serial').length, MAX_SERIAL_PORTS),
    video: childrenAt(domain, 'devices/video').length > 0,
  };
  return { vm, warnings: [...warnings, ...ofStorage, ...leftBehind(domain, config)] };
}

/** Threads and dies count as cores: OVF has neither. */
function coresOf(domain: Element, { vcpus }: DomainConfig, warnings: Warning[]): number | null {
  const topology = child(domain, 'cpu/topology');
  if (!topology) return null;
  const number = (name: string) => wholeOf(attr(topology, name)) ?? 1;
  const [sockets, dies, threads] = [
    number('sockets'),
    number('dies') * number('clusters'),
    number('threads'),
  ];
  const cores = dies * number('cores') * threads;
  if (dies > 1 || threads > 1)
    warnings.push({
      element: 'cpu/topology',
      key: 'replaced',
      text: `Each socket has ${cores} cores in place of dies and threads.`,
    });
  if (sockets * cores === vcpus) return cores;
  warnings.push({ element: 'cpu/topology', key: 'ignored', text: 'It does not fit the number of CPUs.' });
  return null;
}

/** UEFI is told by `firmware`, or by a loader that is a flash memory. */
function firmwareOf(domain: Element): ExportedVm['firmware'] {
  const os = child(domain, 'os');
  const loader = child(domain, 'os/loader');
  const efi = attr(os, 'firmware') === 'efi' || attr(loader, 'type') === 'pflash';
  const features = childrenAt(domain, 'os/firmware/feature');
  const isOn = (name: string) =>
    features.some(one => attr(one, 'name') === name && attr(one, 'enabled') === 'yes');
  const isSecure = attr(loader, 'secure') === 'yes' || isOn('secure-boot');
  // without keys it checks nothing; a definition that names files alone tells by their names
  const keys = features.find(one => attr(one, 'name') === 'enrolled-keys');
  const template = attr(child(domain, 'os/nvram'), 'template') ?? '';
  const hasKeys = keys ? attr(keys, 'enabled') === 'yes' : /[._-](ms|secboot)[._-]/i.test(template);
  return { efi, secureBoot: efi && isSecure && hasKeys };
}

/** Guests with virtio's drivers find the first where it is known, and every platform has the second. */
const NIC_MODELS: Record<string, string> = {
  e1000: 'E1000',
  'e1000-82544gc': 'E1000',
  'e1000-82545em': 'E1000',
  e1000e: 'E1000e',
  vmxnet3: 'VmxNet3',
  pcnet: 'PCNet32',
  virtio: 'virtio E1000',
  'virtio-transitional': 'virtio E1000',
  'virtio-non-transitional': 'virtio E1000',
};

function nicOf(element: Element, warnings: Warning[]): ExportedNic {
  const mac = attr(child(element, 'mac'), 'address') ?? null;
  const name = `interface ${mac ?? ''}`.trim();
  const model = attr(child(element, 'model'), 'type') ?? 'rtl8139';
  const known = Object.hasOwn(NIC_MODELS, model);
  if (!known)
    warnings.push({ element: name, key: 'replaced', text: `The model ${quoted(model)} becomes E1000.` });
  const type = attr(element, 'type') ?? 'user';
  const source = child(element, 'source');
  const network = ['network', 'bridge', 'dev', 'name'].flatMap(key => attr(source, key) ?? [])[0];
  if (type !== 'network' && type !== 'bridge')
    warnings.push({
      element: name,
      key: 'replaced',
      text: `Its connection of the type ${quoted(type)} becomes the network ${quoted(network ?? type)}.`,
    });
  return { subType: known ? NIC_MODELS[model]! : 'E1000', mac, network: network ?? type };
}

function usbOf(domain: Element, warnings: Warning[]): ExportedVm['usb'] {
  const models = childrenAt(domain, 'devices/controller')
    .filter(element => attr(element, 'type') === 'usb')
    .map(element => attr(element, 'model') ?? 'piix3-uhci')
    // companions of an EHCI controller are a part of it
    .filter(model => model !== 'none' && !/^ich9-uhci/.test(model));
  const kinds = models.map(model => {
    if (model.includes('xhci')) return 'xhci';
    if (!model.includes('ehci'))
      warnings.push({
        element: 'controller usb',
        key: 'replaced',
        text: `The model ${quoted(model)} becomes EHCI.`,
      });
    return 'ehci';
  });
  return [...new Set(kinds)];
}

const SOUND_MODELS: Record<string, string> = {
  ich6: 'vmware.soundcard.hdaudio',
  ich7: 'vmware.soundcard.hdaudio',
  ich9: 'vmware.soundcard.hdaudio',
  es1370: 'vmware.soundcard.ensoniq1371',
  sb16: 'vmware.soundcard.sb16',
  ac97: 'ac97',
};

function soundOf(domain: Element, warnings: Warning[]): string | null {
  const [first, ...others] = childrenAt(domain, 'devices/sound').map(element => attr(element, 'model') ?? '');
  for (const model of others)
    warnings.push({
      element: 'sound',
      key: 'ignored',
      text: `Beside the first, ${quoted(model)} is left out.`,
    });
  if (first === undefined) return null;
  if (Object.hasOwn(SOUND_MODELS, first)) return SOUND_MODELS[first]!;
  warnings.push({ element: 'sound', key: 'ignored', text: `The model ${quoted(first)} has no counterpart.` });
  return null;
}
