import { realpath } from 'node:fs/promises';
import { ErrorCode, isLibvirtError, type Libvirt, PoolState, type StoragePool } from '@virtkeep/node-libvirt';
import { guardBackups } from '@virtkeep/shared/beneath';
import { reasonOf } from '@virtkeep/shared/errors';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Logger } from '@virtkeep/shared/log';
import { isAnswer } from '../libvirt/errors.ts';
import {
  buildPool,
  directoriesOf,
  fsFacts,
  type KnownPlace,
  keepsFiles,
  knownPlaces,
  type MountFacts,
  otherWriters,
  type PathGate,
  type PoolDefinition,
  type PoolNumbers,
  type PoolRecord,
  parsePool,
  poolMarks,
  probeMount,
  rememberPlaces,
  type Settings,
  setPoolMarks,
} from '../pools/index.ts';

/** What is done about a pool in which others than root may write. */
export type OwnershipRule = 'refuse' | 'warn';

export interface PoolSources {
  settings: Settings;
  ownership: OwnershipRule;
  gate: PathGate;
  log: Logger;
}

/**
 * libvirt's storage pools with what the file systems and the settings say. What is there is remembered.
 * @throws LibvirtError
 */
export async function readPools(libvirt: Libvirt, sources: PoolSources): Promise<PoolRecord[]> {
  const read = await mapLimited(await libvirt.pools(), 4, pool => readPool(pool, sources));
  const found = read.filter(pool => pool !== undefined);
  rememberPlaces(
    sources.settings,
    found.flatMap(({ place }) => place ?? []),
  );
  return found.map(({ record }) => record);
}

async function readPool(
  pool: StoragePool,
  { settings, gate, log, ownership }: PoolSources,
): Promise<{ record: PoolRecord; place?: KnownPlace } | undefined> {
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
    const mount = looked?.mount;
    const how = looked?.writers;
    const record = {
      ...buildPool(definition, looked?.numbers ?? numbers, active ? mount : undefined),
      ...(how !== undefined && { othersMayWrite: { how, refused: ownership === 'refuse' } }),
    };
    const { id, name, path } = definition;
    const place = path && mount?.mounted ? { id, name, path, ...placeFacts(mount) } : undefined;
    return { record, ...(place && { place }) };
  } catch (error) {
    if (isAnswer(error, ErrorCode.NO_STORAGE_POOL)) return undefined;
    if (isLibvirtError(error)) throw error;
    log.warn('a data pool cannot be read', { pool: pool.name, error });
    return undefined;
  }
}

const placeFacts = ({ mountPoint, marker }: MountFacts) => ({ mountPoint, marker });

/** Looks at the directory of a pool that has one, and remembers the marker file. libvirt's own sizes are old. */
async function lookAt(
  definition: PoolDefinition,
  numbers: PoolNumbers,
  settings: Settings,
): Promise<{ mount?: MountFacts; numbers: PoolNumbers; writers?: string | undefined }> {
  const { id, path, type } = definition;
  if (!path || !keepsFiles(type)) return { numbers };
  guardBackups(path);
  guardBackups(await realpath(path).catch(() => path));
  const hadMarker = poolMarks(settings, id).marker;
  const formerMountPoint = knownPlaces(settings)?.find(
    place => place.id === id && place.path === path,
  )?.mountPoint;
  const mount = await probeMount({ id, path, type, hadMarker, formerMountPoint, mayMark: numbers.active });
  if (mount.marker && !hadMarker) setPoolMarks(settings, id, { marker: true });
  if (!mount.mounted || !numbers.active) return { mount, numbers };
  const { capacity, available } = await fsFacts(path);
  return {
    mount,
    writers: await writersOf(path),
    numbers: { ...numbers, capacity, available, allocation: Math.max(0, capacity - available) },
  };
}

/** What cannot be looked at (root is squashed, a link leads to itself) may be anybody's: the pool is listed all the same. */
const writersOf = (path: string): Promise<string | undefined> =>
  directoriesOf(path).then(
    otherWriters,
    error => `whose its directories are cannot be told (${reasonOf(error)})`,
  );
