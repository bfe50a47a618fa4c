/**
 * A backup of this product out of a foreign file that holds a VM with its disks: an OVA, an OVF descriptor with its disks beside it, an
 * archive of Proxmox VE, a directory of virtnbdbackup's (specification 2.3).
 *
 * check → read → copy → publish. What QEMU cannot read where it stands is unpacked once, into spare files that lie beside the new archive and
 * go at the end; from there the disks become those of the archive. The file stays as it is. Nobody vouches for the new archive: what is in it came from elsewhere.
 * Whatever stops it leaves nothing.
 */
import { join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ConvertBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
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
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import type { ForeignDisk, ForeignFile } from './foreign.ts';
import { openForeignOvf } from './foreign-ovf.ts';
import { openForeignVirtnbd } from './foreign-virtnbd.ts';
import { openForeignVma } from './foreign-vma.ts';
import { type PlannedImport, planImport } from './plan.ts';

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
  request: ConvertBackupRequest,
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
      await convert(dependencies, request, { ...plan, held }, context);
    } finally {
      // what cannot be closed keeps nothing else open
      await Promise.resolve(held.archive?.abort())
        .finally(() => held.name?.close())
        .finally(() => held.foreign?.close());
    }
    await held.name!.free();
    dependencies.filesChanged(plan.target.id);
  };
}

/** What is to be closed whatever happens. */
interface Held {
  foreign?: ForeignFile;
  name?: ReservedName;
  archive?: ArchiveWriter;
}

async function convert(
  dependencies: WorkflowDependencies,
  request: ConvertBackupRequest,
  plan: ConvertPlan & { held: Held },
  context: OperationContext,
): Promise<void> {
  const { target, held } = plan;
  const { facts, networks } = await context.step('check', () => check(dependencies, request, plan, context));
  const foreign = held.foreign!;
  const contents = await context.step('read', () =>
    foreign.readDisks(context, join(target.path!, BACKUPS_DIR)),
  );
  const sizesBytes = contents.map(({ sizeBytes }) => sizeBytes);
  const { appliance, definition } = foreign;
  const planned = planImport(
    { appliance, definition, sizesBytes, pool: target, virtio: request.virtio, networks },
    facts,
  );
  const warnings = [...foreign.warnings, ...planned.warnings];
  for (const text of warnings) context.warn(text);
  await foreign.requireSame();
  const created = foreign.created.toISOString();
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
    await writeMembers(context, held.archive, planned, contents);
    await foreign.requireSame();
    return held.archive;
  });
  const record = {
    backupId,
    toolVersion: dependencies.version,
    created,
    options: { compress: request.compress, hash_sum: request.hashSum, can_be_incremental: false },
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
  context.commit({ $case: 'convertBackup', value: { file: finishedFileOf(finished, target) } });
}

async function check(
  dependencies: WorkflowDependencies,
  request: ConvertBackupRequest,
  { source, target, held }: ConvertPlan & { held: Held },
  context: OperationContext,
): Promise<{ facts: NodeFacts; networks: Record<string, NetworkTarget> }> {
  const foreign = await openForeign(source, request, context);
  held.foreign = foreign;
  const { appliance, created, dataBytes, spareBytes } = foreign;
  const facts = await readFacts(dependencies.libvirt()).catch((error: unknown) => {
    throwIfAborted(context.signal);
    throw fromLibvirt(error, 'convert_backup');
  });
  const networks = chosenNetworks(request.networks, facts, dependencies.nodeName);
  requireInFile(request.networks, networksOf(appliance), source.filename);
  // compressed is what stands in a file of its own before
  await requireSpace(target, spareBytes + dataBytes * (request.compress ? COMPRESSED_SHARE : 1));
  const stem = archiveStem(appliance.name, created);
  const directory = join(target.path!, BACKUPS_DIR);
  held.name = await reserveArchiveName(context, directory, stem, endingOf(request.compress));
  return { facts, networks };
}

function openForeign(
  source: FoundFile,
  request: ConvertBackupRequest,
  context: OperationContext,
): Promise<ForeignFile> {
  const type = backupTypeOf(source.filename);
  if (type === 'vma') return openForeignVma(source, context);
  if (type === 'virtnbdbackup') return openForeignVirtnbd(source, request, context);
  return openForeignOvf(source, request, context);
}

async function writeMembers(
  context: OperationContext,
  writer: ArchiveWriter,
  { archive, disks }: PlannedImport,
  contents: readonly ForeignDisk[],
): Promise<void> {
  context.progress.total(archive.totalBytes);
  for (const member of archive.members) {
    const { name, kind } = member;
    if (member.from === 'bytes') await writer.addBytes(name, kind, member.bytes);
    else if (member.from === 'raw') {
      const { index } = disks.find(({ path }) => path === member.path)!;
      await writer.addRaw(name, contents[index]!.content, member.virtualSize, { formerPath: member.path });
    }
  }
}
