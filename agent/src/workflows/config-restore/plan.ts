/**
 * The VM that a file without disks gives (specification 2.3, rule 4): pure. Whatever the file, libvirt gets its definition through the gate
 * of a restore, as one that nobody vouches for; no file, no block device and no device of the node is let through.
 */
import type { BackupDisk, BackupImage, BackupWarning } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { withoutHidden } from '@virtkeep/shared/hidden-characters';
import type { Element } from '@xmldom/xmldom';
import {
  applyMetadata,
  attr,
  child,
  type DomainConfig,
  NO_METADATA,
  parseDomain,
  parseXml,
  remove,
  sanitizeTree,
  serializeXml,
  type XmlGate,
} from '../../domain-xml/index.ts';
import {
  type Appliance,
  applianceOf,
  domainXmlOf,
  type NetworkTarget,
  type Warning,
} from '../../ovf/index.ts';
import type { DefinitionFile } from './definition-file.ts';
import { applyNetworks, networksOf, targetHere } from './networks.ts';
import type { NodeFacts } from './node-facts.ts';

export interface PlanChoice {
  /** Of an OVF; empty: the only one, the default one. */
  system: string;
  configuration: string;
  /** By a name of the file. */
  networks: Readonly<Record<string, NetworkTarget>>;
  virtio: boolean;
}

export interface PlannedVm {
  /** The definition, without an identity of its own. */
  root: Element;
  config: DomainConfig;
  /** Names of what its adapters were connected to, each once: those that can be chosen for. */
  networks: string[];
  /** What does not come along. */
  disks: BackupDisk[];
  images: BackupImage[];
  warnings: BackupWarning[];
}

/** Whatever a definition may not name: everything. */
const NOTHING: XmlGate = { strict: true, fileAt: () => undefined, devices: new Map() };
/** Told of each one by name. */
const TOLD = ['devices/disk', 'devices/disk/source', 'devices/hostdev'];
const MAX_WARNINGS = 500;
/** Characters of one. */
const MAX_TEXT = 1000;
const SUBJECT = 'the file';

/** @throws VirtkeepError xml_invalid, ovf_system_ambiguous, ovf_system_unknown, ovf_configuration_unknown */
export function planVm(file: DefinitionFile, choice: PlanChoice, facts: NodeFacts): PlannedVm {
  const vm =
    file.type === 'xml'
      ? fromXml(file.xml, choice, facts)
      : fromAppliance(chosenAppliance(file, choice), choice, facts);
  const { root } = vm;
  const { template, templateVersion } = vm.config.metadata;
  // what it was cloned from, lent and borrowed belongs to the disks
  applyMetadata(root, { ...NO_METADATA, template, templateVersion });
  const warnings = [...vm.warnings, ...(facts.hasKvm ? [] : emulated(root))];
  const rest = warnings.length - MAX_WARNINGS + 1;
  if (rest > 1) warnings.splice(-rest, rest, warning('ignored', 'File', `There are ${rest} more warnings.`));
  return { ...vm, config: parseDomain(serializeXml(root), SUBJECT), warnings };
}

/** What libvirt gets of a definition, and a warning of each thing that it does not. */
function gated(xml: string): { root: Element; leftOut: BackupWarning[] } {
  const { root, leftOut } = sanitizeTree(parseXml(xml, 'domain', SUBJECT).root, NOTHING);
  return { root, leftOut: leftOut.filter(place => !TOLD.includes(place)).map(leftOutWarning) };
}

