/** Everything about a VM that a backup decides on, read once at its start. */
import { stat } from 'node:fs/promises';
import { type Domain, DomainStateCode, DomainXml } from '@virtkeep/node-libvirt';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import type { Manifest } from '../../archive/index.ts';
import { dependenceOf, diskId, readLayers } from '../../disks/index.ts';
import { type DomainConfig, isLent, parseDomain, stripRuntime } from '../../domain-xml/index.ts';
import { isNoDomain } from '../../libvirt/errors.ts';
import { backupSourceRefusal, type PoolRecord, poolOfPath } from '../../pools/index.ts';
import {
  buildChain,
  type ChainFile,
  diskStates,
  keptOf,
  loadStates,
  presentBranch,
  readDiskFiles,
  type SavedState,
} from '../../snapshots/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { kindOf, refuseUncopyable, requireLasting } from '../domain/domain-kind.ts';
import { refuseFullChain } from '../domain/full-chain.ts';
import { refuseLent } from '../domain/refuse-lent.ts';
import { resolveVolumes } from '../domain/volumes.ts';
import type { OwnChain } from './members.ts';
import { type ContentOptions, type ContentPlan, planContent } from './plan.ts';

export type Power = 'off' | 'running' | 'paused';

export interface BackupFacts {
  domain: Domain;
  power: Power;
  /** It is off, and goes on from its memory at its next start. */
  memorySaved: boolean;
  /** False: libvirt forgets it when it stops. */
  persistent: boolean;
  config: DomainConfig;
  /** The definition that goes into the archive. */
  xml: string;
  content: ContentPlan;
  states: SavedState[];
  /** Own layers per target of the disks to be copied. */
  chains: Map<string, OwnChain>;
  template: Manifest['template'];
  warnings: string[];
}

/**
 * @throws VirtkeepError domain_not_found; domain_transient, domain_memory_saved; the refusals of the specification's section 8; power_state_conflict while
 *   the VM shuts down; domain_in_service while a block job runs; vdisk_attached_elsewhere when a state would be needed; snapshot_in_use when one
 *   would stay and a disk has as many layers as it may
 */
export async function readFacts(
  dependencies: WorkflowDependencies,
  domainId: string,
  options: ContentOptions & {
    /** A saved state is going to stay, so that the backup can be extended. */
    incremental: boolean;
  },
  pools: PoolRecord[],
): Promise<BackupFacts> {
  const domain = await findDomain(dependencies, domainId);
  const power = await powerOf(domain);
  const kind = await kindOf(domain);
  if (options.incremental) requireLasting(kind, 'backed up with a saved state that stays');
  const warnings: string[] = [];
  if (!kind.persistent)
    warnings.push(
      'The VM is transient: should it stop during its backup, the backup ends, and what it wrote since is put back into its disks.',
    );
  if (kind.memorySaved)
    warnings.push(
      'The memory of the VM is saved (managed save) and not in the backup; its disks are as after a power cut.',
    );
  const xml = await definitionOf(domain, power, warnings);
  const parsed = parseDomain(xml, domain.name);
  const config = { ...parsed, disks: await resolveVolumes(dependencies.libvirt(), parsed.disks) };
  // what is lent stays at its instant: no state may be made or merged (specification 3.1)
  if (power !== 'off' || options.incremental)
    await refuseLent(
      dependencies.libvirt(),
      config.metadata,
      config.name,
      'backed up with a new saved state',
    );
  if (power !== 'off') await refuseBlockJobs(domain);
  const all = await loadStates(domain);
  const { present: states, left } = presentBranch(all);
  if (left.length > 0)
    warnings.push(
      `Not in the backup, because the VM was reverted and left their branch: ${left.join(', ')}.`,
    );
  const template = await readTemplate(dependencies, config);
  const files = await readAllFiles(config);
  const split = new Map([...files].map(([target, chain]) => [target, splitOwn(chain, template, config)]));
  const poolOf = (path: string) => poolOfPath(path, pools) ?? null;
  const content = planContent(config, options, {
    poolOf,
    diskIdOf: (path, pool) => diskId(path, pool ?? undefined),
    firstLayerOf: (target, path) => split.get(target)?.own.at(-1)?.path ?? path,
    imageFaults: await imageFaults(config),
  });
  const refusal = backupSourceRefusal(
    {
      domain: config.name,
      running: power !== 'off',
      hasStates: all.length > 0,
      incremental: options.incremental,
      datasets: await datasetsOf(dependencies, content),
      mdevs: config.hostdevs.filter(device => device.type === 'mdev').map(device => device.address ?? ''),
      disks: content.disks.map(disk => disk.config),
    },
    pools,
  );
  if (refusal) throw refusal;
  for (const { config: disk, writable } of content.disks) {
    const layers = files.get(disk.targetDev) ?? [];
    const frozen = writable && (power !== 'off' || options.incremental);
    refuseUncopyable(config.name, { ...disk, layers }, frozen);
    if (writable && options.incremental) refuseFullChain(config.name, [{ ...disk, layers }]);
  }
  const chains = await withTimes(
    content,
    chainsOf(config, content, {
      files,
      split,
      template,
      states,
      detached: await detachedFiles(files, states),
    }),
  );
  return {
    domain,
    power,
    memorySaved: kind.memorySaved,
    persistent: kind.persistent,
    config,
    xml,
    content,
    states,
    chains,
    template: template && { domainId: template.id, name: template.name, version: template.version },
    warnings: [...warnings, ...content.warnings],
  };
}

