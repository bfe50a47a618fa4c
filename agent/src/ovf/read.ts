import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import type { Element } from '@xmldom/xmldom';
import { children, parseXml } from '../domain-xml/index.ts';
import { hrefPaths } from './href.ts';
import type { Envelope, OvfConfiguration, OvfDisk, OvfFile, OvfProperty, OvfSystem } from './model.ts';
import { ignoredSection, readProperties, readSystem } from './read-system.ts';
import { OVF, ovfChildren, ovfText, quoted, value } from './tree.ts';
import { bytesOf, wholeOf } from './units.ts';

/** Bounds beside those of the XML; appliances of dozens of VMs have some hundreds of items. */
export const OVF_LIMITS = {
  sizeBytes: 8 * MiB,
  systems: 256,
  items: 2000,
  files: 2000,
  disks: 2000,
} as const;

/**
 * Reads a descriptor (`*.ovf`), whatever its prefixes.
 * @param subject names it in errors
 * @throws VirtkeepError ovf_version_unsupported, ovf_invalid; nothing else
 */
export function readOvf(bytes: Uint8Array, subject: string): Envelope {
  const root = rootOf(decoded(bytes, subject), subject);
  const envelope: Envelope = {
    subject,
    files: new Map(),
    disks: new Map(),
    networks: [],
    configurations: [],
    systems: [],
    warnings: [],
  };
  for (const section of children(root)) readSection(section, envelope);
  for (const content of children(root)) readContent(content, envelope, []);
  if (envelope.systems.length === 0) throw invalid(subject, 'it describes no VM');
  const items = envelope.systems.reduce((sum, system) => sum + system.items.length, 0);
  requireWithin(envelope, 'items', items);
  warnOfUnused(envelope);
  return envelope;
}

export function invalid(subject: string, reason: string): VirtkeepError {
  return new VirtkeepError('ovf_invalid', { subject, reason });
}

function requireWithin({ subject }: Envelope, what: keyof typeof OVF_LIMITS, count: number): void {
  if (count > OVF_LIMITS[what]) throw invalid(subject, `it has more than ${OVF_LIMITS[what]} ${what}`);
}

function decoded(bytes: Uint8Array, subject: string): string {
  if (bytes.length > OVF_LIMITS.sizeBytes)
    throw invalid(subject, `it is larger than ${OVF_LIMITS.sizeBytes} bytes`);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const start = Buffer.from(bytes.subarray(0, 200)).toString('latin1').replaceAll('\0', '');
    const named = /encoding=["']([\w.-]{1,40})["']/.exec(start)?.[1];
    throw invalid(subject, `it is not UTF-8${named ? ` but says "${named}"` : ''}`);
  }
}

function rootOf(text: string, subject: string): Element {
  let root: Element;
  try {
    root = parseXml(text, 'Envelope', subject).root;
  } catch (error) {
    if (!hasKey(error, 'xml_invalid')) throw error;
    throw new VirtkeepError('ovf_invalid', { subject, reason: error.params.reason ?? '' }, { cause: error });
  }
  const namespace = root.namespaceURI || 'none';
  if (namespace !== OVF)
    throw new VirtkeepError('ovf_version_unsupported', { subject, namespace: quoted(namespace) });
  return root;
}

/** Texts in other languages, and what `readContent` reads. */
const NO_SECTIONS = ['Strings', 'VirtualSystem', 'VirtualSystemCollection'];

function readSection(section: Element, envelope: Envelope): void {
  const { files, disks, networks, configurations, warnings } = envelope;
  const name = section.namespaceURI === OVF ? (section.localName ?? '') : '';
  if (name === 'References') for (const file of ovfChildren(section, 'File')) addFile(file, envelope);
  else if (name === 'DiskSection') for (const disk of ovfChildren(section, 'Disk')) addDisk(disk, envelope);
  else if (name === 'NetworkSection')
    networks.push(...ovfChildren(section, 'Network').flatMap(network => value(network, 'name') ?? []));
  else if (name === 'DeploymentOptionSection')
    configurations.push(...ovfChildren(section, 'Configuration').flatMap(readConfiguration));
  else if (!NO_SECTIONS.includes(name)) warnings.push(ignoredSection(section));
  requireWithin(envelope, 'files', files.size);
  requireWithin(envelope, 'disks', disks.size);
}

