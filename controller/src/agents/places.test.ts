import { afterEach, expect, jest, test } from '@jest/globals';
import { Places } from './places.ts';

afterEach(() => {
  jest.useRealTimers();
});

const never = new AbortController().signal;
const settle = async () => {
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
};

/** Takes a place for each of them; who has begun, in that order. */
function taking(places: Places) {
  const begun: string[] = [];
  const frees = new Map<string, () => void>();
  const take = (name: string, isDoubtful = false, signal = never) =>
    places.take(isDoubtful, signal).then(
      free => {
        begun.push(name);
        frees.set(name, free);
      },
      () => begun.push(`${name} gave up`),
    );
  return { begun, take, free: (name: string) => frees.get(name)!() };
}

test('so many begin at a time, in the order in which they came', async () => {
  const { begun, take, free } = taking(new Places({ count: 2, holdMs: 60_000 }));
  for (const name of ['a', 'b', 'c', 'd']) void take(name);
  await settle();
  expect(begun).toEqual(['a', 'b']);
  free('b');
  free('b');
  await settle();
  expect(begun).toEqual(['a', 'b', 'c']);
});

test('those that did not answer have half of the places at most, and come after the others', async () => {
  const { begun, take, free } = taking(new Places({ count: 2, holdMs: 60_000 }));
  void take('dead', true);
  void take('dead too', true);
  void take('live');
  void take('live too');
  await settle();
  expect(begun).toEqual(['dead', 'live']);
  free('dead');
  await settle();
  expect(begun).toEqual(['dead', 'live', 'live too']);
  free('live');
  await settle();
  expect(begun).toEqual(['dead', 'live', 'live too', 'dead too']);
});

test('who takes long gives the place up', async () => {
  jest.useFakeTimers();
  const { begun, take } = taking(new Places({ count: 1, holdMs: 1000 }));
  void take('dead');
  void take('live');
  await settle();
  jest.advanceTimersByTime(1000);
  await settle();
  expect(begun).toEqual(['dead', 'live']);
});

test('who is not to have it any more takes none', async () => {
  const { begun, take, free } = taking(new Places({ count: 1, holdMs: 60_000 }));
  const stop = new AbortController();
  void take('a');
  void take('b', false, stop.signal);
  void take('c');
  await settle();
  stop.abort(new Error('stopped'));
  free('a');
  await settle();
  expect(begun).toEqual(['a', 'b gave up', 'c']);
});
