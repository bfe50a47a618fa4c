/** Decides what a request leads to before anything is touched: a new archive, or an increment of one. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { isHashed, isNameTooLong, type Manifest } from '../../archive/index.ts';
import { backupTargetRefusal, isCompressedName, type PoolRecord } from '../../pools/index.ts';
import type { StateMode } from '../../snapshots/index.ts';
import { otherNameOf } from '../archives/conversion.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { checkLayerPlace } from '../domain/away-layers.ts';
import { removeLeftoverStates } from '../domain/target.ts';
import { relativeOf, thinClonesOf } from '../family/family.ts';
import { type BaseArchive, fallbackReason, notExtendable, readBase, refuseTooLarge } from './base.ts';
import { sizeAhead } from './copy.ts';
import { type BackupFacts, readFacts } from './facts.ts';
import { noteFingerprints } from './fingerprints.ts';
import { chooseMode, spareDirectoryOf } from './freeze.ts';
import { completeMerges } from './hold.ts';
import { keepIds } from './plan.ts';
import { type ContinuedDisk, proveExtension } from './proof.ts';

export interface BackupJob {
  target: PoolRecord;
  facts: BackupFacts;
  /** How the disks are going to be frozen; null: not at all. */
  mode: StateMode | null;
  /** The archive to be extended, proved to be extendable; null: a new one is made. */
  base: ExtendedArchive | null;
  /** Id of the archive. */
  backupId: string;
  /** The state stays on the VM. */
  incremental: boolean;
  /** Why a new archive is written although an increment was requested. */
  fallbackReason: string | null;
  /** The form of the new archive, or of the extended one afterwards. */
  compressed: boolean;
}

export interface ExtendedArchive extends BaseArchive {
  id: string;
  manifest: Manifest;
  disks: Map<string, ContinuedDisk>;
  /** It has another form than the requested one. */
  toConvert: boolean;
  /** Members of it have no SHA-256 and are to get theirs. */
  toHash: boolean;
}

/**
 * Whoever calls it releases the lock of `base` when it is done.
 * @throws VirtkeepError domain_not_found, pool_not_found and the refusals of the specification's 2.3 and 8;
 *   layers_on_network; not_extendable and what else is wrong with the archive to be extended, unless a full backup may stand in
 */
export async function checkBackup(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
): Promise<BackupJob> {
  await removeLeftoverStates(dependencies, request.domainId, context);
  await completeMerges(dependencies, context, request.domainId);
  const at = await checking(dependencies, request, context);
  const job = request.extend ? await extensionOr(at) : await fullBackup(at, request.fallbackReason || null);
  if (job.mode) await checkPlace(job, request.allowNetworkLayers, context);
  tell(job, request, context);
  return job;
}

/**
 * The same again for an archive that took long to be made ready to be extended: its VM may be another one by now. The
 * lock of the archive stays held, unless a full backup stands in.
 * @throws VirtkeepError as {@link checkBackup}
 */
export async function checkAgain(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  former: BackupJob,
): Promise<BackupJob> {
  const job = await extensionOr(await checking(dependencies, request, context), former.base!);
  tell(job, request, context, former.facts.warnings);
  return job;
}

/** A full backup in place of an increment, when the archive turns out not to be extendable. @throws as {@link checkBackup} */
export async function fullInstead(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
  { former, reason }: { former: BackupJob; reason: string },
): Promise<BackupJob> {
  await former.base?.lock.release();
  const job = await fullBackup(await checking(dependencies, request, context), reason);
  tell(job, request, context, former.facts.warnings);
  return job;
}

function tell(
  { facts, base, fallbackReason }: BackupJob,
  request: StartBackupRequest,
  { warn }: OperationContext,
  earlierWarnings?: readonly string[],
): void {
  for (const warning of facts.warnings) if (!earlierWarnings?.includes(warning)) warn(warning);
  if (fallbackReason !== null) warn(`A full backup is made instead of an increment: ${fallbackReason}.`);
  const keepsHashes =
    request.extendHashed === false && base?.manifest.members.some(({ sha256 }) => sha256 !== null);
  if (keepsHashes && earlierWarnings === undefined)
    warn(`The archive ${base!.filename} has hashes, so that the increment has them, too.`);
}

async function checkPlace(
  { facts, target, incremental }: BackupJob,
  allowNetwork: boolean,
  { warn }: OperationContext,
): Promise<void> {
  const place = {
    domain: facts.config.name,
    disks: facts.content.disks.map(({ writable, block }) => ({ written: writable, block })),
    directory: spareDirectoryOf(facts, target.path!),
    period: incremental ? 'from now on' : 'until its backup has ended',
    allowNetwork,
  };
  await checkLayerPlace(place, warn);
}

/** What each step of a check needs. */
interface Checking {
  dependencies: WorkflowDependencies;
  request: StartBackupRequest;
  context: OperationContext;
  pools: PoolRecord[];
}

async function checking(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  context: OperationContext,
): Promise<Checking> {
  return { dependencies, request, context, pools: await dependencies.pools(context.signal) };
}

