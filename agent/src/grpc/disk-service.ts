import { sleep } from '@virtkeep/shared/abort';
import { hasKey } from '@virtkeep/shared/errors';
import type {
  AttachDiskRequest,
  DetachDiskRequest,
  DiskServiceImplementation,
  LendDiskRequest,
  ReturnDiskRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Inventory } from '../inventory/index.ts';
import { fromLibvirt } from '../libvirt/errors.ts';
import type { OperationRunner } from '../operations/runner.ts';
import { KEEP_LOANS } from '../reconcilers/loans.ts';
import type { Lock } from '../workflows/context.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { attachDiskWorkflow } from '../workflows/lend/attach.ts';
import { detachDiskWorkflow } from '../workflows/lend/detach.ts';
import { lendDiskWorkflow, returnDiskWorkflow } from '../workflows/lend/lend.ts';
import { attachmentsOfParty, readParty } from '../workflows/lend/lender.ts';
import { diskToLend, loanToEnd } from '../workflows/lend/which-disk.ts';
import { isDomainActive } from './ask-domain.ts';
import { requireUuid } from './fields.ts';
import { domainEntities, domainLocks, type OperationPlan, startOperation } from './start-operation.ts';

export interface DiskServiceOptions {
  inventory: Inventory;
  runner: OperationRunner;
  workflows: WorkflowDependencies;
}

const RETURN_DISK = 'return_disk';
/** Work on loans that no user asks for: the reconciler's, and what the controller gives back after a node was away. */
const BACKGROUND_KINDS: ReadonlySet<string> = new Set([KEEP_LOANS, RETURN_DISK]);
const BACKGROUND_PATIENCE_MS = 20_000;
const BACKGROUND_POLL_MS = 50;

/** `DiskService`; what its methods promise stands in the proto. */
export function diskService(options: DiskServiceOptions): DiskServiceImplementation {
  const { runner } = options;
  return {
    attach: (request, { signal }) =>
      startOperation(runner, { kind: 'attach_disk', request, signal }, () => attach(options, request)),
    detach: (request, { signal }) =>
      startOperation(runner, { kind: 'detach_disk', request, signal }, () => detach(options, request)),
    lend: (request, { signal }) =>
      startOperation(runner, { kind: 'lend_disk', request, signal }, () => lend(options, request)),
    return: (request, { signal }) =>
      startOperation(runner, { kind: RETURN_DISK, request, signal }, () => giveBack(options, request)),
  };
}

async function attach(options: DiskServiceOptions, request: AttachDiskRequest): Promise<OperationPlan> {
  const { workflows } = options;
  const { domainId: borrowerId, source, allowNetworkLayers } = request;
  requireIds(request);
  await freshDomain(options, borrowerId);
  const chosen = source ? undefined : await choose(options, request);
  const disk = chosen
    ? {
        ownerId: chosen.owner.id,
        diskId: chosen.disk.id,
        thinClone: chosen.thinClone,
        warnings: chosen.warnings,
      }
    : { ownerId: source!.ownerId, diskId: source!.diskId, thinClone: source!.thinClone, warnings: [] };
  const workflow = attachDiskWorkflow(workflows, {
    borrowerId,
    ...disk,
    allowNetworkLayers,
    ...(source ? { source } : {}),
  });
  const ids = [borrowerId, disk.ownerId];
  const locks = async () => [
    ...domainLocks(borrowerId, ['domain']),
    ...(chosen ? await ownerLocks(options, chosen.owner) : []),
  ];
  // a template's disks never change, wherever else it is defined
  const mayBeCopies = chosen?.owner.template ? [chosen.owner.id] : [];
  return planOf(options, { ids, locks, workflow, mayBeCopies, cancellable: true });
}

async function detach(options: DiskServiceOptions, request: DetachDiskRequest): Promise<OperationPlan> {
  const { inventory, workflows } = options;
  const { domainId: borrowerId } = request;
  requireIds(request);
  const borrower = await freshDomain(options, borrowerId);
  const party = await readParty(workflows.libvirt(), borrowerId).catch((error: unknown) => {
    throw fromLibvirt(error, 'virDomainLookupByUUID');
  });
  const noted = party ? attachmentsOfParty(party) : [];
  const isClone = ({ diskId }: { diskId: string }) =>
    noted.some(attachment => attachment.diskId === diskId && attachment.clone === true);
  await inventory.complete();
  const chosen = loanToEnd(inventory.domains(), borrower, request, isClone);
  const { ownerId } = chosen;
  const workflow = detachDiskWorkflow(workflows, { borrowerId, ...chosen });
  const locks = async () => [
    ...domainLocks(borrowerId, ['domain']),
    ...(ownerId === '' ? [] : await locksOfNamedOwner(options, ownerId)),
  ];
  const ids = [borrowerId, ownerId].filter(id => id !== '');
  return planOf(options, { ids, locks, workflow, ...ENDING });
}

