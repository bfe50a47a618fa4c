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

/** Joins what libvirt, the file system and the settings say. `isBase` is set by the caller, who knows all pools. */
export function buildPool(
  definition: PoolDefinition,
  numbers: PoolNumbers,
  mount: MountFacts | undefined,
  marks: PoolMarks,
): PoolRecord {
  const kind = poolKind(definition, mount?.network);
  const hasDirectory = keepsFiles(definition.type);
  return {
    id: definition.id,
    name: definition.name,
    kind,
    path: definition.path,
    hasDirectory,
    ...numbers,
    mounted: hasDirectory ? (mount?.mounted ?? false) : numbers.active,
    readonly: marks.readonly || (mount?.readonly ?? false),
    outside: marks.outside,
    shared: definition.type === 'netfs' || mount?.network !== undefined || kind === 'lvm-shared',
    description: marks.description,
    isBase: false,
  };
}
