import { expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { type Circumstances, choose, mayBegin, type QueuedPart } from './queue.ts';

function anyQueue(below: (limit: number) => number): { parts: QueuedPart[]; circumstances: Circumstances } {
  const runs = Array.from({ length: 1 + below(4) }, (_, number) => ({
    id: `r${number}`,
    isManual: below(4) === 0,
    due: below(3),
    parallel: below(3),
  }));
  const parts = Array.from({ length: below(8) }, (_, number) => ({
    key: `p${number}`,
    run: runs[below(runs.length)]!,
    nodeId: below(5) === 0 ? null : `n${below(3)}`,
    poolId: below(3) === 0 ? null : `s${below(2)}`,
    estimate: below(3),
    notBefore: below(4) === 0 ? 2 : 0,
  }));
  const counts = (prefix: string, kinds: number) =>
    new Map(Array.from({ length: below(kinds + 1) }, (_, number) => [`${prefix}${number}`, below(3)]));
  const load = {
    byRun: counts('r', 4),
    byNode: counts('n', 3),
    byPool: counts('s', 2),
    freeOfPool: counts('s', 2),
  };
  const away = new Set(counts('n', 1).keys());
  return { parts, circumstances: { load, away, limits: { perNode: below(4), perPool: below(4) }, now: 1 } };
}

test('whether any may begin is known without an order, and each part begins or waits', () => {
  const seen = new Set<boolean>();
  for (let seed = 0; seed < 3000; seed += 1) {
    const { parts, circumstances } = anyQueue(seededRandom(seed));
    const { begin, waiting } = choose(parts, circumstances);
    const able = mayBegin(
      parts.map(queued => ({ queued })),
      circumstances,
    ).map(({ queued }) => queued.key);
    seen.add(able.length > 0);
    expect({ seed, may: able.length > 0 }).toEqual({ seed, may: begin.length > 0 });
    expect(able).toEqual(expect.arrayContaining(begin));
    const keys = [...begin, ...waiting.map(({ key }) => key)].sort();
    expect({ seed, keys }).toEqual({ seed, keys: parts.map(({ key }) => key) });
  }
  expect(seen.size).toBe(2);
});

test('a run by hand comes first, then the run of which the fewest parts run', () => {
  const run = (id: string, isManual: boolean) => ({ id, isManual, due: 0, parallel: 0 });
  const part = (key: string, of: QueuedPart['run']): QueuedPart => ({
    key,
    run: of,
    nodeId: 'n',
    poolId: null,
    estimate: 0,
    notBefore: 0,
  });
  const [big, small, byHand] = [run('big', false), run('small', false), run('hand', true)];
  const parts = [part('b1', big), part('b2', big), part('s1', small), part('h1', byHand)];
  const load = {
    byRun: new Map([['big', 1]]),
    byNode: new Map(),
    byPool: new Map(),
    freeOfPool: new Map(),
  };
  const limits = { perNode: 3, perPool: 0 };
  expect(choose(parts, { load, away: new Set(), limits, now: 0 })).toEqual({
    begin: ['h1', 's1', 'b1'],
    waiting: [{ key: 'b2', reason: 'node_limit' }],
  });
});
