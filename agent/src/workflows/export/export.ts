/**
 * A restore point of a backup for other hypervisors: an OVA, an OVF descriptor with its disks beside it, or flattened qcow2 images with the
 * domain XML.
 *
 * check → read → copy → publish. The lowest layers of a plain archive are read where they stand, all others are unpacked into spare files
 * first. Everything is written under hidden names, or in a directory of its own, and the file that makes a package of it is published
 * last, under a name that was reserved and is never another's. Whatever stops it leaves nothing. The backup stays as it is.
 *
 * Who may restore a backup may export it: one that nobody vouches for only with `allow_foreign`, and a thin clone only with its template.
 */
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import type { ExportBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { type Archive, publishNew } from '../../archive/index.ts';
import { markSources, refuseChangedSources, type SourceMark } from '../../disks/index.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import {
  BACKUPS_DIR,
  backupTargetRefusal,
  backupTypeOf,
  type PoolRecord,
  plainFile,
  requireSpace,
} from '../../pools/index.ts';
import { COMPRESSED_SHARE } from '../archives/conversion.ts';
import { archiveStem, namesOf, safeFileStem } from '../archives/file-name.ts';
import type { FoundFile } from '../archives/find-file.ts';
import { type ReservedName, reserveFirst } from '../archives/reserved-name.ts';
import { type OpenedBackup, openBackup } from '../archives/source.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { matchTemplate, provenOnly, requireMatch } from '../family/match.ts';
import { requireVouched } from '../restore/vouch.ts';
import { requireStillTarget } from '../target-pool.ts';
import { writeDirectory } from './directory.ts';
import { type DiskSource, openDisk, type TemplateFile, unpackedLayers } from './disk-source.ts';
import { type PackageWork, type Unpublished, writeOva } from './ova.ts';
import { EXPORT_FORMATS, type ExportFormat, type ExportPlan, planExport } from './plan.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const EXPORT_STEPS = ['check', 'read', 'copy', 'publish'] as const;

export interface ExportTarget {
  source: FoundFile;
  pool: PoolRecord;
  format: ExportFormat;
}

/**
 * What is to be exported, and where to; looks at nothing but the pools and the names.
 * @throws VirtkeepError file_not_backup, invalid_field, invalid_name, pool_not_found, and the refusals of pools
 */
export function exportTarget(
  { format, poolId, name }: ExportBackupRequest,
  source: FoundFile,
  pools: PoolRecord[],
  nodeName: string,
): ExportTarget {
  const type = backupTypeOf(source.filename) ?? 'unknown';
  if (type !== 'tar')
    throw new VirtkeepError('file_not_backup', { file: source.filename, type, action: 'export' });
  const known = EXPORT_FORMATS.find(one => one === format);
  if (known === undefined)
    throw new VirtkeepError('invalid_field', {
      field: 'format',
      reason: `must be ${EXPORT_FORMATS.join(', ')}`,
    });
  if (name !== '' && safeFileStem(name) !== name) {
    const reason =
      'it may have letters, digits, dots, dashes and underscores, begins with no dot or dash, and has 120 bytes at most';
    throw new VirtkeepError('invalid_name', { value: name, reason });
  }
  const pool = poolId === '' ? source.pool : pools.find(({ id }) => id === poolId);
  if (!pool) throw new VirtkeepError('pool_not_found', { id: poolId });
  const refusal = backupTargetRefusal(pool, nodeName);
  if (refusal) throw refusal;
  return { source, pool, format: known };
}

/** The workflow: a new file, or a directory of files; a failure or a cancel leaves nothing of it. */
export function exportBackupWorkflow(
  dependencies: WorkflowDependencies,
  request: ExportBackupRequest,
  target: ExportTarget,
): Workflow {
  return async context => {
    const held: { name?: ReservedName } = {};
    const backup = await openBackup(target.source.path, request.state, context.signal);
    try {
      await run(dependencies, request, context, { ...target, backup, held });
    } catch (error) {
      throwIfAborted(context.signal);
      throw fromLibvirt(error, 'export_backup');
    } finally {
      await backup.archive.close().finally(() => held.name?.close());
    }
    await held.name!.free();
    dependencies.filesChanged(target.pool.id);
  };
}

interface Running extends ExportTarget {
  backup: OpenedBackup;
  held: { name?: ReservedName };
}

interface Checked {
  plan: ExportPlan;
  /** By target. */
  bases: ReadonlyMap<string, TemplateFile>;
  baseMarks: SourceMark[];
}

