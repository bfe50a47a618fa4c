import { expect, test } from '@jest/globals';
import type { Effect } from '../workflows/effect.ts';
import type { ActiveOperation } from './active.ts';
import { Settler } from './settle.ts';

test('what moves data is not cut off by time, to begin anew again and again; the end of the agent stops all', async () => {
  const closing = new AbortController();
  const settler = new Settler(closing.signal, { undoTimeoutMs: 0 });
  const signals = new Map<string, AbortSignal>();
  const effects = {
    undoAll: async (signalOf: (effect: Effect) => AbortSignal) => {
      for (const type of ['automatic_state', 'removed_state', 'file'] as const)
        signals.set(type, signalOf({ type } as Effect));
      return [];
    },
  };
  await settler.undo({ effects } as unknown as ActiveOperation);
  const timedOut = signals.get('file')!;
  if (!timedOut.aborted) await new Promise(resolve => timedOut.addEventListener('abort', resolve));
  const aborted = () => [...signals].filter(([, signal]) => signal.aborted).map(([type]) => type);
  expect(aborted()).toEqual(['file']);
  closing.abort();
  expect(aborted()).toEqual(['automatic_state', 'removed_state', 'file']);
});
