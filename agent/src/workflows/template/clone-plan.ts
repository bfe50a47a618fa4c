/**
 * What of a domain a clone gets, decided from its definition and the headers of its images; pure. The rules per kind of
 * disk:
 *
 * | disk                                   | full clone                        | thin clone                            |
 * |----------------------------------------|-----------------------------------|---------------------------------------|
 * | file or block device, qcow2 or raw     | one image with the content        | an overlay on the template's          |
 * | CD-ROM, floppy                         | the same image stays in the drive | the same                              |
 * | attached from another VM, LUN, network | left out, with a warning          | the same                              |
 * | shareable, transient                   | left out, with a warning          | the same                              |
 * | other formats, encrypted, sliced       | refused                           | refused                               |
 */
import { dirname, join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Layer } from '../../disks/index.ts';
import { type DiskConfig, type DomainConfig, isLent } from '../../domain-xml/index.ts';
import { backupTargetRefusal, type PoolRecord, poolOfPath } from '../../pools/index.ts';

export interface ClonedDisk {
  targetDev: string;
  /** The original's active file, and its layers, top to bottom. */
  source: { path: string; format: string };
  layers: readonly Layer[];
  /** Of the new file. */
  id: string;
  path: string;
  format: 'qcow2' | 'raw';
  pool: PoolRecord;
  /** Bytes that the guest sees. */
  virtualSize: number;
}

export interface ClonePlan {
  disks: ClonedDisk[];
  /** Targets of disks that the clone does not get. */
  left: string[];
  warnings: string[];
}

export interface CloneRules {
  thin: boolean;
  pools: readonly PoolRecord[];
  /** The pool asked for; null: beside the original's files. */
  chosen: PoolRecord | null;
  /** Layers of each disk that has an image, by target, top to bottom. */
  layers: ReadonlyMap<string, readonly Layer[]>;
  newId(): string;
}

/** @throws VirtkeepError clone_refused; the refusals of a pool that may not be written to */
export function planClone(config: DomainConfig, rules: CloneRules): ClonePlan {
  const plan: ClonePlan = { disks: [], left: [], warnings: [] };
  for (const disk of config.disks) {
    if (disk.device === 'cdrom' || disk.device === 'floppy') continue;
    const lent = isLent(disk, config.metadata);
    const reason = lent ? 'it is attached from another VM' : whyNotCloned(disk);
    if (reason === null) plan.disks.push(planDisk(config, disk, rules));
    else {
      plan.left.push(disk.targetDev);
      plan.warnings.push(`${disk.targetDev} (${disk.source}) is not cloned: ${reason}.`);
    }
  }
  for (const { type, address } of config.hostdevs)
    if (type === 'mdev') plan.warnings.push(`The mediated device ${address ?? ''} is not cloned.`);
  return plan;
}

function whyNotCloned(disk: DiskConfig): string | null {
  if (disk.device === 'lun') return 'it is a LUN';
  if (disk.type !== 'file' && disk.type !== 'block') return `it is a disk of type ${disk.type}`;
  if (disk.shareable) return 'it is shared with other VMs';
  if (disk.transient) return 'it is transient, its changes are not kept';
  return null;
}

function planDisk(config: DomainConfig, disk: DiskConfig, rules: CloneRules): ClonedDisk {
  const refuse = (reason: string) =>
    new VirtkeepError('clone_refused', {
      domain: config.name,
      reason: `its disk ${disk.targetDev} (${disk.source}) ${reason}`,
    });
  const format = disk.format ?? 'raw';
  const layers = rules.layers.get(disk.targetDev);
  if (format !== 'qcow2' && format !== 'raw') throw refuse(`has the format ${format}`);
  if (disk.sliced) throw refuse('is a part of a file');
  if (disk.path === undefined || !layers?.length) throw refuse('is not there');
  if (disk.encrypted || layers.some(layer => layer.encrypted)) throw refuse('is encrypted');
  const foreign = layers.find(layer => layer.dataFile || layer.unknownFeatures);
  if (foreign) throw refuse('keeps data in another file, or uses features that are not known');
  if (rules.thin && (layers.length > 1 || layers[0]!.backingFile !== undefined))
    throw refuse('stands on other files; make a full clone of it, and a template of that');
  const { pool, directory } = placeOf(disk.path, disk.type === 'block', rules);
  const id = rules.newId();
  const target = !rules.thin && format === 'raw' && disk.type === 'file' ? 'raw' : 'qcow2';
  return {
    targetDev: disk.targetDev,
    source: { path: disk.path, format },
    layers,
    id,
    path: join(directory, `${id}.${target}`),
    format: target,
    pool,
    virtualSize: layers[0]!.virtualSize,
  };
}

/** The directory of the new file. A device has none beside it: then the base pool. */
function placeOf(
  path: string,
  block: boolean,
  { chosen, pools }: CloneRules,
): { pool: PoolRecord; directory: string } {
  const pool = chosen ?? (block ? pools.find(({ isBase }) => isBase) : poolOfPath(path, pools));
  if (!pool) throw new VirtkeepError('pool_not_found', { id: `of ${path}` });
  const refusal = backupTargetRefusal(pool);
  if (refusal) throw refusal;
  return { pool, directory: chosen || block ? pool.path! : dirname(path) };
}