async function findDomain(dependencies: WorkflowDependencies, domainId: string): Promise<Domain> {
  try {
    return await dependencies.libvirt().domainByUuid(domainId);
  } catch (error) {
    if (isNoDomain(error)) throw new VirtkeepError('domain_not_found', { id: domainId });
    throw error;
  }
}

async function powerOf(domain: Domain): Promise<Power> {
  const { state } = await domain.state();
  if (state === DomainStateCode.SHUTOFF || state === DomainStateCode.CRASHED) return 'off';
  if (state === DomainStateCode.PAUSED || state === DomainStateCode.PMSUSPENDED) return 'paused';
  if (state === DomainStateCode.SHUTDOWN)
    throw new VirtkeepError('power_state_conflict', {
      domain: domain.name,
      state: 'shutting down',
      action: 'backed up until it is off',
    });
  return 'running';
}

/**
 * The definition to keep: the persistent one, which is what the next start would use; the running one when the VM is
 * transient or its disks differ (one was plugged in for this run only), since its data would be lost otherwise.
 */
async function definitionOf(domain: Domain, power: Power, warnings: string[]): Promise<string> {
  if (power === 'off') return domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
  const live = await domain.xml(DomainXml.SECURE);
  if (await domain.isPersistent()) {
    const inactive = await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
    if (disksOf(inactive) === disksOf(live)) return inactive;
    warnings.push(
      'The disks of the running VM differ from its definition; the running configuration was backed up.',
    );
  }
  return stripRuntime(live);
}

function disksOf(xml: string): string {
  const disks = parseDomain(xml).disks.filter(disk => disk.device === 'disk' || disk.device === 'lun');
  return JSON.stringify(disks.map(disk => [disk.targetDev, disk.source]).sort());
}

async function refuseBlockJobs(domain: Domain): Promise<void> {
  for (const [target, disk] of diskStates(await domain.xml())) {
    if (disk.mirror)
      throw new VirtkeepError('domain_in_service', {
        domain: domain.name,
        job: `${disk.mirror.job} of ${target}`,
      });
  }
}

interface Template {
  id: string;
  name: string | null;
  version: string;
  /** Files of its disks by path, with the disk's id; null when it is not on this node. */
  files: Map<string, string> | null;
}

async function readTemplate(
  dependencies: WorkflowDependencies,
  config: DomainConfig,
): Promise<Template | null> {
  const { parent } = config.metadata;
  if (!parent) return null;
  try {
    const domain = await dependencies.libvirt().domainByUuid(parent.id);
    const template = parseDomain(await domain.xml(DomainXml.INACTIVE));
    const files = new Map<string, string>();
    for (const { device, path, format } of template.disks) {
      if (device !== 'disk' || path === undefined) continue;
      // somebody may have put an overlay on what the clone stands on
      const layers = await readLayers(path, format ?? 'raw').catch(() => [{ path }]);
      for (const layer of layers) files.set(layer.path, diskId(layer.path));
    }
    return { id: parent.id, name: template.name, version: String(parent.version), files };
  } catch (error) {
    if (!isNoDomain(error)) throw error;
    return { id: parent.id, name: null, version: String(parent.version), files: null };
  }
}

