/** How long running VMs wait for their disks, as QEMU counts it. */
import { type DomainStats, type Libvirt, ListDomains } from '@virtkeep/node-libvirt';
import { cleanPath } from '@virtkeep/shared/clean-path';
import { type PoolPlace, poolOfPath } from '../pools/index.ts';
import type { CountersByPool, DiskCounters, Waits } from './latency-control.ts';

/** VIR_DOMAIN_STATS_BLOCK. */
const BLOCK_GROUP = 32;
/** VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT: of a VM that something is being done with there are names alone, no counters. */
const NOWAIT = 1 << 29;
/** As libvirt names them. */
const NAMES = { reads: 'rd', writes: 'wr', flushes: 'fl' } as const;

/**
 * Asks libvirt once for all of them. Waits for as long as libvirt takes: whoever gave up and asked again would have one of its threads
 * after the other wait for a QEMU that hangs.
 * @param pools all of the node
 * @throws LibvirtError
 */
export async function readBlockWaits(libvirt: Libvirt, pools: readonly PoolPlace[]): Promise<CountersByPool> {
  const stats = await libvirt.domainStats(BLOCK_GROUP, ListDomains.ACTIVE + NOWAIT, { timeoutMs: 0 });
  return countersByPool(stats, pools);
}

/** The disks that lie in these pools, each by its VM and its target; what others, as empty drives, do is left out. */
export function countersByPool(stats: readonly DomainStats[], pools: readonly PoolPlace[]): CountersByPool {
  const found = new Map<string, Map<string, DiskCounters>>(pools.map(({ id }) => [id, new Map()]));
  for (const { uuid, params } of stats)
    for (let index = 0; index < Number(params['block.count'] ?? 0); index += 1) {
      const value = (name: string) => params[`block.${index}.${name}`];
      const path = value('path');
      const pool = typeof path === 'string' ? poolOfPath(cleanPath(path), pools) : undefined;
      if (pool === undefined || value('rd.reqs') === undefined) continue;
      const waits = (kind: keyof typeof NAMES): Waits => ({
        operations: Number(value(`${NAMES[kind]}.reqs`) ?? 0),
        waitedNs: Number(value(`${NAMES[kind]}.times`) ?? 0),
      });
      found.get(pool.id)!.set(`${uuid} ${value('name')}`, {
        reads: waits('reads'),
        writes: waits('writes'),
        flushes: waits('flushes'),
      });
    }
  return found;
}
