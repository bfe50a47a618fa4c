/** Reads from libvirt and the images' headers what merging and reverting decide upon. */
import { stat } from 'node:fs/promises';
import {
  BlockJobType,
  type Domain,
  DomainXml,
  ErrorCode,
  type JobStats,
  JobType,
  type Libvirt,
  SnapshotList,
} from '@virtkeep/node-libvirt';
import { cleanPath } from '@virtkeep/shared/clean-path';
import { hasKey } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { isEmptyOverlay, type Layer, readImageHeader, readLayers } from '../../disks/index.ts';
import { KnownTexts, type LentLayer, type LooseLayer, parseDomain } from '../../domain-xml/index.ts';
import { filesMentionedIn, savedXml } from '../../images/index.ts';
import { listSnapshots, snapshotXml, unlessGone } from '../../libvirt/domains.ts';
import { isAnswer, isUnlistable } from '../../libvirt/errors.ts';
import type { SavedState } from '../chain.ts';
import { filesKeptBy, loadAllStates } from '../load.ts';
import { type DiskState, diskStates, disksOfState, type VolumeName } from '../state-xml.ts';
import { type MarkedLayer, tellingLayers } from './lent.ts';
import { writtenSince } from './mark.ts';
import type { ChainPicture, LiveTop } from './picture.ts';
import type { StateFiles } from './step.ts';

/** The files of a state that an operation made. */
export interface StateLook {
  files: StateFiles;
  signal: AbortSignal;
}

export interface Look {
  domain: Domain;
  picture: ChainPicture;
}

/**
 * The domain's disks and states as they are now; null when there is no such domain.
 * @param foreign files that others use, from `foreignFiles`
 * @param state files of a state that an operation made, looked at too
 * @throws LibvirtError, VirtkeepError io_failed
 */
export function lookAt(
  libvirt: Libvirt,
  domainId: string,
  foreign: ReadonlyMap<string, string>,
  state?: StateLook,
): Promise<Look | null> {
  return unlessGone(async () => {
    const domain = await libvirt.domainByUuid(domainId);
    return { domain, picture: await pictureOf(libvirt, domain, foreign, state) };
  }, null);
}

async function pictureOf(
  libvirt: Libvirt,
  domain: Domain,
  foreign: ReadonlyMap<string, string>,
  state: StateLook | undefined,
): Promise<ChainPicture> {
  const running = await domain.isActive();
  const live = running ? await domain.xml() : null;
  const persistent = await domain.isPersistent();
  const config = persistent ? await domain.xml(DomainXml.INACTIVE) : null;
  const saving = state !== undefined && running && (await isSaving(domain));
  const loaded =
    saving && (await isBeingMade(domain, live!, state.files))
      ? { states: [], automatic: [] }
      : await loadAllStates(domain);
  const states = await withInnerFiles(libvirt, loaded.states);
  const { automatic } = loaded;
  const { metadata } = parseDomain(live ?? config ?? '', domain.name);
  const liveDisks: Disks = live === null ? new Map() : await disksOf(libvirt, diskStates(live));
  const configDisks: Disks = config === null ? new Map() : await disksOf(libvirt, diskStates(config));
  const liveTops = await liveTopsOf(domain, liveDisks);
  const configTops = topsOf(configDisks);
  const files = new Files();
  if (state) await files.addStateFiles(state.files);
  for (const disks of [liveDisks, configDisks]) await files.addDisks(disks);
  for (const saved of [...states, ...automatic]) {
    const { overlays, internalDisks, frozen, frozenFormats = {}, memoryPath } = saved;
    for (const [target, overlay] of Object.entries(overlays)) {
      await files.addChain(overlay, 'qcow2');
      if (frozen[target]) await files.addChain(frozen[target], frozenFormats[target]);
    }
    // what an internal state reads counts as read, also when no disk has its file now
    for (const target of internalDisks)
      if (frozen[target]) await files.addChain(frozen[target], frozenFormats[target]);
    if (memoryPath !== null) await files.addPlain(memoryPath);
  }
  for (const { path, overlay, merging, reader } of metadata.looseLayers ?? []) {
    for (const upper of [reader, merging]) if (upper !== undefined) await files.addChain(upper, 'qcow2');
    await files.addChain(path, overlay ? 'qcow2' : 'raw');
  }
  const usedPaths = [
    ...[...liveTops.values()].map(top => top.path),
    ...configTops.values(),
    ...(metadata.looseLayers ?? []).map(({ merging }) => merging),
  ];
  const unsure =
    state?.files.overlays.map(({ path }) => path).filter(path => !usedPaths.includes(path)) ?? [];
  // what runs here is where it is
  const lent = running ? [] : tellingLayers({ states, metadata, files: files.found });
  return {
    domainId: domain.uuid,
    power: running ? 'running' : 'off',
    persistent,
    memorySaved: !running && (await domain.hasManagedSave()),
    live: liveTops,
    config: configTops,
    states,
    automatic,
    files: files.found,
    inner: files.inner,
    empty: state ? await files.emptyOf(unsure, state.signal) : new Set(),
    since: await files.sinceOf([...(state?.files.overlays ?? []), ...lent], metadata.looseLayers ?? []),
    gone: await goneOf(metadata.lentLayers ?? []),
    metadata,
    foreign,
    saving,
  };
}

