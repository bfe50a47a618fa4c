/** Which files the domains of this node refer to: read from libvirt's definitions and the images' headers. */
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { hasKey } from '@virtkeep/shared/errors';
import { readLayers } from '../disks/index.ts';
import {
  type DiskConfig,
  type DomainConfig,
  isLent,
  KnownTexts,
  type Mentioned,
  mentionedIn,
  parseDomain,
  parseSnapshot,
} from '../domain-xml/index.ts';
import { listSnapshots, snapshotXml } from '../libvirt/domains.ts';
import { isNoDomain, isPassing } from '../libvirt/errors.ts';
import { BACKUPS_DIR, isInside, type PoolRecord, pathOf, pathOfVolume, poolOfPath } from '../pools/index.ts';

/** Files of a domain that lie inside a data pool that may be written, outside its `backups/`. Real paths. */
export interface DomainFiles {
  /** Those that are the domain's. */
  own: string[];
  /**
   * Images of which nothing says that they are: those below its own, and layers of a merge that was broken off, below no disk of it any more,
   * which may hold the newest data of one that was detached. Those of a thin clone's template are not told.
   */
  others: string[];
}

/**
 * What a domain's disks and saved states, with their memory files, consist of. What a disk stands on is the domain's own as far down as its
 * saved states know of it or did: a further image may be the base of many disks, though of no other one just now. Who else uses the files
 * is asked by who removes them.
 * @param isOverlay whether a file is called like one that was made above another of the same domain
 * @throws LibvirtError; VirtkeepError xml_invalid
 */
export async function filesOfDomain(
  domain: Domain,
  pools: readonly PoolRecord[],
  isOverlay: (path: string) => boolean,
): Promise<DomainFiles> {
  const own = new Set<string>();
  const merging = new Set<string>();
  const chains: string[][] = [];
  for (const definition of await definitionsOf(domain)) {
    const { config, unread } = definition;
    if (unread) throw unread.error;
    const named = namedAsOwn(definition);
    for (const path of named.own) own.add(await realOr(path));
    for (const path of named.merging) merging.add(await realOr(path));
    for (const disk of config?.disks ?? []) {
      if (disk.device !== 'disk' || disk.shareable) continue;
      // lent by another domain: its clone goes when the loan ends
      if (isLent(disk, config!.metadata)) continue;
      const files = await chainOf(disk, pools);
      for (const top of files.slice(0, 1)) own.add(top);
      const isOnTemplate = config!.metadata.parent !== undefined && files.length > 1;
      chains.push(isOnTemplate ? files.slice(0, -1) : files);
    }
  }
  const others = new Set(merging);
  for (const files of chains) {
    let ownCount = files.findLastIndex(path => own.has(path) || merging.has(path)) + 1;
    while (ownCount < files.length && isOverlay(files[ownCount - 1]!)) ownCount += 1;
    for (const path of files.slice(0, ownCount)) own.add(path);
    for (const path of files.slice(ownCount)) others.add(path);
  }
  const ours: string[] = [];
  for (const path of new Set([...own, ...others])) if (await isOurs(path, pools)) ours.push(path);
  ours.sort();
  return { own: ours.filter(path => own.has(path)), others: ours.filter(path => !own.has(path)) };
}

/** What saved states name as made for them, what those that were deleted have left, and of that what was being merged. */
function namedAsOwn({ config, isPresent, overlays, memory }: Definition): {
  own: string[];
  merging: string[];
} {
  const loose = (isPresent && config?.metadata.looseLayers) || [];
  const pathsOf = (layers: typeof loose) =>
    layers.flatMap(({ path, merging }) => [path, ...(merging ? [merging] : [])]);
  const isOpen = ({ merging, stage }: (typeof loose)[number]) => merging !== undefined && stage !== 'merged';
  return {
    own: [...overlays, ...memory, ...pathsOf(loose.filter(layer => !isOpen(layer)))],
    merging: pathsOf(loose.filter(isOpen)),
  };
}

