/** What a backup reads, how much that is, and the writing of it. */
import { stat } from 'node:fs/promises';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import {
  type ArchiveAppender,
  type ArchiveWriter,
  requireReadable,
  type TarSize,
} from '../../archive/index.ts';
import { refuseChangedSources, type SourceMark } from '../../disks/index.ts';
import { requireSpace } from '../../pools/index.ts';
import { savedStateId } from '../../snapshots/index.ts';
import { COMPRESSED_SHARE } from '../archives/conversion.ts';
import { timeStamp } from '../archives/file-name.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import {
  type Firmware,
  firmwarePartsOf,
  readFirmware,
  readKeptFirmware,
} from '../firmware/state-firmware.ts';
import type { BackupFacts } from './facts.ts';
import { type FrozenInstant, spareDirectoryOf } from './freeze.ts';
import type { BackupJob } from './job.ts';
import { type ArchivePlan, type FileSize, planArchive } from './members.ts';
import type { StartWatch } from './starts.ts';

/** All of an archive that is converted is written anew, beside it. */
const convertedBytes = ({ base }: BackupJob): number =>
  (base?.toConvert ? base.manifest.members : []).reduce(
    (sum, member) => sum + (member.allocatedBytes ?? member.sizeBytes),
    0,
  );

/**
 * Asks for the space, and whether a compressed archive of so much can be read, before anything is touched. What is not known yet
 * (saved memory) counts with its upper bound.
 * @throws VirtkeepError pool_no_space, archive_too_large, io_failed
 */
export async function estimate(dependencies: WorkflowDependencies, job: BackupJob): Promise<void> {
  const { facts, target } = job;
  const plan = await planCopy(dependencies, job, notFrozen());
  const memoryBytes = memoryBytesOf(job);
  if (job.compressed) {
    const archive = job.base?.path ?? `of ${facts.config.name}`;
    requireReadable(archive, withMemory(plan.tarSize, memoryBytes), dependencies.mostFrames);
  }
  const share = job.compressed ? COMPRESSED_SHARE : 1;
  const archiveBytes = (plan.neededBytes + memoryBytes + convertedBytes(job)) * share;
  const asideBytes = job.compressed ? plan.largestRawBytes : 0;
  const spare = spareDirectoryOf(facts, target.path!);
  const isOneDisk = memoryBytes > 0 && (await deviceOf(spare)) === (await deviceOf(target.path!));
  await requireSpace(target, archiveBytes + asideBytes + (isOneDisk ? memoryBytes : 0));
  if (memoryBytes > 0 && !isOneDisk) await requireSpace({ name: spare, path: spare }, memoryBytes);
}

/** Number of the file system that a directory is on. @throws VirtkeepError io_failed */
async function deviceOf(path: string): Promise<number> {
  const { dev } = await stat(path).catch(error => {
    throw fromIoError(error, 'reading', path);
  });
  return dev;
}

/** What the archive is going to hold, with what it has already, before anything is touched. @throws VirtkeepError io_failed */
export async function sizeAhead(
  dependencies: WorkflowDependencies,
  job: Pick<BackupJob, 'facts' | 'base' | 'mode'>,
): Promise<TarSize> {
  const plan = await planCopy(dependencies, job, notFrozen());
  return withMemory(plan.tarSize, memoryBytesOf(job));
}

const notFrozen = (): FrozenInstant => ({ automatic: null, consistency: 'off', time: new Date() });

/** Of a state with memory that is not made yet: at most. */
const memoryBytesOf = ({ facts, mode }: Pick<BackupJob, 'facts' | 'mode'>): number =>
  mode === 'memory' ? facts.config.memoryMiB * MiB : 0;

const withMemory = ({ bytes, members }: TarSize, memoryBytes: number): TarSize => ({
  bytes: bytes + memoryBytes,
  members: members + (memoryBytes > 0 ? 1 : 0),
});