/** What is not there, nor what it stood on, may only not be mounted. */
async function goneOf(lent: readonly LentLayer[]): Promise<Set<string>> {
  const gone = new Set<string>();
  for (const { path, below } of lent) if (!(await exists(path)) && (await exists(below))) gone.add(path);
  return gone;
}

/** `virDomainJobOperation`: a state is being made. */
const SNAPSHOT_OPERATION = 6;
const NO_JOB: JobStats = { type: JobType.NONE, params: {} };

async function isSaving(domain: Domain): Promise<boolean> {
  const { type, params } = await domain.jobStats().catch(error => {
    if (isAnswer(error, ErrorCode.OPERATION_INVALID)) return NO_JOB; // switched off meanwhile
    throw error;
  });
  const runs = type === JobType.BOUNDED || type === JobType.UNBOUNDED;
  return runs && params.operation === SNAPSHOT_OPERATION;
}

/** Whether libvirt creates this very state: it lists no states meanwhile, and no disk is on an overlay of it, which follows the memory. */
async function isBeingMade(domain: Domain, live: string, { overlays }: StateFiles): Promise<boolean> {
  try {
    await domain.snapshots(SnapshotList.TOPOLOGICAL);
    return false;
  } catch (error) {
    if (!isUnlistable(error)) throw error;
    const tops = [...diskStates(live).values()].map(({ sourcePath }) => sourcePath);
    return !overlays.some(({ path }) => tops.includes(path));
  }
}

type Disks = ReadonlyMap<string, DiskState>;

/** Per target the disk's top; of one that is given as a volume the file that it is. */
async function disksOf(libvirt: Libvirt, disks: Map<string, DiskState>): Promise<Disks> {
  for (const [target, disk] of disks) disks.set(target, await withFiles(libvirt, disk));
  return disks;
}

async function withFiles(libvirt: Libvirt, disk: DiskState): Promise<DiskState> {
  const { sourcePath, volume, mirror } = disk;
  const resolved = sourcePath ?? (await fileOf(libvirt, volume));
  const path = mirror && (mirror.path ?? (await fileOf(libvirt, mirror.volume)));
  return { ...disk, sourcePath: resolved, mirror: mirror && { ...mirror, path } };
}

