import { basePoolId, type FsFacts, outsidePools, type PoolRecord } from '../pools/index.ts';

export interface PoolInputs {
  libvirtPools: readonly PoolRecord[];
  /** Files of all disks and images. */
  filePaths: readonly string[];
  /** By directory: what its file system holds. */
  outsideFacts: ReadonlyMap<string, FsFacts>;
  nodeId: string;
  /** Uuid of the base pool that was chosen. */
  chosenBase: string | undefined;
  /** Uuid or name of the base pool as long as nobody chose one. */
  defaultBase: string | undefined;
}

/** libvirt's pools, the directories of files outside of them, and the mark of the base pool. Pure. */
export function derivePools(inputs: PoolInputs): PoolRecord[] {
  const { libvirtPools, outsideFacts, defaultBase } = inputs;
  const outside = outsidePools(inputs.filePaths, libvirtPools, inputs.nodeId).map(pool => {
    const facts = outsideFacts.get(pool.path!);
    if (!facts) return pool;
    const { capacity, available } = facts;
    return { ...pool, capacity, available, allocation: Math.max(0, capacity - available) };
  });
  const all = [...libvirtPools, ...outside];
  const standard = all.find(pool => pool.id === defaultBase || pool.name === defaultBase)?.id;
  const base = basePoolId(all, inputs.chosenBase ?? standard);
  return all.map(pool => ({ ...pool, isBase: pool.id === base }));
}
