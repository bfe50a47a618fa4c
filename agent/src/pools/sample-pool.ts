import type { PoolRecord } from './record.ts';

/** A local data pool for tests, mounted and writable, except for what is to be different. */
export function samplePool(name: string, change: Partial<PoolRecord> = {}): PoolRecord {
  return {
    id: `id-${name}`,
    name,
    kind: 'local',
    path: `/pools/${name}`,
    hasDirectory: true,
    active: true,
    mounted: true,
    capacity: 0,
    allocation: 0,
    available: 0,
    readonly: false,
    outside: false,
    shared: false,
    description: '',
    isBase: false,
    ...change,
  };
}
