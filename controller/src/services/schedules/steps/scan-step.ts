import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Actor } from '../../../auth/principal.ts';
import type { PoolService } from '../../pools/pools.ts';
import { type EndedTask, isGood, type OpenPart, type Step, type StepEnd } from './step.ts';

/** Reads what a data pool has anew. */
export class ScanStep implements Step {
  readonly #pools: Pick<PoolService, 'scan'>;

  constructor(pools: Pick<PoolService, 'scan'>) {
    this.#pools = pools;
  }

  async plan(): Promise<Record<string, never>> {
    return {};
  }

  begin({ row }: OpenPart, user: Actor, taskId: string): Promise<unknown> {
    return this.#pools.scan(row.entity_id, user, taskId);
  }

  async ended(_part: OpenPart, task: EndedTask): Promise<StepEnd> {
    return isGood(task) ? { go: 'next' } : { go: 'fail', error: task.error ?? new VirtkeepError('canceled') };
  }
}
