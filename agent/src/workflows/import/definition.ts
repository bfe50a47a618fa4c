/**
 * The domain of a foreign VM that is described by a domain XML of libvirt's: it stays as it is but for what belongs to the other node. What
 * libvirt gets of it passes the gate, as of a file that nobody vouches for. Pure.
 */
import type { Element } from '@xmldom/xmldom';
import {
  applyIdentity,
  applyImage,
  applyMetadata,
  applyNvram,
  applySource,
  attr,
  child,
  childrenAt,
  dropChains,
  ensureChild,
  NO_METADATA,
  parseDomain,
  parseXml,
  remove,
  sanitizeTree,
  serializeXml,
  type XmlGate,
} from '../../domain-xml/index.ts';
import type { NetworkTarget } from '../../ovf/index.ts';
import { applyNetworks } from '../config-restore/networks.ts';
import type { NodeFacts } from '../config-restore/node-facts.ts';
import { emulated } from '../config-restore/plan.ts';
import type { ForeignDefinition } from './foreign.ts';

export interface DefinitionTarget {
  uuid: string;
  virtio: boolean;
  /** Chosen ones, by the names of the file. */
  networks: Readonly<Record<string, NetworkTarget>>;
  /** Where the qcow2 of a disk lies, by its index among those that the backup has. */
  pathOf(index: number): string;
}

/** As `domainXmlOf` of an appliance gives it. */
export interface DefinedDomain {
  xml: string;
  disks: { index: number; path: string; targetDev: string }[];
  warnings: { element: string; text: string }[];
}

const SUBJECT = 'the definition';

/** @throws VirtkeepError xml_invalid */
export function definedDomain(
  { xml, targets }: ForeignDefinition,
  target: DefinitionTarget,
  facts: NodeFacts,
): DefinedDomain {
  const { root } = parseXml(xml, 'domain', SUBJECT);
  const { name } = parseDomain(xml, SUBJECT);
  const warnings: DefinedDomain['warnings'] = [];
  dropChains(root);
  const disks: DefinedDomain['disks'] = [];
  for (const disk of childrenAt(root, 'devices/disk')) {
    const left = placeDisk(disk, { targets, target, disks });
    if (left) warnings.push(left);
  }
  for (const device of childrenAt(root, 'devices/hostdev')) {
    const type = attr(device, 'type') ?? '';
    warnings.push({ element: `Host device ${type}`, text: 'It is not passed through.' });
    remove(device);
  }
  applyNvram(root, null);
  const paths = new Set(disks.map(({ path }) => path));
  const gate: XmlGate = {
    strict: true,
    fileAt: (path, use) => (use === 'disk' && paths.has(path) ? { format: 'qcow2' } : undefined),
    devices: new Map(),
  };
  const { root: gated, leftOut } = sanitizeTree(root, gate);
  for (const place of leftOut)
    warnings.push({ element: place.slice(0, 100), text: 'Left out: a file must not bring it to a node.' });
  applyMetadata(gated, NO_METADATA);
  applyIdentity(gated, { name, uuid: target.uuid });
  warnings.push(...applyNetworks(gated, target.networks, facts).warnings);
  if (target.virtio) adaptersOfVirtio(gated);
  if (!facts.hasKvm) warnings.push(...emulated(gated).map(({ text }) => ({ element: 'domain@type', text })));
  return { xml: serializeXml(gated), disks, warnings };
}

/** @returns a warning when it stays behind */
function placeDisk(
  disk: Element,
  {
    targets,
    target,
    disks,
  }: { targets: readonly string[]; target: DefinitionTarget; disks: DefinedDomain['disks'] },
): DefinedDomain['warnings'][number] | undefined {
  const dev = attr(child(disk, 'target'), 'dev') ?? '';
  const device = attr(disk, 'device') ?? 'disk';
  if (device === 'cdrom' || device === 'floppy') {
    const isEmpty = child(disk, 'source') === undefined;
    applyImage(disk, null);
    return isEmpty ? undefined : { element: `Drive ${dev}`, text: 'It is empty: its image is not put in.' };
  }
  const index = targets.indexOf(dev);
  if (device !== 'disk' || index === -1 || disks.some(placed => placed.index === index)) {
    remove(disk);
    return { element: `Disk ${dev}`, text: 'It is left out: the backup has no data of it.' };
  }
  const path = target.pathOf(index);
  // an encrypted one was saved as the guest sees it
  for (const name of ['encryption', 'transient']) {
    const part = child(disk, name);
    if (part) remove(part);
  }
  const source = child(disk, 'source');
  if (source) remove(source);
  applySource(disk, { path, format: 'qcow2' });
  const targetDev = target.virtio ? diskOfVirtio(disk, disks.length) : dev;
  disks.push({ index, path, targetDev });
  return undefined;
}

/** @returns its new target. @param number of those before it */
function diskOfVirtio(disk: Element, number: number): string {
  const letters = 'abcdefghijklmnopqrstuvwxyz';
  const first = Math.floor(number / letters.length);
  const dev = `vd${first > 0 ? letters[first - 1] : ''}${letters[number % letters.length]}`;
  const address = child(disk, 'address');
  if (address) remove(address);
  const target = child(disk, 'target')!;
  target.setAttribute('dev', dev);
  target.setAttribute('bus', 'virtio');
  return dev;
}

function adaptersOfVirtio(domain: Element): void {
  for (const net of childrenAt(domain, 'devices/interface'))
    ensureChild(net, 'model').setAttribute('type', 'virtio');
}
