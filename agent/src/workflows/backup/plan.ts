/**
 * What of a VM goes into a backup, decided from its definition alone; pure. The rules per kind of disk:
 *
 * | disk                                   | rule                                                             |
 * |----------------------------------------|------------------------------------------------------------------|
 * | file or block device, qcow2 or raw     | copied; frozen first when the VM runs                            |
 * | the same, read-only                    | copied as it is: the VM cannot change it                         |
 * | excluded by the request                | recorded                                                         |
 * | LUN (`device='lun'`)                   | recorded (spec 2.1): attached again at restore when it is there  |
 * | CD-ROM or floppy with an image file    | copied unless ISO images are excluded (spec 2.2)                 |
 * | the same, which needs other files      | recorded with a warning: a drive would show the bytes of its own |
 * | CD-ROM or floppy with a device         | recorded                                                         |
 * | shareable, network, other sources      | recorded with a warning: they are not this VM's alone            |
 * | attached from another VM               | recorded: it is not this VM's disk                               |
 * | transient                              | recorded with a warning: its changes are meant to be lost        |
 * | other formats, slices of a file        | refused: they could not be restored                              |
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { uuidV5 } from '@virtkeep/shared/ids';
import { ON_REQUEST } from '../../archive/index.ts';
import { type DiskConfig, type DomainConfig, isLent } from '../../domain-xml/index.ts';
import type { PoolRecord } from '../../pools/index.ts';

export interface DiskPlan {
  config: DiskConfig;
  id: string;
  path: string;
  format: 'qcow2' | 'raw';
  block: boolean;
  pool: PoolRecord | null;
  /** The guest can write to it: it must be frozen when the VM runs. */
  writable: boolean;
}

export interface ImagePlan {
  targetDev: string;
  path: string;
  pool: PoolRecord | null;
  included: boolean;
}

export interface RecordedDisk {
  targetDev: string;
  id: string | null;
  /** Path, or the source for people. */
  source: string;
  reason: string;
}

export interface ContentPlan {
  disks: DiskPlan[];
  images: ImagePlan[];
  luns: { targetDev: string; source: string }[];
  recorded: RecordedDisk[];
  warnings: string[];
}

export interface ContentOptions {
  excludeIso: boolean;
  excludeVdisks: string[];
}

export interface ContentRules {
  poolOf(path: string): PoolRecord | null;
  /** Id of the disk whose first layer lies at that path. */
  diskIdOf(path: string, pool: PoolRecord | null): string;
  /** The first (lowest own) layer of the disk with that active file. */
  firstLayerOf(targetDev: string, path: string): string;
  /** By target why a drive's qcow2 image is not whole. */
  imageFaults: ReadonlyMap<string, string>;
}

/**
 * @throws VirtkeepError vdisk_not_found for an unknown excluded id, snapshot_chain_unsupported for a disk that could
 *   not be restored
 */
export function planContent(domain: DomainConfig, options: ContentOptions, rules: ContentRules): ContentPlan {
  const plan: ContentPlan = { disks: [], images: [], luns: [], recorded: [], warnings: [] };
  const unknown = new Set(options.excludeVdisks);
  const taken = new Set<string>();
  for (const disk of domain.disks) {
    if (disk.device === 'lun') plan.luns.push({ targetDev: disk.targetDev, source: disk.source });
    else if (disk.device !== 'disk') planImage(plan, disk, options, rules);
    else planDisk(plan, domain, disk, { rules, unknown, taken, excluded: options.excludeVdisks });
  }
  const [missing] = unknown;
  if (missing !== undefined)
    throw new VirtkeepError('vdisk_not_found', { id: missing, field: 'exclude_vdisks' });
  return plan;
}

function planImage(plan: ContentPlan, disk: DiskConfig, options: ContentOptions, rules: ContentRules): void {
  if (disk.source === '') return;
  const { targetDev, path } = disk;
  const fault = imageFault(disk, rules);
  if (fault === undefined)
    plan.images.push({ targetDev, path: path!, pool: rules.poolOf(path!), included: !options.excludeIso });
  else record(plan, disk, null, `the drive shows ${disk.source}, which ${fault}`);
}