export interface NodeFiles {
  /** Real path → the domains that refer to it. */
  users: ReadonlyMap<string, readonly FileUser[]>;
  /** The owner that was asked about runs. */
  isOwnerRunning: boolean;
}

export interface FileUser {
  domainId: string;
  name: string;
}

/**
 * Every file that a domain of this node refers to: in its live or its persistent definition or in those of its saved states,
 * as disk, drive, layer below one, memory, or as what it has of others.
 * @param ownerId of this domain not counted is what its saved states only name as made for them, and what it noted as to be
 *   merged: none of it is needed when nothing stands on it
 * @throws LibvirtError
 */
export async function filesOfNode(
  libvirt: Libvirt,
  pools: readonly PoolRecord[],
  ownerId?: string,
): Promise<NodeFiles> {
  const users = new Map<string, FileUser[]>();
  let isOwnerRunning = false;
  for (const domain of await libvirt.domains()) {
    const user = { domainId: domain.uuid, name: domain.name };
    const isOwner = domain.uuid === ownerId;
    if (isOwner) isOwnerRunning = await isRunning(domain);
    for (const path of await referredTo(await definitionsOf(domain), pools, isOwner))
      users.set(path, [...(users.get(path) ?? []), user]);
  }
  return { users, isOwnerRunning };
}

/** Every file that definitions of a domain refer to, or may refer to where they cannot be read. Real paths. */
export async function referredTo(
  definitions: readonly Definition[],
  pools: readonly PoolRecord[],
  isOwner = false,
): Promise<Set<string>> {
  const named = new Set<string>();
  const add = (paths: readonly string[]) => {
    for (const path of paths) named.add(path);
  };
  const readChain = eachOnce(readChainOf);
  const fileOfVolume = async ({ pool, volume }: Mentioned['volumes'][number]) =>
    pathOfVolume(pool, volume, pools) ?? null;
  for (const { config, overlays, memory, isPresent, unread } of definitions) {
    if (unread) add(await filesMentionedIn(unread.xml, fileOfVolume));
    if (!isOwner) add([...overlays, ...memory]);
    if (!config) continue;
    for (const disk of config.disks) {
      add(await namesInChain(disk, pools, readChain));
      // libvirt opens what a definition says, whatever the headers say
      if (isPresent) add(recordedChain(disk));
    }
    const { attachments, looseLayers = [] } = config.metadata;
    add(attachments.map(({ path }) => path));
    if (!isOwner) add(looseLayers.flatMap(({ path, merging }) => [path, ...(merging ? [merging] : [])]));
  }
  return new Set(await Promise.all([...named].map(realOr)));
}

/** It runs or is suspended. @throws LibvirtError */
export async function isRunning(domain: Domain): Promise<boolean> {
  try {
    return await domain.isActive();
  } catch (error) {
    if (isNoDomain(error)) return false;
    throw error;
  }
}

export interface Definition {
  config?: DomainConfig;
  /** Of the domain as it runs or starts next, not of a saved state. */
  isPresent: boolean;
  /** Files that a saved state names as made for it. */
  overlays: string[];
  memory: string[];
  /** Its text where it cannot be read, and why: then nothing else is known. */
  unread?: { xml: string; error: unknown };
}

/** The live and the persistent definition, and those inside the saved states. */
export async function definitionsOf(domain: Domain): Promise<Definition[]> {
  try {
    const texts = [await domain.xml(), await domain.xml(DomainXml.INACTIVE)];
    texts.push(...(await savedXml(domain)));
    const found = [...new Set(texts)].flatMap(xml => readOr(xml, true, () => DOMAINS.of(xml, domain.uuid)));
    for (const snapshot of await listSnapshots(domain)) {
      const xml = await snapshotXml(snapshot);
      if (xml !== null) found.push(...readOr(xml, false, () => STATES.of(xml, snapshot.name)));
    }
    return found;
  } catch (error) {
    if (isNoDomain(error)) return [];
    throw error;
  }
}

const DOMAINS = new KnownTexts((xml, subject): Definition[] => [
  { config: parseDomain(xml, subject), isPresent: true, overlays: [], memory: [] },
]);
const STATES = new KnownTexts(stateDefinitions);

