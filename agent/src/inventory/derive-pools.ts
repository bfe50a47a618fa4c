import {
  basePoolId,
  type FsFacts,
  outsidePools,
  type PoolMarks,
  type PoolRecord,
  withMarks,
} from '../pools/index.ts';

export interface PoolInputs {
  libvirtPools: readonly PoolRecord[];
  /** Files of all disks and images. */
  filePaths: readonly string[];
  /** By directory: what its file system holds. */
  outsideFacts: ReadonlyMap<string, FsFacts>;
  nodeId: string;
  marksOf: (poolId: string) => PoolMarks;
  /** Uuid of the base pool that was chosen. */
  chosenBase: string | undefined;
  /** Uuid or name of the base pool as long as nobody chose one. */
  defaultBase: string | undefined;
}

/** libvirt's pools and the directories of files outside of them, with the marks they were given. Pure. */
export function derivePools(inputs: PoolInputs): PoolRecord[] {
  const { libvirtPools, outsideFacts, defaultBase } = inputs;
  const outside = outsidePools(inputs.filePaths, libvirtPools, inputs.nodeId).map(pool => {
    const facts = outsideFacts.get(pool.path!);
    if (!facts) return pool;
    const { capacity, available } = facts;
    return { ...pool, capacity, available, allocation: Math.max(0, capacity - available) };
  });
  const all = [...libvirtPools, ...outside].map(pool => withMarks(pool, inputs.marksOf(pool.id)));
  const standard = all.find(pool => pool.id === defaultBase || pool.name === defaultBase)?.id;
  const base = basePoolId(all, inputs.chosenBase ?? standard);
  return all.map(pool => ({ ...pool, isBase: pool.id === base }));
}