/** What goes into the archive, member by member, once the disks are frozen. @throws VirtkeepError io_failed */
export async function planCopy(
  dependencies: WorkflowDependencies,
  { facts, base }: Pick<BackupJob, 'facts' | 'base'>,
  { automatic, consistency, time }: FrozenInstant,
): Promise<ArchivePlan> {
  const memoryPath = automatic?.memoryPath ?? null;
  const label = automatic?.name ?? `backup_${timeStamp(time)}`;
  return planArchive({
    ...facts,
    ...(await readOwnFirmware(dependencies, facts)),
    stateFirmware: await readStateFirmware(dependencies, facts),
    automatic: automatic && { label, memoryPath },
    consistency,
    sizes: await sizesOf(otherFiles(facts, memoryPath)),
    continued: base,
  });
}

/** NVRAM and the TPM's state are small, written rarely, and read whole right after the disks were frozen. */
async function readOwnFirmware(dependencies: WorkflowDependencies, { config }: BackupFacts) {
  const parts = firmwarePartsOf(dependencies, config);
  const { nvram, tpm } = await readFirmware(dependencies, parts);
  return { nvram: nvram ? { path: parts.nvramPath!, bytes: nvram } : null, tpm: tpm ?? null };
}

/** The same as the VM's saved states have it, by their names. */
async function readStateFirmware(
  dependencies: WorkflowDependencies,
  { config, states }: BackupFacts,
): Promise<Map<string, Firmware>> {
  const found = new Map<string, Firmware>();
  for (const state of states) {
    const key = savedStateId(config.uuid, state);
    found.set(state.name, await readKeptFirmware(dependencies, config.uuid, key));
  }
  return found;
}

function otherFiles(facts: BackupFacts, memoryPath: string | null): string[] {
  const images = facts.content.images.map(image => image.path);
  const memories = [memoryPath, ...facts.states.map(state => state.memoryPath)];
  return [...images, ...memories.filter(path => path !== null)];
}

async function sizesOf(paths: string[]): Promise<Map<string, FileSize>> {
  const sizes = new Map<string, FileSize>();
  for (const path of paths) {
    const found = await stat(path).catch(error => {
      throw fromIoError(error, 'reading', path);
    });
    const { size: fileSize, mtime } = found;
    sizes.set(path, { fileSize, allocatedSize: found.blocks * 512, modified: mtime.toISOString() });
  }
  return sizes;
}

/** Copies the planned members in their order. @throws VirtkeepError as the writer's methods */
export async function writeMembers(
  writer: ArchiveWriter | ArchiveAppender,
  plan: ArchivePlan,
): Promise<void> {
  for (const member of plan.members) {
    if (member.from === 'bytes')
      await writer.addBytes(member.name, member.kind, member.bytes, { formerPath: member.formerPath });
    else if (member.from === 'file')
      await writer.addFile(member.name, member.kind, member.path, { formerPath: member.path });
    else
      await writer.addRaw(member.name, { path: member.path }, member.virtualSize, {
        formerPath: member.path,
      });
  }
}

/** What was read, and how it is known whether it changed. */
export interface ReadSources {
  /** All of them. */
  paths: readonly string[];
  /** Those that tell themselves. */
  marks: SourceMark[];
  /** Of a VM that is off, whose disks are read as they lie; null: they are frozen below layers. */
  starts: StartWatch | null;
}

/**
 * An off VM that was started, here or on another node, or anybody else who wrote to a file meanwhile: the copy is worth nothing.
 * @throws VirtkeepError power_state_conflict; what `Hold.renew` raises
 */
export async function refuseChanged(
  { hold }: Pick<OperationContext, 'hold'>,
  facts: BackupFacts,
  { paths, marks, starts }: ReadSources,
): Promise<void> {
  const { name: domain } = facts.config;
  const action = 'backed up while its disks change; start the backup again';
  const refuse = (state: string) => new VirtkeepError('power_state_conflict', { domain, state, action });
  if (facts.power === 'off') {
    if (await facts.domain.isActive()) throw refuse('running');
    // a device that two nodes have counts what this one writes, and locks nobody out
    await hold.renew();
  }
  await refuseChangedSources(domain, marks, action);
  const doubt = new Set(paths).size > marks.length ? starts?.doubt() : undefined;
  if (doubt != null) throw refuse(doubt);
}
