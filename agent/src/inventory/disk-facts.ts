import { dirname } from 'node:path';
import { type Layer, readLayers } from '../disks/index.ts';
import { type DomainConfig, isLent } from '../domain-xml/index.ts';
import { type PathGate, type PoolRecord, pathOf, poolOfPath } from '../pools/index.ts';

/** What the image files of a disk tell; keyed by target device in `DiskFacts`. */
export interface DiskLayers {
  /** Top to bottom; empty when they cannot be read. */
  layers: Layer[];
}

export type DiskFacts = Map<string, DiskLayers>;

/**
 * Reads the headers of a domain's own disks (not of its drives, LUNs, and what others lend it). A disk that cannot be read has no layers; one on a
 * file system that does not answer has those it had before.
 */
export async function readDiskFacts(
  config: DomainConfig,
  pools: readonly PoolRecord[],
  gate: PathGate,
  old?: DiskFacts,
): Promise<DiskFacts> {
  const facts: DiskFacts = new Map();
  for (const disk of config.disks) {
    const isOwn = disk.device === 'disk' && !isLent(disk, config.metadata);
    const path = isOwn ? pathOf(disk, pools) : undefined;
    if (path === undefined) continue;
    const key = poolOfPath(path, pools)?.id ?? dirname(path);
    const layers = await gate.run(key, () => readLayers(path, disk.format).catch(() => []));
    facts.set(disk.targetDev, layers ? { layers } : (old?.get(disk.targetDev) ?? { layers: [] }));
  }
  return facts;
}

/**
 * The first layer that is the domain's own: the bottom one, or for a thin clone the one above its template's.
 * @param paths layers, top to bottom, at least one
 * @param templateFiles the files of the template's disks; undefined when the template is not on this node: then the
 *   bottom layer is its
 */
export function firstOwnLayer(
  paths: readonly string[],
  isThin: boolean,
  templateFiles: ReadonlySet<string> | undefined,
): string {
  if (!isThin || paths.length === 1) return paths.at(-1)!;
  const cut = templateFiles ? paths.findIndex(path => templateFiles.has(path)) : paths.length - 1;
  return cut > 0 ? paths[cut - 1]! : paths.at(-1)!;
}
