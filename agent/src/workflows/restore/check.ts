/** Everything a restore decides before it touches anything. */
import { access, constants, lstat } from 'node:fs/promises';
import { basename, join, normalize, relative } from 'node:path';
import { DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import type { Manifest } from '../../archive/index.ts';
import type { Claimant } from '../../claims.ts';
import { markSources, type SourceMark } from '../../disks/index.ts';
import { type DomainConfig, parseDomain, parseSnapshot } from '../../domain-xml/index.ts';
import { isNoDomain } from '../../libvirt/errors.ts';
import type { Thing } from '../../other-nodes.ts';
import { fsFacts, type PoolRecord, poolOfPath, resolveInPool } from '../../pools/index.ts';
import type { FoundFile } from '../archives/find-file.ts';
import type { OpenedBackup } from '../archives/source.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { chooseIdentity } from '../domain/identity.ts';
import { resolveVolumes } from '../domain/volumes.ts';
import { matchTemplate, provenOnly, requireMatch } from '../family/match.ts';
import { type DefinitionInput, emulatorOf } from './definition.ts';
import { type AttachableDevices, attachableDevices, type ClaimScope } from './devices.ts';
import { formerImages } from './former-image.ts';
import { screenDefinition, sourcesOf } from './gate.ts';
import { type DiskShape, filesOf, type Placement, restoredName } from './placement.ts';
import { placeBySize } from './space.ts';
import { type RestoredState, readStates } from './states.ts';

export interface RestorePlan extends DefinitionInput {
  /** Per target the template's file a thin clone's first layer stands on. */
  bases: Map<string, { path: string; format: string }>;
  /** How those files are now: they must be so when the clone is defined. */
  baseMarks: SourceMark[];
  /** The saved states that come back, parents before children. */
  states: RestoredState[];
  warnings: string[];
}

/** What is restored, and where it may go. */
export interface RestoreSource {
  pools: PoolRecord[];
  file: FoundFile;
  backup: OpenedBackup;
}

/** @throws VirtkeepError the refusals of spec 2.3, template_missing, template_mismatch, template_not_startable */
export async function checkRestore(
  dependencies: WorkflowDependencies,
  request: StartRestoreRequest,
  { pools, file, backup }: RestoreSource,
  scope: ClaimScope,
): Promise<RestorePlan> {
  const { signal } = scope;
  const { manifest, state } = backup;
  const libvirt = dependencies.libvirt();
  const judgement = dependencies.judge(backup.archive);
  const { trust } = judgement;
  const { xml, warnings: leftOut } = screenDefinition(backup.xml, trust);
  const config = parseDomain(xml, file.filename);
  if ((request.startOn || request.instant) && manifest.isTemplate)
    throw new VirtkeepError('template_not_startable', { domain: config.name });
  const identity = await chooseIdentity(dependencies, request, config);
  const claimant = { domainId: identity.uuid, domainName: identity.name };
  if (request.keepIdentity) await refuseElsewhere(dependencies, claimant, scope);
  // a thin clone's template must be here as the clone knew it
  const template = await matchTemplate(dependencies, manifest, signal);
  requireMatch(manifest, trust === 'own' ? template : provenOnly(manifest, template), file.filename);
  const chosen = chosenPool(pools, request.poolId);
  const shape = shapeOf(request);
  const saved =
    shape === 'chain' ? await readStates(backup, signal) : { states: [], files: new Map(), warnings: [] };
  const memories = [state.memoryMember, ...saved.states.map(({ record }) => record.memoryMember)];
  const placement = await placeBySize(
    backup.archive,
    {
      manifest,
      shape,
      files: saved.files,
      memoryMembers: memories.filter(member => member !== null),
      pools,
      chosen,
      backupPool: file.pool,
      existing: await existingPaths(manifest, pools, [chosen, file.pool]),
      images: await formerImages(manifest, pools, trust),
      originalFiles: await filesOfOriginal(libvirt, manifest.vm.uuid),
      keepIdentity: request.keepIdentity,
      free: await freeSpace(pools),
      newId,
    },
    signal,
  );
  await refusePathsThatLeaveTheirPool(placement);
  const { keepIdentity, luns } = request;
  const question = { config, keepIdentity, named: luns, claimant, judgement };
  const devices = await attachableDevices(dependencies, pools, question, scope);
  const missing = [...devices.warnings, ...missingDevices(config, manifest, devices)];
  const unchecked = template.faults.map(({ text }) => text);
  const warnings = [...leftOut, ...unchecked, ...placement.warnings, ...saved.warnings, ...missing];
  const emulator = emulatorOf(xml);
  const otherEmulator = emulator !== undefined && !(await isExecutable(emulator));
  if (otherEmulator) warnings.push(`The emulator ${emulator} is not on this node; its own one is used.`);
  return {
    xml,
    trust,
    config,
    manifest,
    identity,
    placement,
    nvramPath: null,
    qcow2Images: new Set(),
    attachable: sourcesOf(xml, devices.targets),
    otherEmulator,
    inPlace: request.keepIdentity,
    bases: template.bases,
    templateId: template.templateId,
    baseMarks: await markSources([...template.bases.values()].map(({ path }) => path)),
    states: saved.states,
    warnings,
  };
}

function shapeOf(request: StartRestoreRequest): DiskShape {
  if (request.instant) return 'overlay';
  return request.flatten ? 'flat' : 'chain';
}

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

function chosenPool(pools: PoolRecord[], poolId: string): PoolRecord | null {
  if (poolId === '') return null;
  const pool = pools.find(candidate => candidate.id === poolId);
  if (!pool) throw new VirtkeepError('pool_not_found', { id: poolId });
  return pool;
}

/** Paths in pools that files of the archive may get and that are taken on this node; links count, whatever they lead to. */
async function existingPaths(
  manifest: Manifest,
  pools: readonly PoolRecord[],
  targets: (PoolRecord | null)[],
): Promise<Set<string>> {
  const layers = manifest.disks.flatMap(disk => disk.layers.map(layer => layer.formerPath));
  const images = manifest.isos.map(iso => iso.formerPath);
  const names = [
    ...images.map(path => basename(path)),
    ...manifest.disks.flatMap(disk => disk.layers.map((_, index) => restoredName(disk, disk.id, index))),
  ];
  const directories = targets.flatMap(pool => pool?.path ?? []);
  const paths = [...layers, ...images, ...directories.flatMap(path => names.map(name => join(path, name)))];
  const found = new Set<string>();
  for (const path of paths) {
    if (path === null || path.includes('\0') || path !== normalize(path)) continue;
    if (poolOfPath(path, pools) && (await lstat(path).catch(() => null))) found.add(path);
  }
  return found;
}

/** Files of the VM the backup was made of, when it exists on this node, layers of its saved states included. */
export async function filesOfOriginal(libvirt: Libvirt, domainId: string): Promise<Set<string>> {
  const files = new Set<string>();
  try {
    const domain = await libvirt.domainByUuid(domainId);
    const definitions = [await domain.xml(DomainXml.INACTIVE), await domain.xml()];
    const disks = definitions.flatMap(xml => parseDomain(xml).disks);
    for (const snapshot of await domain.snapshots())
      disks.push(...(parseSnapshot(await snapshot.xml()).domain?.disks ?? []));
    for (const disk of await resolveVolumes(libvirt, disks)) {
      for (const path of [disk.path, ...(disk.backingChain ?? []).map(layer => layer.path)]) {
        if (path !== undefined) files.add(path);
      }
    }
  } catch (error) {
    if (!isNoDomain(error)) throw error;
  }
  return files;
}

/** Bytes free per pool; a pool that cannot be asked has none. */
async function freeSpace(pools: PoolRecord[]): Promise<Map<string, number>> {
  const free = new Map<string, number>();
  for (const pool of pools) {
    if (!pool.active || !pool.path) continue;
    const facts = await fsFacts(pool.path).catch(() => null);
    free.set(pool.id, facts?.available ?? 0);
  }
  return free;
}

/** A link inside a pool must not lead a restored file out of it. */
async function refusePathsThatLeaveTheirPool(placement: Placement): Promise<void> {
  for (const { pool, path } of [...placement.disks.flatMap(filesOf), ...placement.images])
    await resolveInPool(pool, relative(pool.path!, path));
}

/** The same VM on another node, or being restored there at this moment. One that was not heard is left to the controller. */
async function refuseElsewhere(
  { otherNodes, claims }: WorkflowDependencies,
  claimant: Claimant,
  { claim, signal }: ClaimScope,
): Promise<void> {
  const vm: Thing = { kind: 'domain', id: claimant.domainId };
  claim(claims.make([vm], claimant));
  const [answer] = await otherNodes.whoUses([vm], signal);
  if (answer?.kind !== 'used' || answer.by.domainId !== claimant.domainId) return;
  throw new VirtkeepError('identity_in_use', { domain: answer.by.domainName, node: answer.by.nodeName });
}

function missingDevices(
  config: DomainConfig,
  manifest: Manifest,
  { targets, reasons }: AttachableDevices,
): string[] {
  const restored = new Set(manifest.disks.map(disk => disk.target));
  return config.disks
    .filter(disk => disk.device === 'disk' || disk.device === 'lun')
    .filter(disk => !restored.has(disk.targetDev) && !targets.has(disk.targetDev))
    .map(disk => {
      const reason = reasons.get(disk.targetDev) ?? 'it is not in the backup';
      return `${disk.targetDev} (${disk.source}) was left out: ${reason}.`;
    });
}
