/** Data pools as the REST contract tells of them: one record for all nodes' views of the same uuid. Pure. */
import type { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { PoolEntry } from '../inventory/inventory.ts';
import type { BorneTag } from '../tags/record.ts';
import { type Forecast, UNKNOWN } from './forecast.ts';

export interface PoolNode {
  id: string;
  verbose_name: string;
  connected: boolean;
}

export type ConnectionStatus = 'ACTIVE' | 'INACTIVE' | 'FAILED';

export interface PoolRecord {
  id: string;
  verbose_name: string;
  description: string;
  status: 'ACTIVE' | 'FAILED';
  type: string;
  path: string;
  size: number;
  used_space: number;
  free_space: number;
  /** Several nodes have it, or it lies on the network. */
  shared: boolean;
  /** What lies behind a shared pool, which is all that the pool is here; null when it is not shared. */
  shared_storage: { id: string; verbose_name: string } | null;
  nodes_connected: { id: string; verbose_name: string; connection_status: ConnectionStatus }[];
  built_in: boolean;
  is_base: boolean;
  readonly: boolean;
  outside: boolean;
  /** Bytes per second of all backups that go to it; 0: no limit. */
  backup_bandwidth: number;
  /** The longest that VMs may wait for its disks, ms; 0: no limit. */
  latency_target: number;
  ownership: string;
  vdisk_count: number;
  file_count: number;
  zfs_pool: string | null;
  /** In how many days it is full. */
  forecast: Forecast;
  tags: BorneTag[];
}

/** What a list of pools is put in order by. */
export type ListedPool = Pick<
  PoolRecord,
  'id' | 'verbose_name' | 'status' | 'type' | 'size' | 'used_space' | 'free_space' | 'file_count'
>;

/** By one view, though a thousand nodes may have it. */
export function listedPool(
  { row, views }: PoolEntry,
  isConnected: (nodeId: string) => boolean,
  fileCount: number,
): ListedPool {
  let connected: Pool | undefined;
  let working: Pool | undefined;
  for (const [nodeId, view] of views) {
    if (!isConnected(nodeId)) continue;
    connected ??= view;
    if (!isUsable(view)) continue;
    working = view;
    break;
  }
  const pool = working ?? connected ?? views.values().next().value;
  return {
    id: row.id,
    verbose_name: row.verbose_name,
    status: working ? 'ACTIVE' : 'FAILED',
    type: row.type,
    size: Number(pool?.capacity ?? 0n),
    used_space: Number(pool?.allocation ?? 0n),
    free_space: Number(pool?.available ?? 0n),
    file_count: fileCount,
  };
}

/**
 * @param nodes those that have the pool. Sizes are those of a connected node where there is one, else the last known.
 * @param fileCount known backup files on it.
 */
export function poolRecord(entry: PoolEntry, nodes: PoolNode[], fileCount: number): PoolRecord {
  const views = nodes.flatMap(node => {
    const pool = entry.views.get(node.id);
    return pool ? [{ node, pool }] : [];
  });
  const working = views.find(view => view.node.connected && isUsable(view.pool));
  const pool = (working ?? views.find(view => view.node.connected) ?? views[0])?.pool;
  const any = (test: (pool: Pool) => boolean) => views.some(view => test(view.pool));
  const shared = views.length > 1 || any(view => view.shared);
  return {
    id: entry.row.id,
    verbose_name: entry.row.verbose_name,
    description: entry.row.description,
    status: working ? 'ACTIVE' : 'FAILED',
    type: entry.row.type,
    path: pool?.path ?? '',
    size: Number(pool?.capacity ?? 0n),
    used_space: Number(pool?.allocation ?? 0n),
    free_space: Number(pool?.available ?? 0n),
    shared,
    shared_storage: shared ? { id: entry.row.id, verbose_name: entry.row.verbose_name } : null,
    nodes_connected: views.map(view => ({
      id: view.node.id,
      verbose_name: view.node.verbose_name,
      connection_status: connectionStatus(view.node, view.pool),
    })),
    built_in: false,
    is_base: any(view => view.isBase),
    readonly: entry.row.readonly === 1 || any(view => view.readonly),
    backup_bandwidth: entry.row.backup_bandwidth,
    latency_target: entry.row.latency_target,
    outside: entry.row.outside === 1 || any(view => view.outside),
    ownership: views.find(view => view.pool.ownership !== '')?.pool.ownership ?? '',
    vdisk_count: pool?.diskCount ?? 0,
    file_count: fileCount,
    zfs_pool: null,
    forecast: UNKNOWN,
    tags: [],
  };
}

/** Active and, for a network pool, really mounted. */
export function isUsable(pool: Pool): boolean {
  return pool.active && pool.mounted;
}

/** Usable, and with a directory whose files can be listed. */
export function hasFiles(pool: Pool): boolean {
  return isUsable(pool) && pool.path !== '';
}

/** ACTIVE: usable there; INACTIVE: the node has it but it is stopped or not mounted; FAILED: the node is away. */
function connectionStatus(node: PoolNode, pool: Pool): ConnectionStatus {
  if (!node.connected) return 'FAILED';
  return isUsable(pool) ? 'ACTIVE' : 'INACTIVE';
}