function fromXml(xml: string, { networks }: PlanChoice, facts: NodeFacts): PlannedVm {
  const config = parseDomain(xml, SUBJECT);
  const drives = config.disks.filter(({ device, source }) => isDrive(device) && source !== '');
  const disks = config.disks.filter(({ device }) => !isDrive(device));
  const { root, leftOut } = gated(xml);
  const connected = applyNetworks(root, networks, facts);
  const warnings = [
    ...disks.map(({ targetDev, source }) =>
      warning('not_attached', `Disk ${targetDev}`, `${source || 'It'} is not attached.`),
    ),
    ...drives.map(({ targetDev, source }) =>
      warning('not_attached', `Drive ${targetDev}`, `It is empty: ${source} is not put in.`),
    ),
    ...config.hostdevs.map(({ type, address = '' }) =>
      warning('ignored', `Host device ${type} ${address}`.trim(), 'It is not passed through.'),
    ),
    ...leftOut,
    ...connected.warnings.map(({ element, text }) => warning('replaced', element, text)),
  ];
  return {
    root,
    config,
    networks: connected.names,
    disks: disks.map(disk => leftDisk({ ...disk, targetBus: disk.bus, path: disk.source })),
    images: drives.map(({ targetDev, source }) => leftImage(targetDev, source)),
    warnings,
  };
}

/** An archive has one VM, in one configuration. */
function chosenAppliance(
  file: Exclude<DefinitionFile, { type: 'xml' }>,
  { system, configuration }: PlanChoice,
): Appliance {
  if (file.type === 'vma') return file.appliance;
  return applianceOf(file.envelope, {
    ...(system === '' ? {} : { system }),
    ...(configuration === '' ? {} : { configuration }),
  });
}

function fromAppliance(appliance: Appliance, choice: PlanChoice, facts: NodeFacts): PlannedVm {
  const names = networksOf(appliance);
  const here = targetHere(names, facts);
  const { xml, warnings } = domainXmlOf(appliance, {
    ...here,
    networks: { ...here.networks, ...choice.networks },
    virtio: choice.virtio,
    withDisks: false,
    diskPathOf: () => '',
  });
  const { root, leftOut } = gated(xml);
  return {
    root,
    config: parseDomain(xml, SUBJECT),
    networks: names,
    disks: appliance.disks.map(({ diskId, bus, file, capacityBytes }) =>
      leftDisk({ id: diskId, targetBus: bus, path: file?.href ?? '', virtualBytes: capacityBytes ?? 0 }),
    ),
    images: appliance.drives.flatMap(({ device, file }) => (file ? [leftImage(device, file.href)] : [])),
    warnings: [...warnings.map(({ key, element, text }: Warning) => warning(key, element, text)), ...leftOut],
  };
}

const isDrive = (device: string): boolean => device === 'cdrom' || device === 'floppy';

function leftDisk(disk: {
  id?: string;
  targetDev?: string;
  targetBus: string;
  path: string;
  virtualBytes?: number;
}): BackupDisk {
  const { id = '', targetDev = '', targetBus, path, virtualBytes = 0 } = disk;
  const virtualSize = BigInt(virtualBytes);
  return { id, targetDev, targetBus, path, poolId: '', virtualSize, size: 0n, excluded: true };
}

const leftImage = (targetDev: string, path: string): BackupImage => ({
  targetDev,
  path,
  size: 0n,
  included: false,
});

/** Names and paths in it are the file's own words. */
const warning = (key: string, element: string, text: string): BackupWarning => ({
  key,
  text: withoutHidden(`${element}: ${text}`).slice(0, MAX_TEXT).toWellFormed(),
});

const leftOutWarning = (place: string): BackupWarning =>
  warning('ignored', place.slice(0, 100), 'Left out, since a file must not bring it to a node.');

/** Without KVM there is no CPU of the node to be shown to the guest. */
export function emulated(domain: Element): BackupWarning[] {
  if (attr(domain, 'type') !== 'kvm') return [];
  domain.setAttribute('type', 'qemu');
  const cpu = child(domain, 'cpu');
  if (cpu && attr(cpu, 'mode')?.startsWith('host-')) {
    cpu.setAttribute('mode', 'maximum');
    for (const name of ['check', 'migratable']) cpu.removeAttribute(name);
    const model = child(cpu, 'model');
    if (model) remove(model);
  }
  return [warning('replaced', 'domain@type', 'The node has no KVM: the VM is emulated.')];
}
