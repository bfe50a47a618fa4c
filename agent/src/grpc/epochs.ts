/** Which controller acts: the one with the highest epoch that has called (`shared/src/epoch.ts`). A controller that is alone has none. */
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
    const epoch = parseEpoch(context.metadata.get(EPOCH_KEY) ?? '');
    if (epoch !== undefined && peerIn(context).role === 'controller') {
      if (epoch < highest)
        throw new VirtkeepError('controller_superseded', { epoch: String(epoch), highest: String(highest) });
      if (epoch > highest) store.set(SETTING, epoch);
      highest = epoch;
    }
    return yield* call.next(call.request, context);
  };
}
