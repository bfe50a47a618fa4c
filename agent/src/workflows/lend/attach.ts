/**
 * Attaches a disk of another domain (specification 4.1): read-only, as it was at the instant that all disks of its owner
 * share. Nothing grows with the disk's size. What fails leaves nothing, unless the guest would not let go again.
 */
import { relative } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import type { DiskSource } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { diskId as idOfFile } from '../../disks/index.ts';
import type { Attachment, LentDisk } from '../../domain-xml/index.ts';
import { attachedIdOf } from '../../domain-xml/index.ts';
import { fromDomain } from '../../libvirt/domains.ts';
import { type PoolRecord, poolOfPath, resolveInPool } from '../../pools/index.ts';
import { type Instant, LENDING_STATE } from '../../snapshots/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { kindOf, refuseEncrypted, requireLasting } from '../domain/domain-kind.ts';
import { plug } from './device.ts';
import { lentImageRefusal } from './foreign-source.ts';
import type { LentSource } from './freezer.ts';
import { freezerOf } from './freezers.ts';
import { attachmentsOfParty, type Party } from './lender.ts';
import { isSame, noteAttachment, noteLoan } from './loan.ts';
import { readLender, requireParty } from './parties.ts';
import { freeTarget } from './target.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const ATTACH_DISK_STEPS = ['check', 'freeze', 'note', 'plug'] as const;

export interface AttachRequest {
  borrowerId: string;
  ownerId: string;
  /** Id of the original. */
  diskId: string;
  thinClone: boolean;
  /** Layers of an owner whose disks are all devices may lie on a network file system. */
  allowNetworkLayers: boolean;
  /** Of choosing the disk. */
  warnings: string[];
  /** Set when the owner is on another node: what that one lends. */
  source?: DiskSource;
}

/** What is attached, ready to be opened on this node. */
export interface Held extends LentSource {
  attachedId: string;
  /** It is a clone, with an id of its own. */
  clone: boolean;
  instant: Instant | null;
}

/**
 * The workflow. Result: `{"vdisk","owner_id","attached":{"id","target_dev","path"},"snapshot":{"id","name"}|null,
 * "warnings":[…]}`.
 */
export function attachDiskWorkflow(dependencies: WorkflowDependencies, request: AttachRequest): Workflow {
  return context =>
    run(dependencies, request, context).catch(error => {
      context.signal.throwIfAborted();
      throw fromDomain(error, request.borrowerId, 'attach_disk');
    });
}

async function run(
  dependencies: WorkflowDependencies,
  request: AttachRequest,
  context: OperationContext,
): Promise<void> {
  const { step, effects, commit, warn } = context;
  const { borrowerId, ownerId, diskId, source } = request;
  for (const warning of request.warnings) warn(warning);
  await step('check', async () => {
    await checkBorrower(dependencies, request);
    if (!source) await refuseFormerInstant(await requireParty(dependencies, ownerId));
  });
  // the owner's side of a loan from another node is not ours to end
  const loan = { ownerId: source ? '' : ownerId, diskId, borrowerId };
  // a clone that the user kept of this disk stays when this fails
  const keepClone = !source && (await isCloneKept(dependencies, request));
  effects.begin({ type: 'loan', ...loan, unplug: true, keepClone }, 'failure');
  const held = await step('freeze', () =>
    source ? fromAfar(dependencies, source, context.signal) : hold(dependencies, request, context),
  );
  // the freeze may have taken long, and others may have started or stopped it meanwhile
  const borrower = await requireParty(dependencies, borrowerId);
  const targetDev = freeTarget(targetsOf(borrower));
  await step('note', async () => {
    if (!source) await noteLoan(await requireParty(dependencies, ownerId), { diskId, borrowerId });
    await noteAttachment(borrower, attachmentOf(request, held, targetDev));
  });
  await step('plug', async () => {
    const { path, format, block } = held;
    const disk: LentDisk = { diskId, path, format, block, targetDev };
    await plug(dependencies, borrowerId, disk);
    const attached = { id: held.attachedId, targetDev, path };
    const snapshot = held.instant ?? undefined;
    const { warnings } = request;
    commit({ $case: 'attachDisk', value: { vdisk: diskId, ownerId, attached, snapshot, warnings } });
  });
}

/** @throws VirtkeepError domain_not_found, vdisk_attached_already, invalid_field, domain_transient, domain_memory_saved */
async function checkBorrower(
  dependencies: WorkflowDependencies,
  { borrowerId, ownerId, diskId }: AttachRequest,
): Promise<void> {
  const borrower = await requireParty(dependencies, borrowerId);
  requireLasting(await kindOf(borrower.domain), 'given disks of other domains');
  if (borrowerId === ownerId)
    throw new VirtkeepError('invalid_field', { field: 'vdisk', reason: 'is a disk of this domain itself' });
  const there = attachmentsOfParty(borrower).find(attachment => attachment.diskId === diskId);
  if (there)
    throw new VirtkeepError('vdisk_attached_already', {
      disk: diskId,
      domain: borrower.name,
      target: there.targetDev,
    });
}

