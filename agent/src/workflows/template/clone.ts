/**
 * Cloning of a domain that is off: a full clone has images of its own, a thin one empty overlays on its template's
 * (specification 2.1 rule 5, 4.7).
 *
 * check → copy → define. Each file and the domain are declared before they appear, so after a failure, a cancel or a
 * crash nothing of the clone is left.
 */
import { type Domain, DomainXml } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { CloneDomainRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { newId } from '@virtkeep/shared/ids';
import {
  type Layer,
  markSources,
  readLayers,
  refuseChangedSources,
  type SourceMark,
} from '../../disks/index.ts';
import { type DomainConfig, type Identity, newMacs, parseDomain } from '../../domain-xml/index.ts';
import { fromLibvirt, isNoDomain } from '../../libvirt/errors.ts';
import type { PoolRecord } from '../../pools/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { defineOwnDomain } from '../domain/define-own.ts';
import { requireFreeName, suffixedName } from '../domain/identity.ts';
import { refuseLeftMemory } from '../domain/left-memory.ts';
import { resolveVolumes } from '../domain/volumes.ts';
import { firmwarePartsOf, notCopiedFirmware, readFirmware } from '../firmware/state-firmware.ts';
import { makeNewFile } from '../new-file.ts';
import { makeFirmware } from '../restore/files.ts';
import { cloneDefinition } from './clone-definition.ts';
import { type ClonedDisk, type ClonePlan, planClone } from './clone-plan.ts';
import { bytesOf, copyImage, makeOverlay } from './images.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const CLONE_STEPS = ['check', 'copy', 'define'] as const;

/** The workflow. Result: as `TemplateService.Clone` tells. */
export function cloneWorkflow(dependencies: WorkflowDependencies, request: CloneDomainRequest): Workflow {
  return context =>
    run(dependencies, request, context).catch(error => {
      throwIfAborted(context.signal);
      throw fromLibvirt(error, 'clone_domain');
    });
}

interface Checked {
  domain: Domain;
  config: DomainConfig;
  xml: string;
  identity: Identity;
  plan: ClonePlan;
  marks: SourceMark[];
}

async function run(
  dependencies: WorkflowDependencies,
  request: CloneDomainRequest,
  context: OperationContext,
): Promise<void> {
  const checked = await context.step('check', () => check(dependencies, request, context.signal));
  const { config, identity, plan } = checked;
  for (const warning of plan.warnings) context.warn(warning);
  const nvramPath = await context.step('copy', async () => {
    await makeDisks(context, plan.disks, request.thin);
    return makeFirmware(context, dependencies, identity, await firmwareOf(dependencies, config));
  });
  await context.step('define', async () => {
    await refuseChanged(checked);
    const { uuid: id, metadata } = config;
    const parent = request.thin ? { id, version: metadata.templateVersion } : null;
    const own = { ...identity, description: request.description, parent, nvramPath };
    const created = { domainId: identity.uuid, files: plan.disks.map(({ path }) => path) };
    await defineOwnDomain(dependencies, context, created, cloneDefinition(checked.xml, plan, own));
  });
  const { uuid: domainId, name } = identity;
  const disks = plan.disks.map(({ id, path, pool, targetDev }) => ({ id, path, poolId: pool.id, targetDev }));
  context.commit({ $case: 'cloneDomain', value: { domainId, name, disks, warnings: plan.warnings } });
}

async function check(
  dependencies: WorkflowDependencies,
  request: CloneDomainRequest,
  signal: AbortSignal,
): Promise<Checked> {
  const libvirt = dependencies.libvirt();
  const domain = await libvirt.domainByUuid(request.domainId).catch(error => {
    throw isNoDomain(error) ? new VirtkeepError('domain_not_found', { id: request.domainId }) : error;
  });
  const xml = await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
  const parsed = parseDomain(xml, domain.name);
  const config = { ...parsed, disks: await resolveVolumes(libvirt, parsed.disks) };
  await refuseRunning(domain);
  if (request.thin) await checkTemplate(domain, config);
  const identity = await identityOf(dependencies, request, config);
  const pools = await dependencies.pools(signal);
  const layers = await layersOf(config);
  const chosen = chosenPool(pools, request.poolId);
  const plan = planClone(config, { thin: request.thin, pools, chosen, layers, newId });
  const notCopied = notCopiedFirmware(config);
  if (notCopied !== null) plan.warnings.push(notCopied);
  if (await domain.hasManagedSave())
    plan.warnings.push('The saved memory is not cloned; the clone starts as after a power cut.');
  const files = plan.disks.flatMap(disk => disk.layers.map(({ path }) => path));
  return { domain, config, xml, identity, plan, marks: await markSources(files) };
}

/** @throws VirtkeepError power_state_conflict */
async function refuseRunning(domain: Domain): Promise<void> {
  if (!(await domain.isActive())) return;
  throw new VirtkeepError('power_state_conflict', {
    domain: domain.name,
    state: 'running',
    action: 'cloned',
  });
}

/**
 * What a thin clone stands on must stay as it is: with saved states it would be merged into.
 * @throws VirtkeepError not_template, clone_refused
 */
async function checkTemplate(domain: Domain, { name, metadata }: DomainConfig): Promise<void> {
  if (!metadata.template) throw new VirtkeepError('not_template', { domain: name });
  // of what is merged only a file above is left, which no disk has
  const merging = metadata.looseLayers?.some(({ stage }) => stage !== 'merged') ?? false;
  if (merging || (await domain.snapshots()).length > 0)
    throw new VirtkeepError('clone_refused', {
      domain: name,
      reason: merging
        ? 'a deleted saved state is not merged yet'
        : 'it has saved states; delete them before thin clones stand on it',
    });
}

async function identityOf(
  dependencies: WorkflowDependencies,
  { newDomainId: uuid, name }: CloneDomainRequest,
  { name: oldName, interfaces }: DomainConfig,
): Promise<Identity> {
  const { libvirt, nodeName } = dependencies;
  const domains = await libvirt().domains();
  const taken = domains.find(domain => domain.uuid === uuid);
  if (taken) throw new VirtkeepError('identity_in_use', { domain: taken.name, node: nodeName });
  const chosen = name === '' ? suffixedName(domains, oldName, 'clone') : requireFreeName(domains, name);
  await refuseLeftMemory(dependencies, chosen);
  return {
    uuid,
    name: chosen,
    macs: newMacs(interfaces.map(({ mac }) => mac)),
  };
}

function chosenPool(pools: readonly PoolRecord[], poolId: string): PoolRecord | null {
  if (poolId === '') return null;
  const pool = pools.find(({ id }) => id === poolId);
  if (!pool) throw new VirtkeepError('pool_not_found', { id: poolId });
  return pool;
}

async function layersOf({ disks }: DomainConfig): Promise<Map<string, Layer[]>> {
  const found = new Map<string, Layer[]>();
  for (const { device, type, path, targetDev, format } of disks)
    if (device === 'disk' && path !== undefined && (type === 'file' || type === 'block'))
      found.set(targetDev, await readLayers(path, format ?? 'raw'));
  return found;
}

async function makeDisks(context: OperationContext, disks: ClonedDisk[], thin: boolean): Promise<void> {
  const { progress, signal } = context;
  progress.total(thin ? disks.length : disks.reduce((sum, disk) => sum + bytesOf(disk), 0));
  let doneBytes = 0;
  for (const disk of disks) {
    await makeNewFile(context, disk.path, true);
    if (thin) {
      await makeOverlay(disk.path, disk.source, disk.virtualSize, signal);
      doneBytes += 1;
    } else {
      const bytes = bytesOf(disk);
      await copyImage({ ...disk.source, layers: disk.layers }, disk, signal, share =>
        progress.done(doneBytes + Math.round(share * bytes)),
      );
      doneBytes += bytes;
    }
    progress.done(doneBytes);
  }
}

/** What the original has not made yet, since it was never started, the clone makes itself. */
async function firmwareOf(dependencies: WorkflowDependencies, config: DomainConfig) {
  const { nvram, tpm } = await readFirmware(dependencies, firmwarePartsOf(dependencies, config));
  return { nvram: nvram ?? null, tpm: tpm ?? null };
}

/** Refuses when somebody has started the original meanwhile, or written to its files: the clone would be inconsistent. */
async function refuseChanged({ domain, marks }: Checked): Promise<void> {
  await refuseRunning(domain);
  await refuseChangedSources(domain.name, marks, 'cloned while its disks change; start the clone again');
}