/** Why an image of a drive cannot be restored as what the guest sees of it. */
function imageFault(disk: DiskConfig, rules: ContentRules): string | undefined {
  const { type, path, targetDev, format = 'raw', sliced } = disk;
  if (type !== 'file' || path === undefined) return 'is not an image file';
  if (sliced) return 'is a part of a file';
  if (format !== 'raw' && format !== 'qcow2') return `is a ${format} image`;
  return rules.imageFaults.get(targetDev);
}

interface DiskScope {
  rules: ContentRules;
  /** Excluded ids not met yet. */
  unknown: Set<string>;
  taken: Set<string>;
  excluded: string[];
}

function planDisk(plan: ContentPlan, domain: DomainConfig, disk: DiskConfig, scope: DiskScope): void {
  const { path } = disk;
  if (isLent(disk, domain.metadata)) {
    record(plan, disk, null, 'a disk attached from another VM is not copied');
    return;
  }
  if ((disk.type !== 'file' && disk.type !== 'block') || path === undefined) {
    record(plan, disk, null, `a disk of type ${disk.type} is not copied`);
    return;
  }
  const pool = scope.rules.poolOf(path);
  const first = scope.rules.firstLayerOf(disk.targetDev, path);
  const id = uniqueId(scope.taken, domain.uuid, disk, scope.rules.diskIdOf(first, pool));
  if (scope.excluded.includes(id)) {
    scope.unknown.delete(id);
    plan.recorded.push({ targetDev: disk.targetDev, id, source: path, reason: ON_REQUEST });
    return;
  }
  const uncopied = whyNotCopied(disk);
  if (uncopied !== null) {
    record(plan, disk, id, uncopied);
    return;
  }
  const format = disk.format ?? 'raw';
  const refuse = (reason: string) =>
    new VirtkeepError('snapshot_chain_unsupported', { domain: domain.name, reason });
  if (format !== 'qcow2' && format !== 'raw')
    throw refuse(`the disk ${disk.targetDev} has the format ${format}`);
  if (disk.sliced) throw refuse(`the disk ${disk.targetDev} is a part of a file`);
  if (disk.encrypted)
    plan.warnings.push(`The disk ${disk.targetDev} is encrypted; its secret is not in the backup.`);
  plan.disks.push({
    config: disk,
    id,
    path,
    format,
    block: disk.type === 'block',
    pool,
    writable: !disk.readonly,
  });
}

function whyNotCopied(disk: DiskConfig): string | null {
  if (disk.shareable) return 'a shareable disk is not copied: other VMs may write to it';
  if (disk.transient) return 'a transient disk is not copied: its changes are not kept';
  return null;
}

/**
 * Disks that an archive has keep their ids of there. Another one for which the same id was found, standing before it in the definition, gets
 * one of its own.
 * @param known ids in the archive, by target
 */
export function keepIds({ disks }: ContentPlan, domainId: string, known: ReadonlyMap<string, string>): void {
  const taken = new Set(known.values());
  for (const disk of disks) {
    const { config, id } = disk;
    disk.id = known.get(config.targetDev) ?? uniqueId(taken, domainId, config, id);
  }
}

/** Two disks whose file names hold the same uuid must not share an id. */
function uniqueId(taken: Set<string>, domainId: string, disk: DiskConfig, id: string): string {
  let unique = id;
  for (let namespace = domainId; taken.has(unique); namespace = unique)
    unique = uuidV5(namespace, `${disk.targetDev}:${disk.source}`);
  taken.add(unique);
  return unique;
}

function record(plan: ContentPlan, disk: DiskConfig, id: string | null, reason: string): void {
  plan.recorded.push({ targetDev: disk.targetDev, id, source: disk.source, reason });
  plan.warnings.push(`${disk.targetDev}: ${reason}.`);
}
