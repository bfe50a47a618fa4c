/**
 * A disk image of a pool becomes a disk: of a new VM, or a further one of a VM that is there.
 *
 * check → convert → define, or attach. The image becomes a qcow2 of its own under a new name; the file stays. Nothing is believed of it but
 * what it proves (`image-file.ts`). The file, the domain and the attachment are declared before they appear, so after a failure, a cancel or a crash
 * nothing of them is left. A VM that runs gets its disk at once, and others may start and stop it until then: only its disks are held.
 */
import { join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ImportDiskRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { diskId as idOfFile, markSources } from '../../disks/index.ts';
import { applyNvram, childrenAt, parseXml, refuseWhileLent, serializeXml } from '../../domain-xml/index.ts';
import { fromDomain } from '../../libvirt/domains.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import { backupTargetRefusal, backupTypeOf, type PoolRecord, requireSpace } from '../../pools/index.ts';
import type { FoundFile } from '../archives/find-file.ts';
import { chosenNetworks } from '../config-restore/choose-networks.ts';
import { readFacts } from '../config-restore/node-facts.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { defineOwnDomain } from '../domain/define-own.ts';
import { kindOf, requireLasting } from '../domain/domain-kind.ts';
import { requireFreeName } from '../domain/identity.ts';
import { refuseLeftMemory } from '../domain/left-memory.ts';
import { refuseWithClones } from '../family/family.ts';
import { freeVariables } from '../firmware/named-variables.ts';
import type { Party } from '../lend/lender.ts';
import { requireParty } from '../lend/parties.ts';
import { makeNewFile } from '../new-file.ts';
import { requireStillTarget } from '../target-pool.ts';
import { attachOwnDisk } from './attach.ts';
import { copyImageInto, measureCopy } from './copy.ts';
import { type ForeignImage, openImage, requireFormat } from './image-file.ts';
import { checkNewDomain, newDomainOf, type PlannedDomain } from './new-domain.ts';
import { type DiskBus, nextTarget, requireBus } from './own-disk.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const IMPORT_NEW_STEPS = ['check', 'convert', 'define'] as const;
export const IMPORT_FURTHER_STEPS = ['check', 'convert', 'attach'] as const;

const ACTION = 'given a further disk';

export interface ImportPlan {
  source: FoundFile;
  target: PoolRecord;
  /** Path of the disk that is made. */
  path: string;
}

/**
 * What is to be imported, and where to; looks at nothing but the request, the pools and the name.
 * @throws VirtkeepError file_not_disk_image, pool_not_found, missing_field, invalid_field, and the refusals of pools
 */
export function planImportDisk(
  request: ImportDiskRequest,
  source: FoundFile,
  pools: PoolRecord[],
  nodeName: string,
): ImportPlan {
  const type = backupTypeOf(source.filename) ?? 'unknown';
  if (type !== 'disk') throw new VirtkeepError('file_not_disk_image', { file: source.filename, type });
  requireFormat(request.format);
  requireBus(request.targetBus);
  if (request.newDomain) checkNewDomain(request.newDomain);
  const target = request.poolId === '' ? source.pool : pools.find(({ id }) => id === request.poolId);
  if (!target) throw new VirtkeepError('pool_not_found', { id: request.poolId });
  const refusal = backupTargetRefusal(target, nodeName);
  if (refusal) throw refusal;
  return { source, target, path: join(target.path!, `${newId()}.qcow2`) };
}

/** The workflow. Result: as `RestoreService.ImportDisk` tells. */
export function importDiskWorkflow(
  dependencies: WorkflowDependencies,
  request: ImportDiskRequest,
  plan: ImportPlan,
): Workflow {
  const run = request.newDomain ? importAsNew : importAsFurther;
  return async context => {
    const held: { image?: ForeignImage } = {};
    try {
      await run(dependencies, request, { ...plan, held }, context);
    } catch (error) {
      throwIfAborted(context.signal);
      throw request.newDomain
        ? fromLibvirt(error, 'import_disk')
        : fromDomain(error, request.domainId, 'import_disk');
    } finally {
      await held.image?.close();
    }
  };
}

type OpenPlan = ImportPlan & { held: { image?: ForeignImage } };

async function importAsNew(
  dependencies: WorkflowDependencies,
  request: ImportDiskRequest,
  plan: OpenPlan,
  context: OperationContext,
): Promise<void> {
  const { path } = plan;
  const { domainId } = request;
  const planned = await context.step('check', async () => {
    const vm = await planDomain(dependencies, request, path);
    await open(dependencies, request, plan, context);
    return vm;
  });
  for (const text of planned.warnings) context.warn(text);
  await context.step('convert', () => convert(plan, context));
  const { targetDev, warnings } = planned;
  const name = await context.step('define', async () => {
    const free = requireFreeName(await dependencies.libvirt().domains(), request.newDomain!.name);
    await defineOwnDomain(dependencies, context, { domainId, files: [path] }, planned.xml);
    return free;
  });
  finish(context, { ...plan, domainId, name, targetDev, warnings });
}

async function importAsFurther(
  dependencies: WorkflowDependencies,
  request: ImportDiskRequest,
  plan: OpenPlan,
  context: OperationContext,
): Promise<void> {
  const { domainId } = request;
  const { path } = plan;
  const bus = requireBus(request.targetBus);
  const warnings = await context.step('check', async () => {
    const party = await requireTaker(dependencies, domainId);
    await targetOf(party, bus);
    await open(dependencies, request, plan, context);
    return warningsOf(party);
  });
  for (const text of warnings) context.warn(text);
  await context.step('convert', () => convert(plan, context));
  const taken = await context.step('attach', async () => {
    // it may have become another one's copy, or have been changed by others, in all that time
    await context.hold.renew();
    const party = await requireTaker(dependencies, domainId);
    const targetDev = await targetOf(party, bus);
    const [mark] = await markSources([path]);
    context.effects.begin(
      { type: 'attached_disk', domainId, path, targetDev, bus, mark: mark!.mark },
      'failure',
    );
    await attachOwnDisk(dependencies, domainId, { path, targetDev, bus });
    return { name: party.name, targetDev };
  });
  finish(context, { ...plan, ...taken, domainId, warnings });
}

/** @throws VirtkeepError network_not_found, name_in_use, invalid_name, file_exists */
async function planDomain(
  dependencies: WorkflowDependencies,
  { domainId: uuid, newDomain, targetBus }: ImportDiskRequest,
  path: string,
): Promise<PlannedDomain> {
  const domain = newDomain!;
  const { network } = domain;
  const libvirt = dependencies.libvirt();
  const name = requireFreeName(await libvirt.domains(), domain.name);
  await refuseLeftMemory(dependencies, name);
  const facts = await readFacts(libvirt);
  const chosen = network === '' ? {} : chosenNetworks({ network }, facts, dependencies.nodeName);
  const planned = newDomainOf(domain, {
    ...{ uuid, path, bus: requireBus(targetBus), hasKvm: facts.hasKvm },
    network: chosen.network ?? null,
  });
  const variables =
    domain.firmware === 'uefi' ? await freeVariables(dependencies.nvramDirectory, { uuid, name }) : null;
  if (variables === null) return planned;
  const { root } = parseXml(planned.xml, 'domain', name);
  applyNvram(root, variables);
  return { ...planned, xml: serializeXml(root) };
}

/**
 * The domain, if it may get a disk now.
 * @throws VirtkeepError domain_not_found, domain_transient, domain_memory_saved, vdisk_attached_elsewhere, template_has_clones
 */
async function requireTaker(dependencies: WorkflowDependencies, domainId: string): Promise<Party> {
  const party = await requireParty(dependencies, domainId);
  const { domain, name, metadata } = party;
  requireLasting(await kindOf(domain), ACTION);
  refuseWhileLent(metadata, name, ACTION);
  await refuseWithClones(dependencies.libvirt(), { uuid: domainId, name, metadata }, ACTION);
  return party;
}

async function targetOf(party: Party, bus: DiskBus): Promise<string> {
  const { root } = parseXml(await party.domain.xml(), 'domain', party.name);
  const hasScsi = childrenAt(root, 'devices/controller').some(one => one.getAttribute('type') === 'scsi');
  return nextTarget(bus, party, hasScsi);
}

async function warningsOf({ domain, name }: Party): Promise<string[]> {
  if ((await domain.snapshots()).length === 0) return [];
  return [
    `The saved states of ${name} do not have the disk: a revert to one takes it off the VM. Its file stays then.`,
  ];
}

async function open(
  dependencies: WorkflowDependencies,
  request: ImportDiskRequest,
  { source, target, held }: OpenPlan,
  context: OperationContext,
): Promise<void> {
  await requireStillTarget(dependencies, target, context.signal);
  held.image = await openImage(source.path, requireFormat(request.format), context.signal);
  for (const text of held.image.warnings) context.warn(text);
  await requireSpace(target, await measureCopy(held.image.blockdev, context.signal));
}

async function convert({ path, held }: OpenPlan, context: OperationContext): Promise<void> {
  const { progress, signal } = context;
  const { blockdev, virtualSizeBytes, requireSame } = held.image!;
  progress.total(virtualSizeBytes);
  await makeNewFile(context, path, true);
  await copyImageInto(path, blockdev, signal, share => progress.done(Math.round(share * virtualSizeBytes)));
  await requireSame();
}

function finish(
  context: OperationContext,
  {
    domainId,
    name,
    target,
    path,
    targetDev,
    warnings,
  }: ImportPlan & { domainId: string; name: string; targetDev: string; warnings: string[] },
): void {
  const disk = { id: idOfFile(path, target), path, poolId: target.id, targetDev };
  context.commit({ $case: 'importDisk', value: { domainId, name, disk, warnings } });
}
