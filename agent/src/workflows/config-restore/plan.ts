/**
 * The VM that a foreign file gives, without its disks (specification 2.3, rule 4) or with those that whoever restores it has made: pure.
 * Whatever the file, libvirt gets its definition through the gate of a restore, as one that nobody vouches for; no other file, no block device
 * and no device of the node is let through.
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
  type ApplianceDisk,
  applianceOf,
  type DomainDisk,
  domainXmlOf,
  type NetworkTarget,
  type Warning,
} from '../../ovf/index.ts';
import type { DefinitionFile } from './definition-file.ts';
import { applyNetworks, networksOf, targetHere } from './networks.ts';
import type { NodeFacts } from './node-facts.ts';
import { withoutMissing } from './package-files.ts';

export interface PlanChoice {
  /** Of an OVF; empty: the only one, the default one. */
  system: string;
  configuration: string;
  /** By a name of the file. */
  networks: Readonly<Record<string, NetworkTarget>>;
  virtio: boolean;
  /** Its drivers of virtio are put into it. */
  hasDrivers?: boolean;
}

/** Of a VM that was chosen already. */
type VmChoice = Pick<PlanChoice, 'networks' | 'virtio' | 'hasDrivers'>;

/** Where the disks of a VM come to lie; absent: it comes without. */
export interface BroughtDisks {
  /** Of the qcow2 of that disk, the index-th of the appliance. */
  pathOf(index: number, disk: ApplianceDisk): string;
  /** Of the image of `appliance.drives[index]`; undefined: the drive is empty. */
  drivePathOf?(index: number): string | undefined;
}

export interface PlannedVm {
  /** The definition, without an identity of its own. */
  root: Element;
  config: DomainConfig;
  /** Names of what its adapters were connected to, each once: those that can be chosen for. */
  networks: string[];
  /** Those that do not come along are `excluded`, and not `included`. */
  disks: BackupDisk[];
  images: BackupImage[];
  /** Those that were brought, where they hang. */
  brought: DomainDisk[];
  warnings: BackupWarning[];
}

/** What of the node a definition may name: those files alone. */
function gateOf(disks: ReadonlySet<string>, drives: ReadonlySet<string>): XmlGate {
  const fileAt: XmlGate['fileAt'] = (path, use) => {
    if (use === 'disk' && disks.has(path)) return { format: 'qcow2' };
    return use === 'drive' && drives.has(path) ? { format: 'raw' } : undefined;
  };
  return { strict: true, fileAt, devices: new Map() };
}

const NOTHING = gateOf(new Set(), new Set());
/** Told of each one by name. */
const TOLD = ['devices/disk', 'devices/disk/source', 'devices/hostdev'];
const MAX_WARNINGS = 500;
/** Characters of one. */
const MAX_TEXT = 1000;
const SUBJECT = 'the file';

/**
 * @param brought the disks that come along; of a domain XML there are none
 * @throws VirtkeepError xml_invalid, ovf_system_ambiguous, ovf_system_unknown, ovf_configuration_unknown
 */
export function planVm(
  file: DefinitionFile,
  choice: PlanChoice,
  facts: NodeFacts,
  brought?: BroughtDisks,
): PlannedVm {
  if (file.type === 'xml') return finished(fromXml(file.xml, choice, facts), facts);
  const appliance = chosenAppliance(file, choice);
  const files = file.type === 'vma' ? null : (file.beside?.files ?? null);
  if (files === null) return planAppliance(appliance, choice, facts, brought);
  const { appliance: there, warnings } = withoutMissing(appliance, files);
  const told = { ...there, warnings: [...warnings, ...there.warnings] };
  const vm = planAppliance(told, choice, facts, brought);
  const disks = vm.disks.map((disk, index) => {
    const { file: own } = appliance.disks[index]!;
    return { ...disk, path: own?.href ?? '', size: BigInt(files.get(own?.id ?? '') ?? 0) };
  });
  return { ...vm, disks };
}

/** The same of a VM that was chosen already. @throws VirtkeepError xml_invalid */
export const planAppliance = (
  appliance: Appliance,
  choice: VmChoice,
  facts: NodeFacts,
  brought?: BroughtDisks,
): PlannedVm => finished(fromAppliance(appliance, choice, facts, brought), facts);

function finished(vm: PlannedVm, facts: NodeFacts): PlannedVm {
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
function gated(xml: string, gate = NOTHING): { root: Element; leftOut: BackupWarning[] } {
  const { root, leftOut } = sanitizeTree(parseXml(xml, 'domain', SUBJECT).root, gate);
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
    brought: [],
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

function fromAppliance(
  appliance: Appliance,
  choice: VmChoice,
  facts: NodeFacts,
  comes?: BroughtDisks,
): PlannedVm {
  const names = networksOf(appliance);
  const here = targetHere(names, facts);
  const drivePaths = appliance.drives.map((_, index) => comes?.drivePathOf?.(index));
  const { xml, disks, warnings } = domainXmlOf(appliance, {
    ...here,
    networks: { ...here.networks, ...choice.networks },
    virtio: choice.virtio,
    hasDrivers: choice.hasDrivers ?? false,
    withDisks: comes !== undefined,
    diskPathOf: index => comes?.pathOf(index, appliance.disks[index]!) ?? '',
    drivePathOf: index => drivePaths[index],
  });
  const gate = gateOf(
    new Set(disks.map(({ path }) => path)),
    new Set(drivePaths.filter(path => path !== undefined)),
  );
  const { root, leftOut } = gated(xml, gate);
  const placed = new Map(disks.map(disk => [disk.index, disk]));
  return {
    root,
    config: parseDomain(xml, SUBJECT),
    networks: names,
    disks: appliance.disks.map(({ diskId, bus, file, capacityBytes }, index) => {
      const { bus: targetBus = bus, targetDev = '' } = placed.get(index) ?? {};
      const virtualBytes = capacityBytes ?? 0;
      const disk = leftDisk({ id: diskId, targetBus, targetDev, path: file?.href ?? '', virtualBytes });
      return { ...disk, excluded: !placed.has(index) };
    }),
    images: appliance.drives.flatMap(({ device, file }, index) =>
      file ? [{ ...leftImage(device, file.href), included: drivePaths[index] !== undefined }] : [],
    ),
    brought: disks,
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
