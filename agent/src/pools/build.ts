import type { MountFacts } from './mount.ts';
import { keepsFiles, type PoolDefinition, poolKind } from './parse-pool.ts';
import type { PoolRecord } from './record.ts';
import type { PoolMarks } from './settings.ts';

/** libvirt's numbers of a pool; all 0 while it is not active. */
export interface PoolNumbers {
  active: boolean;
  capacity: number;
  allocation: number;
  available: number;
}

/** Joins what libvirt and the file system say. */
export function buildPool(
  definition: PoolDefinition,
  numbers: PoolNumbers,
  mount: MountFacts | undefined,
): PoolRecord {
  const kind = poolKind(definition, mount?.network);
  const hasDirectory = keepsFiles(definition.type);
  return {
    id: definition.id,
    name: definition.name,
    kind,
    ...(definition.path !== undefined && { path: definition.path }),
    hasDirectory,
    ...numbers,
    mounted: hasDirectory ? (mount?.mounted ?? false) : numbers.active,
    readonly: mount?.readonly ?? false,
    outside: false,
    shared: definition.type === 'netfs' || mount?.network !== undefined || kind === 'lvm-shared',
    description: '',
    isBase: false,
  };
}

/** Adds what was noted about the pool on this node; a mark only ever takes away. */
export function withMarks(pool: PoolRecord, marks: PoolMarks): PoolRecord {
  return {
    ...pool,
    readonly: pool.readonly || marks.readonly,
    outside: pool.outside || marks.outside,
    description: marks.description,
  };
}