async function extensionOr(at: Checking, held?: BaseArchive): Promise<BackupJob> {
  try {
    return await extension(at, held);
  } catch (error) {
    const reason = reasonForFull(at.request, error);
    if (reason === null) throw error;
    return fullBackup(at, reason);
  }
}

/** Why a full backup stands in for an increment that failed so; null: none may. */
export function reasonForFull({ fallbackFull }: StartBackupRequest, error: unknown): string | null {
  return fallbackFull ? (fallbackReason(error)?.replace(/\.$/, '') ?? null) : null;
}

async function extension(at: Checking, held: BaseArchive | undefined): Promise<BackupJob> {
  const { dependencies, request, context, pools } = at;
  const base = held ?? (await readBase(request, pools, dependencies, context.signal));
  try {
    return await extensionOf(at, base);
  } catch (error) {
    await base.lock.release();
    throw error;
  }
}

async function extensionOf(at: Checking, base: BaseArchive): Promise<BackupJob> {
  const { dependencies, request } = at;
  if (await carriesClones(dependencies, request.domainId)) throw notExtendable(base.filename, NO_STATE);
  const facts = await factsOf(at, true);
  const { config, states, chains, template } = facts;
  const { statesDeleted } = config.metadata;
  const proof = proveExtension(base.manifest, {
    domainId: config.uuid,
    statesDeleted,
    states,
    chains,
    template,
  });
  if ('reason' in proof) throw notExtendable(base.filename, proof.reason);
  keepIds(facts.content, config.uuid, new Map([...proof.disks].map(([target, { id }]) => [target, id])));
  const { requireConsistency } = request;
  const mode = await chooseMode(facts, { requireConsistency, lasting: true });
  if (mode === null) throw notExtendable(base.filename, 'the VM has no disk left that it writes to');
  const isCompressed = isCompressedName(base.filename);
  const compressed = request.extendCompressed ?? isCompressed;
  const toHash = request.extendHashed === true && !isHashed(base.manifest);
  const ready = { toConvert: compressed !== isCompressed, toHash };
  if ([base.path, otherNameOf(base.path, compressed)].some(isNameTooLong))
    throw notExtendable(base.filename, 'its name is too long for what is written beside it; rename the file');
  const extended = { ...base, id: base.pool.id, disks: proof.disks, ...ready };
  if (compressed) {
    const size = await sizeAhead(dependencies, { facts, base: extended, mode });
    refuseTooLarge(base, request, size, dependencies);
  }
  return {
    target: base.pool,
    facts,
    mode,
    base: extended,
    backupId: base.manifest.backupId,
    incremental: true,
    fallbackReason: null,
    compressed,
  };
}

async function fullBackup(at: Checking, reason: string | null): Promise<BackupJob> {
  const { dependencies, request, pools } = at;
  const target = targetPool(pools, request.poolId, dependencies.nodeName);
  const isRequested = request.canBeIncremental || request.extend !== undefined;
  const lasting = isRequested && !(await carriesClones(dependencies, request.domainId));
  const facts = await factsOf(at, lasting);
  if (isRequested && !lasting) facts.warnings.push(`The backup cannot be extended: ${NO_STATE}.`);
  const { requireConsistency } = request;
  const mode = await chooseMode(facts, { requireConsistency, lasting });
  const incremental = lasting && mode !== null;
  if (lasting && !incremental)
    facts.warnings.push('The VM has no disk that it writes to; the backup cannot be extended.');
  const { fileId: backupId, compress: compressed } = request;
  return { target, facts, mode, base: null, backupId, incremental, fallbackReason: reason, compressed };
}

async function factsOf(
  { dependencies, request, context, pools }: Checking,
  incremental: boolean,
): Promise<BackupFacts> {
  const { domainId, excludeIso, excludeVdisks } = request;
  const read = () => readFacts(dependencies, domainId, { excludeIso, excludeVdisks, incremental }, pools);
  let facts = await read();
  const power = { kind: 'power', id: domainId, mode: 'exclusive' } as const;
  if (facts.power === 'off' && !context.hold.has(power)) {
    // it went off since the request: it must not be started under the copy, and may have been before this is held
    await context.hold.renew();
    facts = await read();
  }
  await noteFingerprints(dependencies, facts.chains, context);
  return facts;
}

const NO_STATE = 'the VM is a template with thin clones, and gets no saved state';

/** What thin clones stand on gets no overlay. */
async function carriesClones({ libvirt }: WorkflowDependencies, domainId: string): Promise<boolean> {
  const own = await relativeOf(libvirt(), domainId);
  return own?.config.metadata.template === true && (await thinClonesOf(libvirt(), domainId)).length > 0;
}

/** The chosen pool, or the node's base pool. @throws VirtkeepError pool_not_found and the refusals of 2.3 rule 7 */
function targetPool(pools: PoolRecord[], poolId: string, nodeName: string): PoolRecord {
  const pool = pools.find(candidate => (poolId === '' ? candidate.isBase : candidate.id === poolId));
  if (!pool)
    throw new VirtkeepError('pool_not_found', { id: poolId || 'of the node (no base data pool is set)' });
  const refusal = backupTargetRefusal(pool, nodeName);
  if (refusal) throw refusal;
  return pool;
}
