/**
 * A backup of this product out of a foreign file that holds a VM with its disks: an OVA, an OVF descriptor with its disks beside it, an
 * archive of Proxmox VE, a directory of virtnbdbackup's (specification 2.3).
 *
 * check → read → (drivers →) copy → publish. What QEMU cannot read where it stands is unpacked once, into spare files that lie beside the new archive and
 * go at the end; from there the disks become those of the archive. The file stays as it is. Nobody vouches for the new archive: what is in it came from elsewhere.
 * Whatever stops it leaves nothing.
 */
import { join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ConvertBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { ConvertResult } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation_result';
import { newId } from '@virtkeep/shared/ids';
import { ArchiveWriter, DEFAULT_LEVEL, type FinishedArchive } from '../../archive/index.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import type { NetworkTarget } from '../../ovf/index.ts';
import {
  BACKUPS_DIR,
  backupTargetRefusal,
  backupTypeOf,
  type PoolRecord,
  requireSpace,
} from '../../pools/index.ts';
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
import { chosenNetworks, requireInFile } from '../config-restore/choose-networks.ts';
import { networksOf } from '../config-restore/networks.ts';
import { type NodeFacts, readFacts } from '../config-restore/node-facts.ts';
import { authoritiesOf } from '../config-restore/signed-by.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { requireStillTarget } from '../target-pool.ts';
import { copyMembers } from './copy.ts';
import { DriverCopies } from './driver-copies.ts';
import type { ForeignDisk, ForeignFile } from './foreign.ts';
import { openForeign } from './open-foreign.ts';
import { planImport } from './plan.ts';
import { requireRoom } from './room.ts';
import { DRIVERS_INJECTED, requireVirtV2v } from './virt-v2v.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const CONVERT_STEPS = ['check', 'read', 'copy', 'publish'] as const;

/** Types of files that hold a VM with its disks. */
const CONVERTIBLE: readonly string[] = ['OVA', 'OVF', 'vma', 'virtnbdbackup'];

export interface ConvertPlan {
  source: FoundFile;
  target: PoolRecord;
}

/**
 * What is to be converted, and where to; looks at nothing but the pools and the name.
 * @throws VirtkeepError file_not_convertible, pool_not_found, and the refusals of pools
 */
export function planConvert(
  request: Pick<ConvertBackupRequest, 'poolId'>,
  source: FoundFile,
  pools: PoolRecord[],
  nodeName: string,
): ConvertPlan {
  const type = backupTypeOf(source.filename) ?? 'unknown';
  if (!CONVERTIBLE.includes(type))
    throw new VirtkeepError('file_not_convertible', { file: source.filename, type });
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
      const value = await convert(dependencies, request, { ...plan, held }, context);
      context.commit({ $case: 'convertBackup', value });
    } finally {
      await closeHeld(held);
    }
    await held.name!.free();
    dependencies.filesChanged(plan.target.id);
  };
}

/** What is to be closed whatever happens. */
export interface Held {
  foreign?: ForeignFile;
  name?: ReservedName;
  archive?: ArchiveWriter;
  copies?: DriverCopies;
}

/** What cannot be closed keeps nothing else open. */
export async function closeHeld({ archive, copies, name, foreign }: Held): Promise<void> {
  await Promise.resolve(archive?.abort())
    .finally(() => copies?.close())
    .finally(() => name?.close())
    .finally(() => foreign?.close());
}