/** What is not read for its bounds may be lawful all the same, and only its own VM is to wait for that. */
function readOr(xml: string, isPresent: boolean, read: () => Definition[]): Definition[] {
  try {
    return read();
  } catch (error) {
    if (!hasKey(error, 'xml_invalid')) throw error;
    return [{ isPresent, overlays: [], memory: [], unread: { xml, error } }];
  }
}

function stateDefinitions(xml: string, name: string): Definition[] {
  const state = parseSnapshot(xml, name);
  const found: Definition = {
    ...(state.domain ? { config: state.domain } : {}),
    isPresent: false,
    overlays: state.disks.flatMap(disk => disk.path ?? []),
    memory: state.memory.path ? [state.memory.path] : [],
  };
  if (!state.inactiveDomain) return [found];
  return [found, { config: state.inactiveDomain, isPresent: false, overlays: [], memory: [] }];
}

/** Whatever is named, and what the images among it stand on by their headers. */
export async function filesMentionedIn(
  xml: string,
  fileOf: (volume: Mentioned['volumes'][number]) => Promise<string | null>,
): Promise<string[]> {
  const { paths, volumes } = mentionedIn(xml);
  const ofVolumes = (await Promise.all(volumes.map(fileOf))).filter(path => path !== null);
  const found: string[] = [];
  for (const path of [...paths, ...ofVolumes]) {
    const layers = await readLayers(path).catch(() => []);
    found.push(path, ...layers.map(layer => layer.path));
  }
  return found;
}

/** A domain whose memory is saved goes on with the files that are named there; from one that cannot be read it never does. */
export async function savedXml(domain: Domain): Promise<string[]> {
  if (!(await domain.hasManagedSave())) return [];
  try {
    return [await domain.managedSaveXml()];
  } catch (error) {
    if (isPassing(error) || isNoDomain(error)) throw error;
    return [];
  }
}

/** A disk's files, top to bottom: as the headers say, and where those cannot be read as the definition says. */
export async function chainOf(disk: DiskConfig, pools: readonly PoolRecord[]): Promise<string[]> {
  const paths = await namesInChain(disk, pools, readChainOf);
  return Promise.all(paths.map(realOr));
}

type ReadChain = (path: string, format: string) => Promise<string[] | undefined>;

/** As they are named, links and all. */
async function namesInChain(
  disk: DiskConfig,
  pools: readonly PoolRecord[],
  read: ReadChain,
): Promise<string[]> {
  const path = pathOf(disk, pools);
  if (path === undefined) return [];
  const { device, format } = disk;
  const isImage = device === 'disk' && format !== undefined && format !== 'raw';
  return (isImage ? await read(path, format) : undefined) ?? [path, ...recordedChain(disk)];
}

const recordedChain = ({ backingChain = [] }: DiskConfig): string[] =>
  backingChain.flatMap(layer => layer.path ?? []);

/** By the headers; undefined where they cannot be read. */
const readChainOf: ReadChain = (path, format) =>
  readLayers(path, format).then(
    layers => layers.map(layer => layer.path),
    () => undefined,
  );

/** Reads each chain once, however many definitions name it. */
function eachOnce(read: ReadChain): ReadChain {
  const known = new Map<string, ReturnType<ReadChain>>();
  return (path, format) => {
    const key = `${format} ${path}`;
    const found = known.get(key) ?? read(path, format);
    known.set(key, found);
    return found;
  };
}

async function isOurs(path: string, pools: readonly PoolRecord[]): Promise<boolean> {
  const reachable = pools.filter(pool => pool.hasDirectory && pool.path);
  const real = await Promise.all(reachable.map(async pool => ({ ...pool, path: await realOr(pool.path!) })));
  const pool = poolOfPath(path, real);
  if (!pool || pool.outside || pool.readonly || !pool.active || !pool.mounted) return false;
  return !isInside(path, join(pool.path!, BACKUPS_DIR));
}

async function realOr(path: string): Promise<string> {
  return realpath(path).catch(() => path);
}
