import { backupTargetRefusal } from './guards.ts';
import type { PoolRecord } from './record.ts';

/**
 * The node's base data pool: the chosen one as long as it exists (even when it cannot be used at present: a backup then
 * fails visibly instead of landing elsewhere); else the usable pool named "default", else the first usable local one by
 * name. Undefined when there is none.
 */
export function basePoolId(pools: readonly PoolRecord[], chosen: string | undefined): string | undefined {
  if (chosen && pools.some(pool => pool.id === chosen)) return chosen;
  const usable = pools.filter(pool => !backupTargetRefusal(pool)).sort((a, b) => (a.name < b.name ? -1 : 1));
  const named = usable.find(pool => pool.name === 'default');
  return (named ?? usable.find(pool => !pool.shared) ?? usable[0])?.id;
}
