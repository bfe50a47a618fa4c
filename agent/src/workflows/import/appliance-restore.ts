/**
 * A VM with its disks out of a foreign file, without an archive in between (specification 2.3, "restore with disks"): of an OVA, an OVF
 * descriptor with its disks beside it, an archive of Proxmox VE; or each VM of it.
 *
 * check → read → disks → (drivers →) define → start. What QEMU cannot read where it stands is unpacked once, into spare files that go at
 * the end; from there each disk becomes a qcow2 image in the pool, and each image in a drive a file beside them. Nobody vouches for such a
 * file: libvirt gets its definition through the gate for foreign XML, with no file in it but those. Each file and domain is declared before
 * it appears, so whatever stops it leaves nothing of any VM.
 */
import { join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { RestoreResult } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation_result';
import type { StartApplianceRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { diskId } from '../../disks/index.ts';
import { START_TIMEOUT_MS } from '../../libvirt/call-times.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import { BACKUPS_DIR, backupTypeOf, type PoolRecord, requireSpace } from '../../pools/index.ts';
import { chosenNetworks, requireInFile } from '../config-restore/choose-networks.ts';
import { identify } from '../config-restore/identify.ts';
import { readFacts } from '../config-restore/node-facts.ts';
import { type PlannedVm, planAppliance } from '../config-restore/plan.ts';
import { authoritiesOf } from '../config-restore/signed-by.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { defineOwnDomain } from '../domain/define-own.ts';
import { chooseIdentity } from '../domain/identity.ts';
import { requireStillTarget } from '../target-pool.ts';
import { type ConvertPlan, planConvert } from './convert.ts';
import { type PlacedImages, placeImages, writeImages } from './drive-images.ts';
import type { ForeignFile } from './foreign.ts';
import { driveDisks, type NewDisk, writeDisks } from './new-disks.ts';
import { choicesOf, openForeign } from './open-foreign.ts';
import { requireRoom } from './room.ts';
import { DRIVERS_INJECTED, requireVirtV2v } from './virt-v2v.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const APPLIANCE_RESTORE_STEPS = ['check', 'read', 'disks', 'define', 'start'] as const;

/** What holds VMs with their disks that need no archive in between. */
const APPLIANCES: readonly string[] = ['OVA', 'OVF', 'vma'];

/** As `planConvert`, of fewer types of files. @throws VirtkeepError file_not_convertible, pool_not_found, and the refusals of pools */
export function planApplianceRestore(...asked: Parameters<typeof planConvert>): ConvertPlan {
  const plan = planConvert(...asked);
  const { filename } = plan.source;
  const type = backupTypeOf(filename) ?? 'unknown';
  if (!APPLIANCES.includes(type)) throw new VirtkeepError('file_not_convertible', { file: filename, type });
  return plan;
}

/** A VM that is to come, decided before anything is made. */
interface ComingVm {
  foreign: ForeignFile;
  domainId: string;
  planned: PlannedVm;
  /** The same with these images in its drives. */
  planWith(drivePaths: PlacedImages['paths']): PlannedVm;
  /** Paths of the images that came along. */
  images: string[];
  /** What was told when drivers were put into it. */
  driverWarnings: string[];
}

interface Restoring {
  dependencies: WorkflowDependencies;
  request: StartApplianceRestoreRequest;
  target: PoolRecord;
  source: ConvertPlan['source'];
  /** What is to be closed whatever happens. */
  opened: ForeignFile[];
}

/** The workflow: new domains; a failure or a cancel leaves nothing of any. Result: as `RestoreService.StartAppliance` tells. */
export function applianceRestoreWorkflow(
  dependencies: WorkflowDependencies,
  request: StartApplianceRestoreRequest,
  { source, target }: ConvertPlan,
): Workflow {
  return async context => {
    const opened: ForeignFile[] = [];
    try {
      await run({ dependencies, request, source, target, opened }, context);
    } catch (error) {
      throwIfAborted(context.signal);
      throw fromLibvirt(error, 'appliance_restore');
    } finally {
      // one that cannot be closed keeps no other open
      await Promise.allSettled(opened.map(foreign => foreign.close()));
    }
  };
}

async function run(restoring: Restoring, context: OperationContext): Promise<void> {
  const { dependencies, request, target } = restoring;
  const coming = await context.step('check', () => check(restoring, context));
  const { vms, disks, images } = await context.step('read', () => readAll(coming, target, context));
  await context.step('disks', async () => {
    await writeDisks(context, disks);
    for (const placed of images) await writeImages(context, placed);
    for (const { foreign } of vms) await foreign.requireSame();
  });
  if (request.injectDrivers) await context.step('drivers', () => driveAll(restoring, vms, context));
  const domains = await context.step('define', () => define(restoring, vms, context));
  await context.step('start', async () => {
    if (!request.startOn) return;
    for (const { domainId } of domains) {
      throwIfAborted(context.signal);
      await dependencies.libvirt().domain(domainId).create(0, { timeoutMs: START_TIMEOUT_MS });
    }
  });
  context.commit({ $case: 'applianceRestore', value: { domains } });
}

/** Everything that is decided before anything is made. */
async function check(restoring: Restoring, context: OperationContext): Promise<ComingVm[]> {
  const { dependencies, request, source, target, opened } = restoring;
  const { signal } = context;
  await requireStillTarget(dependencies, target, signal);
  if (request.injectDrivers) await requireVirtV2v();
  const authorities = await authoritiesOf(dependencies);
  for (const { system, configuration } of request.all ? await choicesOf(source, request, signal) : [request])
    opened.push(
      await openForeign(
        source,
        { system, configuration, state: '', excludeIso: request.excludeIso, authorities },
        context,
      ),
    );
  const facts = await readFacts(dependencies.libvirt());
  const networks = chosenNetworks(request.networks, facts, dependencies.nodeName);
  const vms = opened.map((foreign, index): ComingVm => {
    const paths = foreign.appliance.disks.map(() => join(target.path!, `${newId()}.qcow2`));
    const choice = { networks, virtio: request.virtio, hasDrivers: request.injectDrivers };
    const planWith = (drivePaths: PlacedImages['paths']) =>
      planAppliance(foreign.appliance, choice, facts, {
        pathOf: disk => paths[disk]!,
        drivePathOf: drive => drivePaths[drive],
      });
    const domainId = index === 0 ? request.domainId : newId();
    return { foreign, planned: planWith([]), planWith, images: [], domainId, driverWarnings: [] };
  });
  const names = vms.flatMap(({ planned }) => planned.networks);
  requireInFile(request.networks, names, source.filename);
  await requireFreeIdentities(dependencies, request, vms);
  const bytes = opened.map(({ dataBytes, spareBytes }) => dataBytes + spareBytes);
  await requireSpace(
    target,
    bytes.reduce((sum, one) => sum + one, 0),
  );
  return vms;
}

/** They are chosen when the domains are defined; what would fail then fails before the disks are written. */
async function requireFreeIdentities(
  dependencies: WorkflowDependencies,
  { name }: StartApplianceRestoreRequest,
  vms: readonly ComingVm[],
): Promise<void> {
  for (const { domainId, planned } of vms)
    await chooseIdentity(dependencies, { domainId, name, keepIdentity: false }, planned.config);
}

/** @returns the VMs with what is in their drives, and what is to be written of all of them */
async function readAll(
  coming: readonly ComingVm[],
  target: PoolRecord,
  context: OperationContext,
): Promise<{ vms: ComingVm[]; disks: NewDisk[]; images: PlacedImages['images'][] }> {
  const vms: ComingVm[] = [];
  const disks: NewDisk[] = [];
  const images: PlacedImages['images'][] = [];
  const directory = join(target.path!, BACKUPS_DIR);
  for (const vm of coming) {
    const contents = await vm.foreign.readDisks(context, directory);
    const placed = placeImages((await vm.foreign.readImages?.(context, directory)) ?? [], target);
    const planned = vm.planWith(placed.paths);
    vms.push({ ...vm, planned, images: [...placed.images.keys()] });
    disks.push(...planned.brought.map(({ index, path }) => ({ ...contents[index]!, path })));
    images.push(placed.images);
  }
  const written = disks.map(({ content }) => content);
  await requireRoom(target, written, false, context.signal);
  return { vms, disks, images };
}

/** One VM after another: each has a machine of libguestfs's to itself. */
async function driveAll(
  { dependencies: { forceTcg } }: Restoring,
  vms: readonly ComingVm[],
  context: OperationContext,
): Promise<void> {
  for (const { foreign, planned, driverWarnings } of vms) {
    const { name } = foreign.appliance;
    const paths = planned.brought.map(({ path }) => path);
    const warnings = await driveDisks(context, { name, paths }, { forceTcg });
    driverWarnings.push(DRIVERS_INJECTED, ...warnings);
  }
}

/** One after another: a name and addresses that one of them has are taken for the next. */
async function define(
  { dependencies, request, target }: Restoring,
  vms: readonly ComingVm[],
  context: OperationContext,
): Promise<RestoreResult[]> {
  const domains: RestoreResult[] = [];
  for (const { foreign, planned, images, domainId, driverWarnings } of vms) {
    throwIfAborted(context.signal);
    const { name, keepMacs } = request;
    const asked = { domainId, name, keepMacs };
    const { identity, xml, warnings: told } = await identify(dependencies, asked, planned, context.signal);
    const warnings = [...foreign.warnings, ...told, ...driverWarnings];
    for (const text of warnings) context.warn(vms.length > 1 ? `${identity.name}: ${text}` : text);
    const files = planned.brought.map(({ path }) => path);
    await defineOwnDomain(dependencies, context, { domainId, files }, xml);
    const disks = planned.brought.map(({ path, targetDev }) => ({
      ...{ id: diskId(path, target), path, poolId: target.id, targetDev },
    }));
    const made = { domainId, name: identity.name, disks, images: { paths: images }, warnings };
    domains.push({ ...made, poolChanged: false, driversInjected: request.injectDrivers || undefined });
  }
  return domains;
}
