/**
 * Which controller acts: the one with the highest epoch that has called (`shared/src/epoch.ts`). One that has always been alone has none, and is
 * refused by a node that has seen one that has.
 */
import { EPOCH_KEY, parseEpoch } from '@virtkeep/shared/epoch';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ServerMiddleware } from 'nice-grpc-common';
import { peerIn } from './peer.ts';

const SETTING = 'controller.epoch';

/** The part of the journal that outlives the agent. */
export interface EpochStore {
  get(key: string): unknown;
  set(key: string, value: number): void;
}

/**
 * Refuses the calls of a controller of a lower epoch than the highest one, which is on disk before its first call is served.
 * @throws from each call: VirtkeepError controller_superseded
 */
export function epochMiddleware(store: EpochStore): ServerMiddleware {
  let highest = Number(store.get(SETTING) ?? 0);
  return async function* (call, context) {
    if (peerIn(context).role === 'controller') {
      const told = context.metadata.get(EPOCH_KEY);
      const epoch = told === undefined ? 0 : parseEpoch(told);
      if (epoch === undefined || epoch < highest)
        throw new VirtkeepError('controller_superseded', { epoch: told ?? '0', highest: String(highest) });
      if (epoch > highest) store.set(SETTING, epoch);
      highest = epoch;
    }
    return yield* call.next(call.request, context);
  };
}
