import { ErrorCode, isLibvirtError, type Libvirt, PoolState, type StoragePool } from '@virtkeep/node-libvirt';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Logger } from '@virtkeep/shared/log';
import { isAnswer } from '../libvirt/errors.ts';
import {
  buildPool,
  fsFacts,
  keepsFiles,
  type MountFacts,
  type PoolDefinition,
  type PoolNumbers,
  type PoolRecord,
  parsePool,
  poolMarks,
  probeMount,
  type Settings,
  setPoolMarks,
} from '../pools/index.ts';
import type { PathGate } from './path-gate.ts';

export interface PoolSources {
  settings: Settings;
  gate: PathGate;
  log: Logger;
}

/** libvirt's storage pools with what the file systems and the settings say. @throws LibvirtError */
export async function readPools(libvirt: Libvirt, sources: PoolSources): Promise<PoolRecord[]> {
  const pools = await mapLimited(await libvirt.pools(), 4, pool => readPool(pool, sources));
  return pools.filter(pool => pool !== undefined);
}

async function readPool(
  pool: StoragePool,
  { settings, gate, log }: PoolSources,
): Promise<PoolRecord | undefined> {
  try {
    const [xml, info] = await Promise.all([pool.xml(), pool.info()]);
    const definition = parsePool(xml, pool.name);
    const active = info.state === PoolState.RUNNING || info.state === PoolState.DEGRADED;
    const numbers = {
      active,
      capacity: info.capacity,
      allocation: info.allocation,
      available: info.available,
    };
    const looked = await gate.run(definition.id, () => lookAt(definition, numbers, settings));
    if (looked === undefined)
      log.warn('a data pool does not answer', { pool: pool.name, path: definition.path });
    return buildPool(definition, looked?.numbers ?? numbers, looked?.mount);
  } catch (error) {
    if (isAnswer(error, ErrorCode.NO_STORAGE_POOL)) return undefined;
    if (isLibvirtError(error)) throw error;
    log.warn('a data pool cannot be read', { pool: pool.name, error });
    return undefined;
  }
}

/** Looks at the directory of a pool that has one, and remembers the marker file. libvirt's own sizes are old. */
async function lookAt(
  definition: PoolDefinition,
  numbers: PoolNumbers,
  settings: Settings,
): Promise<{ mount?: MountFacts; numbers: PoolNumbers }> {
  const { id, path, type } = definition;
  if (!path || !keepsFiles(type) || !numbers.active) return { numbers };
  const hadMarker = poolMarks(settings, id).marker;
  const mount = await probeMount({ id, path, type, hadMarker });
  if (mount.marker && !hadMarker) setPoolMarks(settings, id, { marker: true });
  if (!mount.mounted) return { mount, numbers };
  const { capacity, available } = await fsFacts(path);
  return {
    mount,
    numbers: { ...numbers, capacity, available, allocation: Math.max(0, capacity - available) },
  };
}
