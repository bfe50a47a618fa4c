/**
 * Layers of a VM whose disks are all devices. No directory lies beside those, so its layers go to a data pool that it does not
 * need otherwise. On a network file system that makes a local VM depend on the network: that is asked for by name.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  backupTargetRefusal,
  fsFacts,
  type PoolRecord,
  poolOfPath,
  readablePool,
} from '../../pools/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';

export interface LayerPlace {
  /** Name of the VM. */
  domain: string;
  disks: readonly { written: boolean; block: boolean }[];
  /** Where layers go that lie beside no disk. */
  directory: string;
  /** Completes "What the VM writes … lies in": "from now on". */
  period: string;
  /** The user allows a network file system. */
  allowNetwork: boolean;
}

/** What is to be told about a VM whose layers lie beside none of its disks, or why they are not made; null: they do. Pure. */
export function awayLayers(
  { domain, disks, directory, period, allowNetwork }: LayerPlace,
  network: string | undefined,
): { note: string } | { refusal: VirtkeepError } | null {
  const written = disks.filter(disk => disk.written);
  if (written.length === 0 || written.some(({ block }) => !block)) return null;
  if (network !== undefined && !allowNetwork)
    return { refusal: new VirtkeepError('layers_on_network', { domain, directory, network }) };
  return {
    note: `All disks of the VM are devices. What it writes ${period} lies in ${directory}, which must stay reachable as long.`,
  };
}

/**
 * Tells the task where such layers go.
 * @throws VirtkeepError layers_on_network, io_failed
 */
export async function checkLayerPlace(place: LayerPlace, warn: (text: string) => void): Promise<void> {
  if (awayLayers(place, undefined) === null) return;
  const { network } = await fsFacts(place.directory);
  const answer = awayLayers(place, network);
  if (answer === null) return;
  if ('refusal' in answer) throw answer.refusal;
  warn(answer.note);
}

/**
 * The directory of the node's base data pool; undefined when the node has none. A chosen pool stays the base pool while it is not
 * mounted: layers that are made then are hidden, with the newest data of their VM, when it is.
 * @throws the refusals of pools
 */
export function baseDirectory(pools: readonly PoolRecord[], nodeName?: string): string | undefined {
  const pool = pools.find(({ isBase }) => isBase);
  const refusal = pool && backupTargetRefusal(pool, nodeName);
  if (refusal) throw refusal;
  return pool?.path;
}

/** Refuses to make layers where a pool is not there. @throws VirtkeepError pool_not_active, pool_not_mounted */
export async function requireLayerPools(
  { pools, nodeName }: Pick<WorkflowDependencies, 'pools' | 'nodeName'>,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const records = await pools(signal);
  for (const path of paths) {
    const pool = poolOfPath(path, records);
    if (pool) readablePool(records, pool.id, nodeName);
  }
}
