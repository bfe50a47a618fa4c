/** Lets scripted agents lend disks as real ones do, in their inventories only: loan, saved state, attachment. */
import { randomUUID } from 'node:crypto';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type {
  AttachDiskRequest,
  DetachDiskRequest,
  DiskSource,
  LendDiskRequest,
  ReturnDiskRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { Attachment, type Disk, type Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { FakeAgent, StartedCall } from './scripted-node.ts';

export const LENT = 'vdisks_attached_to_another_domains';

/** @param held kinds of operations that are left to the test. */
export function lendHonestly(agent: FakeAgent, held: ReadonlySet<string> = new Set()): void {
  const does: Record<string, (request: never) => unknown> = {
    lend_disk: (request: LendDiskRequest) => lend(agent, request),
    attach_disk: (request: AttachDiskRequest) => attach(agent, request),
    detach_disk: (request: DetachDiskRequest) => detach(agent, request),
    return_disk: (request: ReturnDiskRequest) => giveBack(agent, request),
  };
  agent.whenStarted = call => {
    if (!held.has(call.kind) && does[call.kind]) act(agent, call, does[call.kind]!);
  };
}

/** Does now what was held. */
export function goOn(agent: FakeAgent, call: StartedCall): void {
  const before = agent.whenStarted;
  lendHonestly(agent);
  agent.whenStarted(call);
  agent.whenStarted = before;
}

function act(agent: FakeAgent, { request }: StartedCall, does: (request: never) => unknown): void {
  try {
    agent.succeed(request.operationId, does(request as never));
  } catch (error) {
    agent.fail(request.operationId, error as VirtkeepError);
  }
}

function lend(agent: FakeAgent, request: LendDiskRequest) {
  const { domain, disk } = ownerOf(agent, request.diskId, request.thinCloneId);
  const { borrowerId, borrowerNodeId } = request;
  const loan = { diskId: disk.id, borrowerId, borrowerNodeId, mark: randomUUID() };
  const snapshot = addLoan(agent, domain, loan);
  const source: DiskSource = {
    diskId: disk.id,
    ownerId: domain.id,
    attachedId: randomUUID(),
    poolId: disk.poolId,
    pathInPool: `${disk.name}.qcow2`,
    format: 'qcow2',
    thinClone: request.thinCloneId !== '',
  };
  return { source, snapshot };
}

function attach(agent: FakeAgent, request: AttachDiskRequest) {
  const borrower = agent.domains.get(request.domainId)!;
  if (borrower.attachments.some(one => one.diskId === request.diskId)) {
    const names = { disk: request.diskId, domain: borrower.name, target: 'vdb' };
    throw new VirtkeepError('vdisk_attached_already', names);
  }
  const { source } = request;
  let snapshot: unknown = null;
  let ownerId = source?.ownerId ?? '';
  let diskId = source?.diskId ?? '';
  if (!source) {
    const { domain, disk } = ownerOf(agent, request.diskId, request.thinCloneId);
    const loan = { diskId: disk.id, borrowerId: borrower.id, borrowerNodeId: '', mark: '' };
    snapshot = addLoan(agent, domain, loan);
    ownerId = domain.id;
    diskId = disk.id;
  }
  const attachment = Attachment.fromPartial({
    diskId,
    ownerId,
    attachedId: source?.attachedId ?? randomUUID(),
    targetDev: `vd${String.fromCharCode(98 + borrower.attachments.length)}`,
    path: '/pool/frozen.qcow2',
    thinClone: request.thinCloneId !== '',
  });
  const present = agent.domains.get(borrower.id)!;
  agent.setDomain({ id: borrower.id, attachments: [...present.attachments, attachment] });
  const { attachedId: id, targetDev: target_dev, path } = attachment;
  return { vdisk: diskId, owner_id: ownerId, attached: { id, target_dev, path }, snapshot, warnings: [] };
}

function detach(agent: FakeAgent, { domainId, diskId }: DetachDiskRequest) {
  const borrower = agent.domains.get(domainId)!;
  const found = borrower.attachments.find(one => one.diskId === diskId);
  if (!found) throw new VirtkeepError('vdisk_not_attached', { disk: diskId, domain: borrower.name });
  agent.setDomain({ id: domainId, attachments: borrower.attachments.filter(one => one !== found) });
  const isHere = agent.domains.has(found.ownerId);
  if (isHere) giveBack(agent, { ownerId: found.ownerId, diskId, borrowerId: domainId, mark: '' });
  return { vdisk: diskId, owner_id: found.ownerId, domain_id: domainId, owner_is_here: isHere };
}

function giveBack(
  agent: FakeAgent,
  { ownerId, diskId, borrowerId, mark }: Omit<ReturnDiskRequest, 'operationId'>,
): object {
  const owner = agent.domains.get(ownerId)!;
  const loan = owner.loans.find(one => one.diskId === diskId && one.borrowerId === borrowerId);
  if (loan && loan.mark !== mark)
    throw new VirtkeepError('loan_renewed', { disk: diskId, borrower: borrowerId });
  const loans = owner.loans.filter(one => one.diskId !== diskId || one.borrowerId !== borrowerId);
  const savedStates =
    loans.length > 0 ? owner.savedStates : owner.savedStates.filter(state => state.name !== LENT);
  agent.setDomain({ id: ownerId, loans, savedStates });
  return {};
}

function addLoan(agent: FakeAgent, owner: Domain, loan: Domain['loans'][number]) {
  const present = owner.savedStates.find(state => state.name === LENT);
  const state = present ?? agent.addState(owner.id, { name: LENT });
  const others = owner.loans.filter(one => one.diskId !== loan.diskId || one.borrowerId !== loan.borrowerId);
  agent.setDomain({ id: owner.id, loans: [...others, loan] });
  return { id: state.id, name: state.name };
}

function ownerOf(agent: FakeAgent, diskId: string, thinCloneId: string): { domain: Domain; disk: Disk } {
  for (const domain of agent.domains.values()) {
    const disk = domain.disks.find(one => one.id === diskId);
    if (disk && (thinCloneId === '' || domain.id === thinCloneId)) return { domain, disk };
  }
  throw new VirtkeepError('vdisk_not_found', { id: diskId });
}
