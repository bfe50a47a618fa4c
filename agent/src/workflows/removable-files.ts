/** Which files go with a domain, and which are somebody else's too. Read from libvirt and the images' headers. */
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { readLayers } from '../disks/index.ts';
import {
  type DiskConfig,
  type DomainConfig,
  isLent,
  parseDomain,
  parseSnapshot,
} from '../domain-xml/index.ts';
import { pathOf } from '../inventory/disk-facts.ts';
import { isNoDomain } from '../libvirt/errors.ts';
import { BACKUPS_DIR, isInside, type PoolRecord, poolOfPath } from '../pools/index.ts';

/**
 * The files that a domain alone uses: every layer of its disks and of its saved states with their memory files, as far as
 * they lie inside a data pool that may be written, outside its `backups/`, and no other domain refers to them. Real paths.
 * @throws LibvirtError
 */
export async function removableFiles(
  libvirt: Libvirt,
  domain: Domain,
  pools: readonly PoolRecord[],
): Promise<string[]> {
  const own = await filesOf(domain, pools, { disksOnly: true });
  const used = await usedByOthers(libvirt, domain.uuid, pools);
  const found: string[] = [];
  for (const path of own.files) {
    const isTemplates = own.templateBottoms.has(path);
    if (!used.has(path) && !isTemplates && (await isOurs(path, pools))) found.push(path);
  }
  return found.sort();
}

/** Every file that domains other than this one refer to, as disk, layer, image or part of a saved state. Real paths. */
export async function usedByOthers(
  libvirt: Libvirt,
  domainId: string,
  pools: readonly PoolRecord[],
): Promise<Set<string>> {
  const used = new Set<string>();
  for (const other of await libvirt.domains()) {
    if (other.uuid === domainId) continue;
    const { files } = await filesOf(other, pools, { disksOnly: false });
    for (const path of files) used.add(path);
  }
  return used;
}

interface DomainFiles {
  files: Set<string>;
  /** Bottom files of a thin clone's chains: its template's. */
  templateBottoms: Set<string>;
}

async function filesOf(
  domain: Domain,
  pools: readonly PoolRecord[],
  { disksOnly }: { disksOnly: boolean },
): Promise<DomainFiles> {
  const found: DomainFiles = { files: new Set(), templateBottoms: new Set() };
  for (const { config, extra } of await definitionsOf(domain)) {
    for (const path of extra) found.files.add(await realOr(path));
    for (const disk of config?.disks ?? []) {
      if (disksOnly && (disk.device !== 'disk' || disk.shareable)) continue;
      // lent by another domain: its clone goes when the loan ends
      if (disksOnly && isLent(disk, config!.metadata)) continue;
      const chain = await chainOf(disk, pools);
      for (const path of chain) found.files.add(path);
      if (config?.metadata.parent && chain.length > 1) found.templateBottoms.add(chain.at(-1)!);
    }
  }
  return found;
}

export interface Definition {
  config?: DomainConfig;
  /** Files that belong to a state and to no disk. */
  extra: string[];
}

/** The live and the persistent definition, and those inside the saved states. */
export async function definitionsOf(domain: Domain): Promise<Definition[]> {
  try {
    const texts = [await domain.xml(), await domain.xml(DomainXml.INACTIVE)];
    const found: Definition[] = [...new Set(texts)].map(xml => ({
      config: parseDomain(xml, domain.uuid),
      extra: [],
    }));
    for (const snapshot of await domain.snapshots()) {
      const state = parseSnapshot(await snapshot.xml(), snapshot.name);
      const overlays = state.disks.flatMap(disk => disk.path ?? []);
      found.push({
        config: state.domain,
        extra: [...overlays, ...(state.memory.path ? [state.memory.path] : [])],
      });
      if (state.inactiveDomain) found.push({ config: state.inactiveDomain, extra: [] });
    }
    return found;
  } catch (error) {
    if (isNoDomain(error)) return [];
    throw error;
  }
}

/** A disk's files, top to bottom; the top alone when the layers cannot be read. */
export async function chainOf(disk: DiskConfig, pools: readonly PoolRecord[]): Promise<string[]> {
  const path = pathOf(disk, pools);
  if (path === undefined) return [];
  const isImage = disk.device === 'disk' && disk.format !== undefined && disk.format !== 'raw';
  const layers = isImage ? await readLayers(path, disk.format).catch(() => undefined) : undefined;
  const recorded = disk.backingChain?.flatMap(layer => layer.path ?? []) ?? [];
  const paths = layers?.map(layer => layer.path) ?? [path, ...recorded];
  return Promise.all(paths.map(realOr));
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
