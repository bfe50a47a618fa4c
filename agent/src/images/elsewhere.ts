/** Whether other nodes can reach files, and have gone on with the disks of a domain that is off here before its layers are merged. */
import { relative } from 'node:path';
import type { Thing } from '../other-nodes.ts';
import { isShared, type PoolRecord, poolOfPath } from '../pools/index.ts';
import { type ImageDependencies, realFile, type Verdict, withRealPaths } from './judge.ts';

export interface ElsewhereQuestion {
  domainId: string;
  /** The files that would be written to. */
  paths: readonly string[];
  /** The files are proven to be unchanged: then neither a mere definition elsewhere nor a node without an answer matters. */
  proven: boolean;
  /** A node without an answer matters all the same: a VM there may read the files. */
  isRead?: boolean;
}

/**
 * Who has the domain or its files on another node. A domain that runs there always counts. One that is only defined may have
 * run: it counts unless the files prove that it did not.
 */
export async function useElsewhere(
  { pools, otherNodes }: ImageDependencies,
  { domainId, paths, proven, isRead = false }: ElsewhereQuestion,
  signal: AbortSignal,
): Promise<Verdict> {
  const poolRecords = await withRealPaths(await pools(signal));
  const things: Thing[] = [{ kind: 'domain', id: domainId }];
  let isReachable = false;
  for (const path of paths) {
    const real = (await realFile(path)) ?? path;
    const pool = poolOfPath(real, poolRecords);
    isReachable ||= await isReachableElsewhere(real, pool);
    if (pool && !pool.outside)
      things.push({ kind: 'file', poolId: pool.id, path: relative(pool.path!, real) });
  }
  const answers = await otherNodes.whoUses(things, signal);
  for (const [index, answer] of answers.entries()) {
    if (answer.kind !== 'used') continue;
    const { domainId: userId, domainName, nodeName, active, lastRanHere } = answer.by;
    if (!active && (proven || lastRanHere)) continue;
    // a thin clone elsewhere is no copy of the domain; it counts by the files that it has
    if (index === 0 && userId !== domainId) continue;
    return { kind: 'used', by: `the domain ${domainName} on the node ${nodeName}` };
  }
  if ((proven && !isRead) || !isReachable) return { kind: 'free' };
  const unheard = answers.find(answer => answer.kind === 'unknown');
  return unheard ? { kind: 'unknown', reason: unheard.reason } : { kind: 'free' };
}

/** The first of the files that other nodes can reach; undefined: none of them. @throws VirtkeepError io_failed */
export async function reachableElsewhere(
  paths: readonly string[],
  pools: readonly PoolRecord[],
): Promise<string | undefined> {
  const poolRecords = await withRealPaths(pools);
  for (const path of paths) {
    const real = (await realFile(path)) ?? path;
    if (await isReachableElsewhere(real, poolOfPath(real, poolRecords))) return path;
  }
  return undefined;
}

/** A device may be one of a SAN. */
async function isReachableElsewhere(path: string, pool: PoolRecord | undefined): Promise<boolean> {
  return path.startsWith('/dev/') || (await isShared(path, pool));
}