/**
 * The state of loans that have ended may stay for a while. It shows another moment than whoever attaches a disk now asks for.
 * @throws VirtkeepError snapshot_in_use
 */
export async function refuseFormerInstant({ domain, name, metadata }: Party): Promise<void> {
  if (metadata.loans?.length || !(await domain.findSnapshot(LENDING_STATE))) return;
  const reason = `"${LENDING_STATE}", of disks that were given back, is still to be merged; it goes by itself as soon as it can`;
  throw new VirtkeepError('snapshot_in_use', { domain: name, reason });
}

async function isCloneKept(dependencies: WorkflowDependencies, request: AttachRequest): Promise<boolean> {
  const { metadata } = await requireParty(dependencies, request.ownerId);
  return metadata.loans?.find(known => isSame(known, request))?.cloneKept === true;
}

function targetsOf({ live, config }: Party): string[] {
  return [live, config].flatMap(form => form?.disks ?? []).map(disk => disk.targetDev);
}

type HoldRequest = Pick<AttachRequest, 'ownerId' | 'diskId' | 'borrowerId' | 'allowNetworkLayers'>;

/**
 * Holds the owner's disks at their instant, and says what stands for this one.
 * @throws VirtkeepError domain_not_found, vdisk_not_found, domain_transient, domain_memory_saved; snapshot_in_use: the instant does not hold the disk
 */
export async function hold(
  dependencies: WorkflowDependencies,
  { ownerId, diskId, borrowerId, allowNetworkLayers }: HoldRequest,
  context: OperationContext,
): Promise<Held> {
  const owner = await requireParty(dependencies, ownerId);
  if (!owner.metadata.template)
    requireLasting(await kindOf(owner.domain), 'held at one moment to lend its disks');
  const lender = await readLender(dependencies, owner, context.signal);
  const disk = lender.disks.find(candidate => candidate.id === diskId);
  if (!disk) throw new VirtkeepError('vdisk_not_found', { id: diskId });
  refuseEncrypted(owner.name, [{ ...disk, layers: [] }], 'lent: its reader would get ciphertext');
  const freezer = await freezerOf(dependencies, lender, context);
  const instant = await freezer.freeze(lender, context, allowNetworkLayers);
  const source = await freezer.sourceOf(lender, disk, borrowerId, context);
  if (!source) {
    const reason = `the one of its lent disks does not hold ${diskId}, which came later or is shareable; detach the others first`;
    throw new VirtkeepError('snapshot_in_use', { domain: owner.name, reason });
  }
  const pools = await dependencies.pools(context.signal);
  const fileId = idOfFile(source.path, poolOfPath(source.path, pools));
  const attachedId = source.attachedId ?? attachedIdOf(diskId, fileId, source.path);
  return { ...source, instant, attachedId, clone: source.attachedId !== undefined };
}

/** @throws VirtkeepError vdisk_unreachable, path_outside_pool, not_a_file */
async function fromAfar(
  dependencies: WorkflowDependencies,
  { diskId, attachedId, poolId, pathInPool, format }: DiskSource,
  signal: AbortSignal,
): Promise<Held> {
  const unreachable = (reason: string) =>
    new VirtkeepError('vdisk_unreachable', { disk: diskId, node: dependencies.nodeName, reason });
  const pools = await dependencies.pools(signal);
  const pool = pools.find(({ id }) => id === poolId);
  if (!pool?.path) throw unreachable(`it has no data pool ${poolId}`);
  if (!pool.active || !pool.mounted) throw unreachable(`the data pool ${pool.name} is not active there`);
  const path = await resolveInPool(pool, pathInPool);
  if (!(await exists(path))) throw unreachable(`the data pool ${pool.name} there has no ${pathInPool}`);
  const refusal = await lentImageRefusal(path, format, pools);
  if (refusal !== undefined) throw unreachable(refusal);
  return { path, format, block: false, attachedId, clone: false, instant: null };
}

function attachmentOf(
  { diskId, ownerId, thinClone }: AttachRequest,
  { attachedId, path, clone }: Held,
  targetDev: string,
): Attachment {
  return { diskId, ownerId, attachedId, targetDev, path, thinClone, ...(clone ? { clone } : {}) };
}

/** What another node needs to open the disk. @throws VirtkeepError vdisk_unreachable when no pool holds it */
export function sourceFor(
  { diskId, ownerId, thinClone }: Pick<AttachRequest, 'diskId' | 'ownerId' | 'thinClone'>,
  { path, format, attachedId }: Held,
  pools: readonly PoolRecord[],
  nodeName: string,
): DiskSource {
  const pool = poolOfPath(path, pools);
  if (!pool?.path || pool.outside)
    throw new VirtkeepError('vdisk_unreachable', {
      disk: diskId,
      node: nodeName,
      reason: `${path} is in no data pool`,
    });
  const pathInPool = relative(pool.path, path);
  return { diskId, ownerId, attachedId, poolId: pool.id, pathInPool, format, thinClone };
}
