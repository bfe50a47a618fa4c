/** How long running VMs wait for their disks, as QEMU counts it. */
import { type DomainStats, type Libvirt, ListDomains } from '@virtkeep/node-libvirt';
import { type PoolPlace, poolOfPath } from '../pools/index.ts';
import type { Waits, WaitsByPool } from './latency-targets.ts';

/** VIR_DOMAIN_STATS_BLOCK. */
const BLOCK_GROUP = 32;
/** VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT: a VM that something is being done with is left out. */
const NOWAIT = 1 << 29;
/** Who waits longer has the answer too late. */
const TIMEOUT_MS = 5_000;
const KINDS = ['rd', 'wr', 'fl'] as const;

/** Asks libvirt once for all of them. @throws LibvirtError */
export async function readBlockWaits(libvirt: Libvirt, pools: readonly PoolPlace[]): Promise<WaitsByPool> {
  const stats = await libvirt.domainStats(BLOCK_GROUP, ListDomains.ACTIVE + NOWAIT, {
    timeoutMs: TIMEOUT_MS,
  });
  return waitsByPool(stats, pools);
}

/** The disks that lie in these pools, each by its VM and its target; what others, as empty drives, do is left out. */
export function waitsByPool(stats: readonly DomainStats[], pools: readonly PoolPlace[]): WaitsByPool {
  const found = new Map<string, Map<string, Waits>>(pools.map(({ id }) => [id, new Map()]));
  for (const { uuid, params } of stats)
    for (let index = 0; index < Number(params['block.count'] ?? 0); index += 1) {
      const value = (name: string) => params[`block.${index}.${name}`];
      const path = value('path');
      const pool = typeof path === 'string' ? poolOfPath(path, pools) : undefined;
      if (pool === undefined) continue;
      const sum = (what: string) =>
        KINDS.reduce((total, kind) => total + Number(value(`${kind}.${what}`) ?? 0), 0);
      found
        .get(pool.id)!
        .set(`${uuid} ${value('name')}`, { operations: sum('reqs'), waitedNs: sum('times') });
    }
  return found;
}