/** One archive, which goes unless the operation is committed. @returns its record */
export async function convert(
  dependencies: WorkflowDependencies,
  request: ConvertBackupRequest,
  plan: ConvertPlan & { held: Held },
  context: OperationContext,
): Promise<ConvertResult> {
  const { target, held } = plan;
  const { facts, networks } = await context.step('check', () => check(dependencies, request, plan, context));
  const foreign = held.foreign!;
  const directory = join(target.path!, BACKUPS_DIR);
  const read = await context.step('read', async () => {
    const contents = await foreign.readDisks(context, directory);
    const images = (await foreign.readImages?.(context, directory)) ?? [];
    const written = contents.map(({ content }) => content);
    const sizes = await requireRoom(target, written, request.compress, context.signal);
    return { contents: contents.map((disk, index) => ({ ...disk, imageBytes: sizes[index]! })), images };
  });
  const { appliance, definition } = foreign;
  const { contents, driverWarnings } = await withDrivers(
    dependencies,
    request,
    { contents: read.contents, directory, held },
    context,
  );
  const sizesBytes = contents.map(({ sizeBytes }) => sizeBytes);
  const { virtio, injectDrivers: hasDrivers } = request;
  const planned = planImport(
    { appliance, definition, sizesBytes, images: read.images, pool: target, virtio, hasDrivers, networks },
    facts,
  );
  const warnings = [...foreign.warnings, ...planned.warnings, ...driverWarnings];
  for (const text of warnings) context.warn(text);
  await foreign.requireSame();
  const created = foreign.created.toISOString();
  const backupId = newId();
  const archive = await context.step('copy', async () => {
    declareArchive(context, held.name!.path, { backupId, states: 1 });
    const job = { planned, contents, directory, compress: request.compress };
    await copyMembers(context, job, async (signal, onProgress) => {
      held.archive = await ArchiveWriter.create({
        path: held.name!.path,
        backupId,
        compression: request.compress ? { level: request.compressionLevel || DEFAULT_LEVEL } : null,
        hash: request.hashSum,
        signal,
        onProgress,
        ...(dependencies.compressionWorkers && { workers: dependencies.compressionWorkers }),
      });
      return held.archive;
    });
    await foreign.requireSame();
    await held.copies?.remove();
    return held.archive!;
  });
  const record = {
    backupId,
    toolVersion: dependencies.version,
    created,
    options: {
      exclude_iso: request.excludeIso,
      compress: request.compress,
      hash_sum: request.hashSum,
      can_be_incremental: false,
    },
    warnings,
    incremental: false,
    fallbackReason: null,
  };
  const finished: FinishedArchive = await context.step('publish', () =>
    archive.finish({
      stateNumber: 1,
      manifest: members => manifestOf(planned.archive.manifest, members, record, null),
    }),
  );
  return {
    file: finishedFileOf(finished, target),
    signedBy: foreign.signedBy ?? undefined,
    driversInjected: request.injectDrivers || undefined,
  };
}

/** @returns the disks with drivers in them, where that was asked for, and warnings */
async function withDrivers(
  { forceTcg }: WorkflowDependencies,
  { injectDrivers }: ConvertBackupRequest,
  { contents, directory, held }: { contents: ForeignDisk[]; directory: string; held: Held },
  context: OperationContext,
): Promise<{ contents: ForeignDisk[]; driverWarnings: string[] }> {
  if (!injectDrivers) return { contents, driverWarnings: [] };
  const { name } = held.foreign!.appliance;
  return context.step('drivers', async () => {
    held.copies = await DriverCopies.make(context, directory);
    const { disks, warnings } = await held.copies.inject(context, { name, disks: contents }, { forceTcg });
    return { contents: disks, driverWarnings: [DRIVERS_INJECTED, ...warnings] };
  });
}

async function check(
  dependencies: WorkflowDependencies,
  request: ConvertBackupRequest,
  { source, target, held }: ConvertPlan & { held: Held },
  context: OperationContext,
): Promise<{ facts: NodeFacts; networks: Record<string, NetworkTarget> }> {
  await requireStillTarget(dependencies, target, context.signal);
  if (request.injectDrivers) await requireVirtV2v();
  const authorities = await authoritiesOf(dependencies);
  const foreign = await openForeign(source, { ...request, authorities }, context);
  held.foreign = foreign;
  const { appliance, created, dataBytes, spareBytes } = foreign;
  const facts = await readFacts(dependencies.libvirt()).catch((error: unknown) => {
    throwIfAborted(context.signal);
    throw fromLibvirt(error, 'convert_backup');
  });
  const networks = chosenNetworks(request.networks, facts, dependencies.nodeName);
  requireInFile(request.networks, networksOf(appliance), source.filename);
  // compressed is what stands in a file of its own before, and so is what drivers are put into
  const copiedBytes = request.injectDrivers ? dataBytes : 0;
  const archiveBytes = dataBytes * (request.compress ? COMPRESSED_SHARE : 1);
  await requireSpace(target, spareBytes + copiedBytes + archiveBytes);
  const stem = archiveStem(appliance.name, created);
  const directory = join(target.path!, BACKUPS_DIR);
  held.name = await reserveArchiveName(context, directory, stem, endingOf(request.compress));
  return { facts, networks };
}