async function readAllFiles(config: DomainConfig): Promise<Map<string, ChainFile[]>> {
  const found = new Map<string, ChainFile[]>();
  for (const disk of config.disks) {
    const format = disk.format ?? 'raw';
    const readable =
      (disk.type === 'file' || disk.type === 'block') && (format === 'qcow2' || format === 'raw');
    if (disk.device !== 'disk' || isLent(disk, config.metadata)) continue;
    if (!readable || disk.path === undefined) continue;
    found.set(disk.targetDev, await readDiskFiles(config.name, disk.path, format));
  }
  return found;
}

/** By target why the qcow2 image in a drive is not whole: its file is all that goes into an archive. */
async function imageFaults({ disks }: DomainConfig): Promise<Map<string, string>> {
  const faults = new Map<string, string>();
  for (const { device, type, format, path, targetDev } of disks) {
    const isDrive = device === 'cdrom' || device === 'floppy';
    if (!isDrive || type !== 'file' || format !== 'qcow2' || path === undefined) continue;
    const fault = await dependenceOf(path);
    if (fault !== undefined) faults.set(targetDev, fault);
  }
  return faults;
}

/** A thin clone's own files end where its template's begin; when the template is gone that is the bottom file. */
function splitOwn(files: ChainFile[], template: Template | null, config: DomainConfig) {
  if (!template) return { own: files, base: null };
  const cut = template.files
    ? files.findIndex(file => template.files!.has(file.path))
    : files.length > 1
      ? files.length - 1
      : -1;
  if (cut < 0) return { own: files, base: null };
  if (cut === 0)
    throw new VirtkeepError('snapshot_chain_unsupported', {
      domain: config.name,
      reason: `it writes to its template's file ${files[0]!.path}`,
    });
  const { path, format } = files[cut]!;
  return {
    own: files.slice(0, cut),
    base: { path, format, diskId: template.files?.get(path) ?? diskId(path) },
  };
}

/**
 * What states keep of disks that the VM has no more: neither these files nor any below them are below an active one. A
 * file that stands on one of the VM's is on a branch that it left, and is not meant.
 */
async function detachedFiles(
  files: ReadonlyMap<string, ChainFile[]>,
  states: SavedState[],
): Promise<Set<string>> {
  const present = new Set([...files.values()].flatMap(chain => chain.map(({ path }) => path)));
  const found = new Set<string>();
  for (const state of states) {
    for (const [target, kept] of Object.entries(keptOf(state))) {
      if (present.has(kept)) continue;
      // one that cannot be read was removed with its disk
      const below = (await exists(kept))
        ? await readLayers(kept, state.frozenFormats?.[target] ?? 'qcow2')
        : [];
      if (!below.some(({ path }) => present.has(path))) found.add(kept);
    }
  }
  return found;
}

interface FoundLayers {
  files: Map<string, ChainFile[]>;
  /** Those of the VM itself, and those of its template. */
  split: Map<string, ReturnType<typeof splitOwn>>;
  template: Template | null;
  states: SavedState[];
  detached: ReadonlySet<string>;
}

function chainsOf(
  config: DomainConfig,
  content: ContentPlan,
  { files, split, template, states, detached }: FoundLayers,
): Map<string, OwnChain> {
  const targets = content.disks.map(disk => disk.config.targetDev);
  const disks = targets.map(targetDev => ({ targetDev, files: files.get(targetDev)! }));
  const chain = buildChain(config.name, disks, states, detached);
  return new Map(
    chain.disks.map(({ targetDev, layers }) => {
      const { own, base } = split.get(targetDev)!;
      return [targetDev, { layers: layers.slice(layers.length - own.length), base: template ? base : null }];
    }),
  );
}

/** Layers of disks that the VM cannot write to, with their times: no saved state tells whether they are the same. */
async function withTimes(
  content: ContentPlan,
  chains: Map<string, OwnChain>,
): Promise<Map<string, OwnChain>> {
  for (const { writable, config } of content.disks) {
    if (writable) continue;
    for (const layer of chains.get(config.targetDev)!.layers) {
      const { mtime } = await stat(layer.path).catch(error => {
        throw fromIoError(error, 'reading', layer.path);
      });
      layer.modified = mtime.toISOString();
    }
  }
  return chains;
}

/** Names of the zfs datasets that hold files of the disks to be copied: a pool of libvirt may be a directory of one. */
async function datasetsOf({ zfs }: WorkflowDependencies, { disks }: ContentPlan): Promise<string[]> {
  const files = disks.filter(disk => !disk.block);
  const places = await Promise.all(files.map(({ path }) => zfs.datasetOf(path)));
  return places.filter(dataset => dataset !== null);
}
