/**
 * A backup of this product out of a foreign file that holds a VM with its disks: an archive of Proxmox VE (specification 2.3).
 *
 * check → read → copy → publish. The foreign file is read once, into raw images with holes that lie beside the new archive and go at the
 * end; from there they become its disks. The file stays as it is. Nobody vouches for the new archive: what is in it came from elsewhere.
 * Whatever stops it leaves nothing.
 */
import { join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { open } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { writeAt } from '@virtkeep/shared/file-bytes';
import type { ConvertBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import { openVma, type Vma } from '../../appliance/index.ts';
import { ArchiveWriter, DEFAULT_LEVEL, type FinishedArchive } from '../../archive/index.ts';
import { changedSource, markSources } from '../../disks/index.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import {
  BACKUPS_DIR,
  backupTargetRefusal,
  backupTypeOf,
  type PoolRecord,
  requireSpace,
} from '../../pools/index.ts';
import { proxmoxVmOf } from '../../proxmox/index.ts';
import { finishedFileOf } from '../archives/backup-file.ts';
import { COMPRESSED_SHARE } from '../archives/conversion.ts';
import { archiveStem } from '../archives/file-name.ts';
import type { FoundFile } from '../archives/find-file.ts';
import {
  declareArchive,
  endingOf,
  type ReservedName,
  reserveArchiveName,
} from '../archives/reserved-name.ts';
import { manifestOf } from '../backup/members.ts';
import { readFacts } from '../config-restore/node-facts.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { makeNewFile } from '../new-file.ts';
import { type PlannedImport, planImport } from './plan.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const CONVERT_STEPS = ['check', 'read', 'copy', 'publish'] as const;

export interface ConvertPlan {
  source: FoundFile;
  target: PoolRecord;
}

/**
 * What is to be converted, and where to; looks at nothing but the pools and the name.
 * @throws VirtkeepError file_not_convertible, pool_not_found, and the refusals of pools
 */
export function planConvert(
  request: ConvertBackupRequest,
  source: FoundFile,
  pools: PoolRecord[],
  nodeName: string,
): ConvertPlan {
  const type = backupTypeOf(source.filename) ?? 'unknown';
  if (type !== 'vma') throw new VirtkeepError('file_not_convertible', { file: source.filename, type });
  const target = request.poolId === '' ? source.pool : pools.find(({ id }) => id === request.poolId);
  if (!target) throw new VirtkeepError('pool_not_found', { id: request.poolId });
  const refusal = backupTargetRefusal(target, nodeName);
  if (refusal) throw refusal;
  return { source, target };
}

/** The workflow: a new archive; a failure or a cancel leaves nothing of it. */
export function convertBackupWorkflow(
  dependencies: WorkflowDependencies,
  request: ConvertBackupRequest,
  plan: ConvertPlan,
): Workflow {
  return async context => {
    const held: Held = {};
    try {
      await convert(dependencies, request, { ...plan, held }, context);
    } finally {
      await held.archive?.abort();
      await held.name?.close();
      await held.vma?.close();
    }
    await held.name!.free();
    dependencies.filesChanged(plan.target.id);
  };
}

/** What is to be closed whatever happens. */
interface Held {
  vma?: Vma;
  name?: ReservedName;
  archive?: ArchiveWriter;
}

async function convert(
  dependencies: WorkflowDependencies,
  request: ConvertBackupRequest,
  { source, target, held }: ConvertPlan & { held: Held },
  context: OperationContext,
): Promise<void> {
  const marks = await markSources([source.path]);
  const planned = await context.step('check', () =>
    check(dependencies, request, { source, target, held }, context),
  );
  for (const text of planned.warnings) context.warn(text);
  const spares = await context.step('read', () => readDisks(context, held.vma!, planned));
  if ((await changedSource(marks)) !== undefined) {
    const reason = 'somebody else wrote to it while it was converted';
    throw new VirtkeepError('appliance_invalid', { path: source.path, reason });
  }
  const created = held.vma!.header.created.toISOString();
  const backupId = newId();
  const archive = await context.step('copy', async () => {
    declareArchive(context, held.name!.path, { backupId, states: 1 });
    held.archive = await ArchiveWriter.create({
      path: held.name!.path,
      backupId,
      compression: request.compress ? { level: request.compressionLevel || DEFAULT_LEVEL } : null,
      hash: request.hashSum,
      signal: context.signal,
      onProgress: bytes => context.progress.done(bytes),
      ...(dependencies.compressionWorkers && { workers: dependencies.compressionWorkers }),
    });
    await writeMembers(context, held.archive, planned, spares);
    return held.archive;
  });
  const record = {
    backupId,
    toolVersion: dependencies.version,
    created,
    options: { compress: request.compress, hash_sum: request.hashSum, can_be_incremental: false },
    warnings: planned.warnings,
    incremental: false,
    fallbackReason: null,
  };
  const finished: FinishedArchive = await context.step('publish', () =>
    archive.finish({
      stateNumber: 1,
      manifest: members => manifestOf(planned.archive.manifest, members, record, null),
    }),
  );
  context.commit({ $case: 'convertBackup', value: { file: finishedFileOf(finished, target) } });
}

async function check(
  dependencies: WorkflowDependencies,
  request: ConvertBackupRequest,
  { source, target, held }: ConvertPlan & { held: Held },
  context: OperationContext,
): Promise<PlannedImport> {
  const onRead = (bytes: number) => context.progress.done(bytes);
  const vma = await openVma(source.path, context.signal, onRead);
  held.vma = vma;
  const { appliance, devices } = proxmoxVmOf(vma.header, source.filename);
  const facts = await readFacts(dependencies.libvirt()).catch((error: unknown) => {
    throwIfAborted(context.signal);
    throw fromLibvirt(error, 'convert_backup');
  });
  const planned = planImport({ appliance, devices, pool: target, virtio: request.virtio }, facts);
  // of a packed one no more is known before it is unpacked
  const dataBytes = Math.min(vma.sizeBytes, planned.totalBytes);
  await requireSpace(target, dataBytes * (1 + (request.compress ? COMPRESSED_SHARE : 1)));
  const stem = archiveStem(appliance.name, vma.header.created);
  const directory = join(target.path!, BACKUPS_DIR);
  held.name = await reserveArchiveName(context, directory, stem, endingOf(request.compress));
  return planned;
}

/** Writes the data of each disk to a raw image of its own. @returns their paths, by the names of the devices */
async function readDisks(
  context: OperationContext,
  vma: Vma,
  { disks, pool }: PlannedImport,
): Promise<Map<string, string>> {
  context.progress.total(vma.sizeBytes);
  const spares = new Map<string, string>();
  const files = new Map<string, Awaited<ReturnType<typeof open>>>();
  try {
    for (const [index, { device, sizeBytes }] of disks.entries()) {
      const path = join(pool.path!, BACKUPS_DIR, `.virtkeep-${context.id}.${index}.raw`);
      await makeNewFile(context, path, false);
      const file = await open(path, 'r+');
      files.set(device, file);
      spares.set(device, path);
      await file.truncate(sizeBytes).catch(error => {
        throw fromIoError(error, 'writing', path);
      });
    }
    for await (const { device, offset, bytes } of vma.data()) {
      const file = files.get(device.name);
      if (file)
        await writeAt(file, bytes, offset).catch(error => {
          throw fromIoError(error, 'writing', spares.get(device.name)!);
        });
    }
  } finally {
    for (const file of files.values()) await file.close();
  }
  return spares;
}

async function writeMembers(
  context: OperationContext,
  writer: ArchiveWriter,
  { archive, disks }: PlannedImport,
  spares: ReadonlyMap<string, string>,
): Promise<void> {
  context.progress.total(archive.totalBytes);
  for (const member of archive.members) {
    const { name, kind } = member;
    if (member.from === 'bytes') await writer.addBytes(name, kind, member.bytes);
    else if (member.from === 'raw') {
      const { device } = disks.find(({ path }) => path === member.path)!;
      await writer.addRaw(name, spares.get(device)!, member.virtualSize, { formerPath: member.path });
    }
  }
}
