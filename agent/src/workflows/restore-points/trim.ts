/**
 * Drops the oldest restore points of an archive: it is written anew beside itself, without them, and takes its own place.
 *
 * check → copy → publish → replace. What stays is copied as it is, shared where the file system can; only the layers that end with no
 * state that stays are joined (plan.ts, join.ts). The new file is complete and durable before it is published under a name of its own; from
 * the commit on it gets the old one's name. Whatever stops it before leaves the old file alone and no other; whatever stops it later is
 * finished by the next agent.
 *
 * Nothing of the VM is touched: an increment is proved by the newest state, which stays. States that dropped restore points left on the VM
 * are merged by the next increments, as ever.
 */
import { dirname } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { TrimBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import {
  type Archive,
  ArchiveWriter,
  type FileLock,
  type FinishOptions,
  lockFile,
  type Manifest,
  type ManifestDisk,
  type ManifestLayer,
  openArchive,
  putTailsBack,
} from '../../archive/index.ts';
import { markSources } from '../../disks/index.ts';
import { isCompressedName, requireSpace } from '../../pools/index.ts';
import { backupFileOf } from '../archives/backup-file.ts';
import { COMPRESSED_SHARE, type Removal, refuseChanged } from '../archives/conversion.ts';
import type { FoundFile } from '../archives/find-file.ts';
import {
  declareArchive,
  endingOf,
  type ReservedName,
  reserveArchiveName,
} from '../archives/reserved-name.ts';
import { declareReplacement } from '../archives/trimmed.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { endsForState } from '../restore/states.ts';
import { type Below, joinLayers } from './join.ts';
import {
  endsOf,
  imagesOf,
  isDropped,
  type KeptStates,
  keptStates,
  membersToBring,
  trimmedManifest,
} from './plan.ts';
import { spaceFor } from './space.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const TRIM_STEPS = ['check', 'copy', 'publish', 'replace'] as const;

/** What is read, and what becomes of it. */
interface Trim extends KeptStates {
  archive: Archive;
  manifest: Manifest;
  /** Names of the layers that end an image. */
  ends: ReadonlySet<string>;
}

/** The workflow: the archive with its newest states only, under its name. Cancelling is possible until it gets that. */
export function trimWorkflow(
  dependencies: WorkflowDependencies,
  request: TrimBackupRequest,
  source: FoundFile,
): Workflow {
  return async context => {
    const lock = await lockFile(source.path, 'exclusive');
    try {
      await putTailsBack(source.path, lock, context.signal);
      await trim(dependencies, request, { source, lock }, context);
    } finally {
      await lock.release();
    }
  };
}

async function trim(
  dependencies: WorkflowDependencies,
  { keepStates }: TrimBackupRequest,
  { source, lock }: { source: FoundFile; lock: FileLock },
  context: OperationContext,
): Promise<void> {
  const { path, filename, pool } = source;
  const draft: { work?: Trim; name?: ReservedName; writer?: ArchiveWriter } = {};
  const mark = await markSources([path]);
  let removal: Removal;
  try {
    const work = await context.step('check', async () => {
      draft.work = await check(context, source, { lock, keepStates });
      const share = isCompressedName(filename) ? COMPRESSED_SHARE : 1;
      await requireSpace(pool, spaceFor(draft.work.manifest, draft.work, share));
      draft.name = await reserveArchiveName(context, dirname(path), ...stemOf(path));
      return draft.work;
    });
    const last = await context.step('copy', async () => {
      const { writer, isAdopted } = await openWriter(dependencies, context, work, draft.name!.path);
      draft.writer = writer;
      return copy(context, writer, work, isAdopted);
    });
    const finished = await context.step('publish', () => draft.writer!.finish(last));
    await refuseChanged(lock, mark);
    removal = await declareReplacement(context, work.archive, finished.path);
    const place = { poolId: pool.id, filename, path, sizeBytes: finished.sizeBytes };
    const file = backupFileOf(place, finished.manifest);
    context.commit({ $case: 'trim', value: { file, removedStates: work.dropped } });
  } finally {
    await draft.writer?.abort();
    await draft.work?.archive.close();
    await draft.name?.close();
  }
  await context.step('replace', () => removal.remove(context, lock));
  await draft.name!.free();
  dependencies.filesChanged(pool.id);
}

/** In the order of what reserves a name. */
function stemOf(path: string): [stem: string, ending: string] {
  const ending = endingOf(isCompressedName(path));
  const name = path.slice(dirname(path).length + 1);
  return [name.toLowerCase().endsWith(ending) ? name.slice(0, -ending.length) : name, ending];
}

/**
 * Opens the archive and finds out what goes.
 * @throws VirtkeepError archive_damaged, archive_unsupported for one without a manifest of ours, nothing_to_trim
 */
async function check(
  { signal }: OperationContext,
  { path, filename }: FoundFile,
  { lock, keepStates }: { lock: FileLock; keepStates: number },
): Promise<Trim> {
  const archive = await openArchive(path, signal, { holding: lock });
  try {
    const { manifest } = archive;
    if (manifest === null) {
      const reason =
        'it has no manifest of this service, so that nothing tells what a restore point of it needs';
      throw new VirtkeepError('archive_unsupported', { path, reason });
    }
    const states = keptStates(manifest, keepStates, filename);
    return { archive, manifest, ...states, ends: await endsIn(archive, states, signal) };
  } catch (error) {
    await archive.close();
    throw error;
  }
}

/** Where an image ends because of a state that stays, or of a saved state of the VM that comes back with one. */
async function endsIn(
  archive: Archive,
  { kept }: Pick<KeptStates, 'kept'>,
  signal: AbortSignal,
): Promise<Set<string>> {
  const ends = new Set<string>();
  const seen = new Set<string>();
  for (const number of kept) {
    const manifest = await archive.manifestOfState(number);
    for (const name of endsOf(manifest)) ends.add(name);
    for (const record of manifest.snapshots) {
      // what it keeps is below the first state of the archive that it is in
      const isKnown = seen.has(record.xmlMember) && number !== kept.at(-1);
      if (isKnown || isDropped(record, manifest, kept[0]!)) continue;
      seen.add(record.xmlMember);
      const xml = (await archive.readMember(record.xmlMember, signal)).toString('utf8');
      for (const name of endsForState(manifest.disks, { record, xml })) ends.add(name);
    }
  }
  return ends;
}

/** Signed again as it was: the node's own stays its own, and what another node had a part in does not become so. */
async function openWriter(
  { judge, sign, compressionWorkers }: WorkflowDependencies,
  context: OperationContext,
  { archive, manifest, kept }: Trim,
  path: string,
): Promise<{ writer: ArchiveWriter; isAdopted: boolean }> {
  const { trust, reason } = judge(archive);
  const isSigned = trust !== 'foreign' && sign !== undefined;
  if (!isSigned && archive.seal?.signature)
    context.warn(`The archive ${archive.path} loses its signature: ${reason || 'this node signs none'}.`);
  declareArchive(context, path, { backupId: manifest.backupId, states: kept.length });
  const total = manifest.members.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  context.progress.total(total);
  const writer = await ArchiveWriter.create({
    path,
    backupId: manifest.backupId,
    compression: archive.format === 'tar' ? null : {},
    hash: manifest.members.some(({ sha256 }) => sha256 !== null),
    ...(isSigned && { sign, isOwn: trust === 'own' }),
    signal: context.signal,
    onProgress: bytes => context.progress.done(Math.min(bytes, total)),
    ...(compressionWorkers !== undefined && { workers: compressionWorkers }),
  });
  return { writer, isAdopted: isSigned && trust === 'fleet' };
}

/** Writes the states that stay, each with its manifest. @returns how the last one is finished */
async function copy(
  context: OperationContext,
  writer: ArchiveWriter,
  work: Trim,
  isAdopted: boolean,
): Promise<FinishOptions> {
  const { archive, kept, ends } = work;
  const brought = new Set<string>();
  let last: FinishOptions | undefined;
  for (const number of kept) {
    if (last) await writer.endState(last);
    const former = await archive.manifestOfState(number);
    const manifest = trimmedManifest(former, { first: kept[0]!, ends });
    const joined = joinedIn(former.disks, ends);
    for (const { name } of membersToBring(manifest, work.manifest.members, brought)) {
      const image = joined.get(name);
      if (image) await addJoined(context, writer, archive, image);
      else await writer.addMember(archive, name);
      brought.add(name);
    }
    const described = { ...manifest, ...(isAdopted && { adopted: true as const }) };
    last = { stateNumber: number, manifest: members => ({ ...described, members }) };
  }
  return last!;
}

interface LayersToJoin {
  layers: ManifestLayer[];
  below: Below | null;
}

/** By its name each image that several layers become; what two disks have is never in one (plan.ts). */
function joinedIn(disks: readonly ManifestDisk[], ends: ReadonlySet<string>): Map<string, LayersToJoin> {
  const found = new Map<string, LayersToJoin>();
  for (const { layers: all, base } of disks) {
    let below: Below | null = base && { path: base.path, format: base.format };
    for (const layers of imagesOf(all, ends)) {
      if (layers.length > 1) found.set(layers[0]!.member, { layers, below });
      below = { path: layers[0]!.formerPath ?? `/${layers[0]!.member}`, format: 'qcow2' };
    }
  }
  return found;
}

async function addJoined(
  context: OperationContext,
  writer: ArchiveWriter,
  archive: Archive,
  { layers, below }: LayersToJoin,
): Promise<void> {
  const records = archive.manifest!.members;
  const recorded = layers.map(({ member }) => records.find(({ name }) => name === member)!);
  const { name, kind, formerPath } = recorded[0]!;
  const image = await joinLayers(context, archive, layers, below);
  const hashedLater = recorded.some(
    ({ sha256, hashedLater: isLater }) => sha256 === null || isLater === true,
  );
  await writer.addFile(name, kind, image.path, { formerPath: formerPath ?? undefined, hashedLater });
  await image.remove();
}
