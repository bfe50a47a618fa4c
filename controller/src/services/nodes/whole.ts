/**
 * Clients of the API family begin with clusters and resource pools and go on to what is in them. Here there is one of each, which has
 * everything. Pure.
 */
import type { ListedNode } from './nodes.ts';

/** The same in every installation, so that a client that remembers it is right everywhere. */
export const CLUSTER = { id: '00000000-0000-4000-8000-00000000c001', verbose_name: 'Default cluster' };
export const RESOURCE_POOL = {
  id: '00000000-0000-4000-8000-00000000c002',
  verbose_name: 'Default resource pool',
};

export interface WholeFilter {
  cluster?: string | undefined;
  resource_pool?: string | undefined;
}

/** Whether a list limited to these is the whole list; else it is empty. */
export function isWhole({ cluster, resource_pool: pool }: WholeFilter): boolean {
  return [undefined, CLUSTER.id].includes(cluster) && [undefined, RESOURCE_POOL.id].includes(pool);
}

export function clusterRecord(nodes: readonly ListedNode[]) {
  const named = nodes.map(({ id, verbose_name }) => ({ id, verbose_name }));
  return { ...CLUSTER, ...sumOf(nodes), nodes: named };
}

export function resourcePoolRecord(nodes: readonly ListedNode[]) {
  return { ...RESOURCE_POOL, ...sumOf(nodes), cluster: CLUSTER };
}

function sumOf(nodes: readonly ListedNode[]) {
  const sum = (field: 'domains_count' | 'cpu_count' | 'memory_count') =>
    nodes.reduce((total, node) => total + node[field], 0);
  const status: 'ACTIVE' | 'FAILED' = nodes.some(node => node.status !== 'FAILED') ? 'ACTIVE' : 'FAILED';
  return {
    description: 'Built in: it has everything',
    status,
    built_in: true,
    nodes_count: nodes.length,
    domains_count: sum('domains_count'),
    cpu_count: sum('cpu_count'),
    memory_count: sum('memory_count'),
    permissions: [],
  };
}