function addFile(element: Element, { files, warnings }: Envelope): void {
  const file = readFile(element);
  if (!files.has(file.id)) files.set(file.id, file);
  else
    warnings.push({
      element: `File ${quoted(file.id)}`,
      key: 'contradiction',
      text: 'Another one has this id; the first is taken.',
    });
}

function readFile(element: Element): OvfFile {
  const href = value(element, 'href') ?? '';
  const compression = value(element, 'compression')?.toLowerCase() ?? 'identity';
  const { paths, fault } = hrefPaths(href);
  const isKnown = compression === 'gzip' || compression === 'identity' || compression === 'none';
  return {
    id: value(element, 'id') ?? '',
    href,
    paths: isKnown ? paths : [],
    fault: fault ?? (isKnown ? null : `its compression ${quoted(compression)} is not known`),
    sizeBytes: wholeOf(value(element, 'size')) ?? null,
    compression: compression === 'gzip' ? 'gzip' : 'none',
    chunkSizeBytes: wholeOf(value(element, 'chunkSize')) || null,
  };
}

function addDisk(element: Element, { disks, warnings }: Envelope): void {
  const disk = readDisk(element);
  if (!disks.has(disk.diskId)) disks.set(disk.diskId, disk);
  else
    warnings.push({
      element: `Disk ${quoted(disk.diskId)}`,
      key: 'contradiction',
      text: 'Another one has this diskId; the first is taken.',
    });
}

function readDisk(element: Element): OvfDisk {
  return {
    diskId: value(element, 'diskId') ?? '',
    fileRef: value(element, 'fileRef') ?? null,
    capacity: value(element, 'capacity') ?? null,
    capacityUnit: value(element, 'capacityAllocationUnits') ?? 'byte',
    format: value(element, 'format') ?? '',
    parentRef: value(element, 'parentRef') ?? null,
    populatedSizeBytes: bytesOf(value(element, 'populatedSize') ?? '', 'byte') ?? null,
  };
}

function readConfiguration(element: Element): OvfConfiguration[] {
  const id = value(element, 'id');
  if (id === undefined) return [];
  return [
    {
      id,
      label: ovfText(element, 'Label'),
      description: ovfText(element, 'Description'),
      isDefault: /^(true|1)$/.test(value(element, 'default') ?? ''),
    },
  ];
}

/** A VM, or a collection of them; depth is bounded by that of the XML. */
function readContent(content: Element, envelope: Envelope, inherited: readonly OvfProperty[]): void {
  const { systems, warnings } = envelope;
  if (content.namespaceURI !== OVF) return;
  if (content.localName === 'VirtualSystem') {
    systems.push(readSystem(content, inherited));
    requireWithin(envelope, 'systems', systems.length);
  }
  if (content.localName !== 'VirtualSystemCollection') return;
  const properties = [...readProperties(content), ...inherited];
  for (const inner of children(content)) {
    if (IN_COLLECTION.includes(inner.localName ?? '')) readContent(inner, envelope, properties);
    else warnings.push(ignoredSection(inner));
  }
}

const IN_COLLECTION = ['VirtualSystem', 'VirtualSystemCollection', 'Info', 'Name'];

/** Disks that no VM has, in whichever configuration. */
function warnOfUnused({ disks, systems, warnings }: Envelope): void {
  const hosts = new Set(systems.flatMap(({ items }: OvfSystem) => items.map(item => item.hostResource)));
  const used = new Set([...hosts].map(host => host?.replace(/^.*?\/disk\//i, '')));
  for (const diskId of disks.keys()) {
    if (used.has(diskId)) continue;
    const element = `Disk ${quoted(diskId)}`;
    warnings.push({ element, key: 'ignored', text: 'No VM of the descriptor has this disk.' });
  }
}
