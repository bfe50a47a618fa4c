import { afterEach, expect, jest, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { SILENT } from '../schedules/test-kit.ts';
import { PoolService } from './pools.ts';

afterEach(() => {
  jest.restoreAllMocks();
});

type Get = (signal: AbortSignal) => Promise<{ active: boolean; mounted: boolean; available: bigint }>;

/** The pool p, which n1 told of as full before, and what it says now; with how often it was asked. */
function poolOf(get: Get) {
  const asked = { times: 0 };
  const told = { active: true, mounted: true, available: 0n };
  const clients = () => ({
    pools: {
      get: async (_: object, { signal }: { signal: AbortSignal }) => {
        asked.times += 1;
        return get(signal);
      },
    },
  });
  const pools = new PoolService({
    inventory: { pools: new Map([['p', { views: new Map([['n1', told]]) }]]), poolChanged: async () => {} },
    links: { clients },
    nodeTasks: { ends: { succeeded: () => {} } },
    log: SILENT,
  } as never);
  return { pools, asked };
}

test('what is free is what the node says now, and nobody knows it of one that cannot use the pool or does not say', async () => {
  const free = { active: true, mounted: true, available: 7n };
  expect(await poolOf(async () => free).pools.freeNow('p', 'n1')).toBe(7);
  const unmounted = poolOf(async () => ({ ...free, mounted: false }));
  expect(await unmounted.pools.freeNow('p', 'n1')).toBeUndefined();
  const dead = poolOf(() =>
    Promise.reject(new VirtkeepError('node_unreachable', { node: 'n1', reason: '' })),
  );
  expect(await dead.pools.freeNow('p', 'n1')).toBeUndefined();
});

test('those who ask soon after each other share one question, but for those who want the state of now', async () => {
  const { pools, asked } = poolOf(async () => ({ active: true, mounted: true, available: 7n }));
  const both = await Promise.all([pools.freeNow('p', 'n1', 60_000), pools.freeNow('p', 'n1', 60_000)]);
  expect({ both, ...asked }).toEqual({ both: [7, 7], times: 1 });
  await pools.freeNow('p', 'n1');
  expect(asked.times).toBe(2);
});

test('a node that gave no answer in time is not asked again at once, about any of its pools, but for the state of now', async () => {
  jest.spyOn(AbortSignal, 'timeout').mockReturnValue(AbortSignal.abort());
  let clock = 0;
  jest.spyOn(performance, 'now').mockImplementation(() => clock);
  const { pools, asked } = poolOf(async signal => {
    signal.throwIfAborted();
    throw new Error('it has time left');
  });
  for (const id of ['p', 'q', 'p']) expect(await pools.freeNow(id, 'n1', 1_000)).toBeUndefined();
  expect(asked.times).toBe(1);
  await pools.freeNow('q', 'n1');
  expect(asked.times).toBe(2);
  clock = 30_000;
  await pools.freeNow('p', 'n1', 1_000);
  expect(asked.times).toBe(3);
});
