import { expect, test } from '@jest/globals';
import { shareLoop } from './turns.ts';

/** Only ends what would never end: others that get no turn cannot say so. */
const LIMIT_MS = 60_000;

test('work in a row leaves turns to others', async () => {
  let others = 0;
  const other = () => {
    others += 1;
    if (others < 3) setImmediate(other);
  };
  setImmediate(other);
  const endMs = performance.now() + LIMIT_MS;
  while (others < 3 && performance.now() < endMs) await shareLoop();
  expect(others).toBe(3);
});

test('many who work at once have one turn in each iteration of the loop, in the order in which they asked', async () => {
  const resumed: number[] = [];
  const inIteration: number[] = [];
  let before = 0;
  let isOver = false;
  const look = () => {
    inIteration.push(resumed.length - before);
    before = resumed.length;
    if (!isOver) setImmediate(look);
  };
  const worker = async (number: number) => {
    // a turn has been used up: whoever asks waits
    const endMs = performance.now() + 10;
    while (performance.now() < endMs);
    await shareLoop();
    resumed.push(number);
  };
  const working = Array.from({ length: 20 }, (_, number) => worker(number));
  setImmediate(look);
  await Promise.all(working);
  isOver = true;
  expect(resumed).toEqual(Array.from({ length: 20 }, (_, number) => number));
  expect(Math.max(...inIteration)).toBe(1);
});