/** An internal state names a disk that is given as a volume by that: here it gets the file that it is. */
function withInnerFiles(libvirt: Libvirt, states: readonly SavedState[]): Promise<SavedState[]> {
  const withFilesOf = async (state: SavedState): Promise<SavedState> => {
    const { internalDisks, frozen, xml } = state;
    if (internalDisks.every(target => frozen[target] !== undefined)) return state;
    const disks = await disksOf(libvirt, disksOfState(xml));
    const found = internalDisks.flatMap(target => {
      const path = disks.get(target)?.sourcePath;
      return path ? [[target, path] as const] : [];
    });
    return { ...state, frozen: { ...frozen, ...Object.fromEntries(found) } };
  };
  return Promise.all(states.map(withFilesOf));
}

/** Null for no volume, and for one that libvirt does not know at present. */
async function fileOf(libvirt: Libvirt, name: VolumeName | undefined): Promise<string | null> {
  if (!name) return null;
  const pool = await libvirt.poolByName(name.pool).catch(() => undefined);
  const path = await (await pool?.findVolume(name.volume))?.path();
  return path === undefined ? null : cleanPath(path);
}

/** Kinds of block jobs, by the words of a mirror in the XML. */
const JOB_WORDS: Record<number, string> = {
  [BlockJobType.PULL]: 'pull',
  [BlockJobType.COPY]: 'copy',
  [BlockJobType.COMMIT]: 'commit',
  [BlockJobType.ACTIVE_COMMIT]: 'active-commit',
  [BlockJobType.BACKUP]: 'backup',
};

async function liveTopsOf(domain: Domain, disks: Disks): Promise<Map<string, LiveTop>> {
  const tops = new Map<string, LiveTop>();
  for (const [targetDev, { sourcePath, mirror }] of disks) {
    if (sourcePath === null) continue;
    const info = await domain.blockJobInfo(targetDev);
    const job = info && (JOB_WORDS[info.type] ?? 'block');
    const jobDone = info ? { jobDone: info.cur } : {};
    tops.set(targetDev, { path: sourcePath, mirror, job: mirror?.job ?? job, ...jobDone });
  }
  return tops;
}

function topsOf(disks: Disks): Map<string, string> {
  const found = new Map<string, string>();
  for (const [targetDev, { sourcePath }] of disks) if (sourcePath !== null) found.set(targetDev, sourcePath);
  return found;
}

/** Whether nothing was ever written to the file; a file without a byte was created only in part. */
async function isNeverWritten(path: string, signal: AbortSignal): Promise<boolean> {
  return (await stat(path)).size === 0 || isEmptyOverlay(path, { signal });
}

/** A disk's files, top to bottom. A missing file is the last one: it is named, but what it stood on is unknown. */
async function layersOfChain(top: string, format: string): Promise<Pick<Layer, 'path' | 'internalStates'>[]> {
  try {
    return await readLayers(top, format);
  } catch (error) {
    const header = await readImageHeader(top);
    const { backingPath, backingFormat = 'raw' } = header;
    if (backingPath === undefined) throw error;
    const layer = { path: top, ...header };
    if (!(await exists(backingPath))) return [layer, { path: backingPath }];
    return [layer, ...(await layersOfChain(backingPath, backingFormat))];
  }
}

/** The existing files and what each stands on; headers are read once. */
class Files {
  readonly found = new Map<string, string | null>();
  /** Those in which internal states lie. */
  readonly inner = new Set<string>();

  async addDisks(disks: Disks): Promise<void> {
    for (const { sourcePath, driverType } of disks.values())
      if (sourcePath !== null) await this.addChain(sourcePath, driverType ?? 'raw');
  }

  /** @param format of the top; a file without one is not looked into: its first bytes may be the guest's. */
  async addChain(top: string, format: string | undefined): Promise<void> {
    if (this.found.has(top) || !(await exists(top))) return;
    const layers = await layersOfChain(top, format ?? 'raw');
    for (const [index, { path, internalStates }] of layers.entries()) {
      if (this.found.has(path) || !(await exists(path))) continue;
      this.found.set(path, layers[index + 1]?.path ?? null);
      if (internalStates !== undefined) this.inner.add(path);
    }
  }