async function run(
  dependencies: WorkflowDependencies,
  request: ExportBackupRequest,
  context: OperationContext,
  running: Running,
): Promise<void> {
  const { backup, format, pool } = running;
  const { plan, bases, baseMarks } = await context.step('check', () =>
    check(dependencies, request, context, running),
  );
  for (const text of plan.warnings) context.warn(text);
  const { path } = running.held.name!;
  const backups = join(pool.path!, BACKUPS_DIR);
  const directory = format === 'ova' ? backups : path;
  const sources = await context.step('read', () => readDisks(context, running, { plan, bases }));
  const created = new Date(backup.state.created);
  const work: PackageWork = { plan, archive: backup.archive, sources, directory, created };
  const stem = path.slice(backups.length + 1);
  const unpublished = await context.step('copy', async () => {
    context.progress.total(plan.disks.reduce((sum, { capacityBytes }) => sum + capacityBytes, 0));
    if (format === 'ova') return writeOva(context, work);
    return writeDirectory(context, { ...work, stem, compress: request.compress }, backup.xml);
  });
  await refuseChangedSources(
    backup.manifest.template?.name ?? backup.manifest.vm.name,
    baseMarks,
    'exported while its disks change; start the export again',
  );
  const published = format === 'ova' ? path : join(path, `${stem}.${format === 'ovf' ? 'ovf' : 'xml'}`);
  const file = await context.step('publish', () => publish(context, unpublished, published, pool));
  const names = [...plan.disks, ...plan.images].map(({ href }) => href);
  const files = format === 'ova' ? [path] : [published, ...names.map(name => join(path, name))];
  if (format === 'ovf') files.splice(1, 0, join(path, `${stem}.mf`));
  context.commit({ $case: 'exportBackup', value: { file, path, files } });
}

async function check(
  dependencies: WorkflowDependencies,
  { allowForeign, name, compress }: ExportBackupRequest,
  context: OperationContext,
  { backup, source, pool, format, held }: Running,
): Promise<Checked> {
  const { signal } = context;
  await requireStillTarget(dependencies, pool, signal);
  const { archive, manifest, state, xml, unknown } = backup;
  const judgement = dependencies.judge(archive);
  const { filename } = source;
  if (requireVouched(judgement, { filename, allowForeign }) !== null)
    context.warn(`Nobody vouches for the archive ${filename}: ${judgement.reason}.`);
  for (const text of unknown) context.warn(text);
  const plan = planExport({ archive, manifest, xml, filename }, format);
  const template = await matchTemplate(dependencies, manifest, signal);
  requireMatch(manifest, judgement.trust === 'own' ? template : provenOnly(manifest, template), filename);
  const bases = [...template.bases.values()].map(({ path }) => path);
  const baseMarks = await markSources(bases);
  await requireSpace(pool, await neededBytes(archive, plan, { bases, compress }));
  const ending = format === 'ova' ? '.ova' : '';
  const stem = archiveStem(manifest.vm.name, new Date(state.created));
  const names = name === '' ? namesOf(stem, ending) : [`${name.replace(/\.ova$/i, '')}${ending}`];
  const directory = join(pool.path!, BACKUPS_DIR);
  const reserved = await reserveFirst(context, directory, names);
  if (reserved === null) throw new VirtkeepError('file_exists', { path: join(directory, names[0]!) });
  held.name = reserved;
  return { plan, bases: template.bases, baseMarks };
}

/** What is written, as far as it can be told before; a package of qcow2 images that are not compressed takes all of the data. */
async function neededBytes(
  archive: Archive,
  { format, disks, images }: ExportPlan,
  { bases, compress }: { bases: readonly string[]; compress: boolean },
): Promise<number> {
  const share = format === 'qcow2' && !compress ? 1 : COMPRESSED_SHARE;
  let bytes = images.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  for (const disk of disks) {
    const unpacked = unpackedLayers(archive, disk);
    let mostBytes = 0;
    for (const layer of disk.record.layers) {
      const layerBytes = await archive.mostBytes(layer.member);
      mostBytes += layerBytes;
      if (unpacked.includes(layer)) bytes += layerBytes;
    }
    bytes += Math.min(mostBytes, disk.capacityBytes) * share;
  }
  for (const path of bases) {
    const { blocks } = await lstat(path).catch((error: unknown) => {
      throw fromIoError(error, 'looking at', path);
    });
    bytes += blocks * 512 * share;
  }
  return bytes;
}

async function readDisks(
  context: OperationContext,
  { backup, pool }: Running,
  { plan, bases }: Pick<Checked, 'plan' | 'bases'>,
): Promise<DiskSource[]> {
  const { archive } = backup;
  const names = new Set(
    plan.disks.flatMap(disk => unpackedLayers(archive, disk).map(({ member }) => member)),
  );
  const packed = archive.members.filter(({ name }) => names.has(name));
  context.progress.total(packed.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
  const reading = { archive, directory: join(pool.path!, BACKUPS_DIR), unpacked: { bytes: 0 } };
  const sources: DiskSource[] = [];
  for (const disk of plan.disks)
    sources.push(await openDisk(context, reading, disk, bases.get(disk.target) ?? null));
  return sources;
}

async function publish(
  context: OperationContext,
  { path: partial, mark }: Unpublished,
  path: string,
  pool: PoolRecord,
): Promise<BackupFile> {
  context.effects.begin({ type: 'file', path, made: mark }, 'failure');
  await publishNew(partial, path);
  const { size, mtime } = await lstat(path).catch((error: unknown) => {
    throw fromIoError(error, 'looking at', path);
  });
  const filename = path.slice(join(pool.path!, BACKUPS_DIR).length + 1);
  return plainFile({ poolId: pool.id, filename, path }, { size: BigInt(size), created: mtime });
}