async function lend(options: DiskServiceOptions, request: LendDiskRequest): Promise<OperationPlan> {
  const { workflows } = options;
  const { borrowerId, borrowerNodeId, allowNetworkLayers } = request;
  requireIds(request);
  requireUuid('borrower_id', borrowerId);
  requireUuid('borrower_node_id', borrowerNodeId);
  const { owner, disk, thinClone, warnings } = await choose(options, request);
  const loan = {
    ownerId: owner.id,
    diskId: disk.id,
    borrowerId,
    borrowerNodeId,
    thinClone,
    allowNetworkLayers,
    warnings,
  };
  const locks = () => ownerLocks(options, owner);
  const workflow = lendDiskWorkflow(workflows, loan);
  const ids = [owner.id];
  const mayBeCopies = owner.template ? ids : [];
  return planOf(options, { ids, locks, workflow, mayBeCopies, cancellable: true });
}

async function giveBack(options: DiskServiceOptions, request: ReturnDiskRequest): Promise<OperationPlan> {
  const { workflows } = options;
  const { ownerId, diskId, borrowerId, mark } = request;
  requireUuid('owner_id', ownerId);
  requireUuid('disk_id', diskId);
  requireUuid('borrower_id', borrowerId);
  const owner = await freshDomain(options, ownerId);
  const workflow = returnDiskWorkflow(workflows, { ownerId, diskId, borrowerId, mark });
  const locks = () => ownerLocks(options, owner);
  return planOf(options, { ids: [ownerId], locks, workflow, ...ENDING });
}

function requireIds(request: { diskId: string; thinCloneId: string; domainId?: string }): void {
  if (request.domainId !== undefined) requireUuid('domain_id', request.domainId);
  requireUuid('disk_id', request.diskId);
  if (request.thinCloneId !== '') requireUuid('thin_clone_id', request.thinCloneId);
}

/** The disk that is meant. Its owner is looked at now: it may have changed a moment ago. */
async function choose(
  { inventory, workflows }: DiskServiceOptions,
  request: { diskId: string; thinCloneId: string },
) {
  await inventory.complete();
  const path = inventory
    .domains()
    .flatMap(({ disks }) => disks)
    .find(({ id }) => id === request.diskId)?.path;
  const isOnZfs = path !== undefined && (await workflows.zfs.datasetOf(path)) !== null;
  const chosen = diskToLend(inventory.domains(), request, isOnZfs);
  await inventory.refreshDomain(chosen.owner.id);
  return diskToLend(inventory.domains(), request, isOnZfs);
}

/** @throws VirtkeepError domain_not_found, libvirt_unreachable, libvirt_failed */
async function freshDomain({ inventory }: DiskServiceOptions, id: string): Promise<Domain> {
  await inventory.refreshDomain(id);
  return inventory.domain(id);
}

/** A running owner may be shut down meanwhile; one that is off must not start while its state is made or merged. */
async function ownerLocks(
  { workflows }: DiskServiceOptions,
  owner: Pick<Domain, 'id' | 'template'>,
): Promise<Lock[]> {
  const isActive = await isDomainActive(workflows.libvirt, owner.id);
  return domainLocks(owner.id, isActive || owner.template ? ['domain'] : ['domain', 'power']);
}

/** Of an owner that the loan names: it may be here although the inventory has not seen it, or be on another node. */
async function locksOfNamedOwner(options: DiskServiceOptions, id: string): Promise<Lock[]> {
  const template = options.inventory.domains().some(domain => domain.id === id && domain.template);
  try {
    return await ownerLocks(options, { id, template });
  } catch (error) {
    if (!hasKey(error, 'domain_not_found')) throw error;
    // should it come meanwhile, it is not started or changed while its state is merged; several of its disks may be given back at a time
    return domainLocks(id, ['domain', 'power'], 'shared');
  }
}

/** Ends a loan, which takes nothing away that a VM uses. */
const ENDING = { mayBeCopies: 'all', cancellable: false } as const;

interface DiskPlan extends Pick<OperationPlan, 'mayBeCopies' | 'workflow' | 'cancellable'> {
  ids: string[];
  locks: () => Promise<Lock[]>;
}

async function planOf(
  { runner }: DiskServiceOptions,
  { ids, locks, ...plan }: DiskPlan,
): Promise<OperationPlan> {
  await letBackgroundEnd(runner, await locks());
  // asked again: the wait may have been long enough for the owner to stop or start
  return { ...plan, entities: domainEntities(...ids), locks: await locks(), heavy: false };
}

/** Background work holds domains only for a moment: a request waits for its end instead of failing because they are busy. */
async function letBackgroundEnd(runner: OperationRunner, locks: readonly Lock[]): Promise<void> {
  const until = performance.now() + BACKGROUND_PATIENCE_MS;
  const isHeld = () =>
    locks.some(({ kind, id }) => BACKGROUND_KINDS.has(runner.holderOf(kind, id)?.kind ?? ''));
  while (isHeld() && performance.now() < until) await sleep(BACKGROUND_POLL_MS);
}