  /** Files that may have been created only in part: an overlay without a byte stands on nothing. */
  async addStateFiles({ overlays, memoryPath }: StateFiles): Promise<void> {
    if (memoryPath !== undefined) await this.addPlain(memoryPath);
    for (const { path } of overlays) {
      if (!(await exists(path))) continue;
      if ((await stat(path)).size === 0) this.found.set(path, null);
      else await this.addChain(path, 'qcow2');
    }
  }

  /** Those of these overlays that nothing was ever written to. */
  async emptyOf(paths: string[], signal: AbortSignal): Promise<Set<string>> {
    const empty = new Set<string>();
    const below = new Set(this.found.values());
    for (const path of paths) {
      const lower = this.found.get(path);
      const isWhole = lower === null || (lower !== undefined && this.found.has(lower));
      if (isWhole && !below.has(path) && (await isNeverWritten(path, signal))) empty.add(path);
    }
    return empty;
  }

  /** What is known of the files below these overlays, as far as their merge did not begin. */
  async sinceOf(
    overlays: readonly MarkedLayer[],
    notes: readonly LooseLayer[],
  ): Promise<Map<string, 'same' | 'written'>> {
    const since = new Map<string, 'same' | 'written'>();
    for (const { path, mark, moving } of overlays) {
      const below = this.found.get(path);
      if (!below || !this.found.has(below) || notes.some(({ merging }) => merging === path)) continue;
      const found = await writtenSince(below, path, mark);
      if (found === 'same' || (found && !moving)) since.set(path, found);
    }
    return since;
  }

  async addPlain(path: string): Promise<void> {
    if (!this.found.has(path) && (await exists(path))) this.found.set(path, null);
  }
}

/**
 * Files that other domains than the given ones use, and which: their disks with all layers, what they have attached, what
 * their saved states keep, what their saved memory goes on with. Reads the XML of every other domain.
 * @throws LibvirtError
 */
export async function foreignFiles(libvirt: Libvirt, ...domainIds: string[]): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const other of await libvirt.domains()) {
    if (domainIds.includes(other.uuid)) continue;
    for (const path of await unlessGone(() => filesUsedBy(libvirt, other), []))
      found.set(path, `the domain ${other.name}`);
  }
  return found;
}

async function filesUsedBy(libvirt: Libvirt, other: Domain): Promise<string[]> {
  try {
    return await filesNamedBy(libvirt, other);
  } catch (error) {
    if (!hasKey(error, 'xml_invalid')) throw error;
    // others do not wait until its XML can be read: until then every file that its texts name counts as its own
    const states = await Promise.all((await listSnapshots(other)).map(state => snapshotXml(state)));
    const texts = [...(await definitionsOf(other)), ...states].filter(xml => xml !== null);
    const fileOfVolume = (volume: VolumeName) => fileOf(libvirt, volume);
    return (await Promise.all(texts.map(xml => filesMentionedIn(xml, fileOfVolume)))).flat();
  }
}

const NAMED = new KnownTexts((xml, subject) => ({
  attached: parseDomain(xml, subject).metadata.attachments.map(({ path }) => path),
  disks: [...diskStates(xml).values()],
}));

async function filesNamedBy(libvirt: Libvirt, other: Domain): Promise<string[]> {
  const found: string[] = [];
  for (const xml of await definitionsOf(other)) {
    const { attached, disks } = NAMED.of(xml, other.name);
    found.push(...attached);
    for (const disk of disks) {
      const { sourcePath, driverType } = await withFiles(libvirt, disk);
      if (sourcePath === null) continue;
      found.push(sourcePath);
      if (driverType === 'qcow2')
        found.push(...(await readLayers(sourcePath, driverType).catch(() => [])).map(({ path }) => path));
    }
  }
  return [...found, ...(await filesKeptBy(other))];
}

/** As it runs, as it is defined, and as its saved memory knows it. */
async function definitionsOf(domain: Domain): Promise<Set<string>> {
  const present = [await domain.xml(), await domain.xml(DomainXml.INACTIVE)];
  return new Set([...present, ...(await savedXml(domain))]);
}
