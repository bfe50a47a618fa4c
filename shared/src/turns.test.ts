import { expect, test } from '@jest/globals';
import { inPieces, shareAnswering, shareLoop } from './turns.ts';

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

/** Has many ask for a turn that was used up, and each keep the loop for so long then. @returns how many went on in each iteration */
async function manyAtOnce(keepMs: number): Promise<{ resumed: number[]; inIteration: number[] }> {
  const resumed: number[] = [];
  const inIteration: number[] = [];
  let before = 0;
  let isOver = false;
  const look = () => {
    if (resumed.length > before) inIteration.push(resumed.length - before);
    before = resumed.length;
    if (!isOver) setImmediate(look);
  };
  const keep = (ms: number) => {
    const endMs = performance.now() + ms;
    while (performance.now() < endMs);
  };
  const worker = async (number: number) => {
    await shareLoop();
    resumed.push(number);
    keep(keepMs);
  };
  keep(10);
  const working = Array.from({ length: 20 }, (_, number) => worker(number));
  setImmediate(look);
  await Promise.all(working);
  isOver = true;
  return { resumed, inIteration };
}

test('the turn of all of them together is as long as that of one, in the order in which they asked', async () => {
  const { resumed, inIteration } = await manyAtOnce(6);
  expect(resumed).toEqual(Array.from({ length: 20 }, (_, number) => number));
  expect(Math.max(...inIteration)).toBe(1);
});

test('those that have little to do go on together', async () => {
  const { inIteration } = await manyAtOnce(0);
  expect(inIteration.length).toBeLessThan(10);
});

test('pieces have all that is there when it is their turn, in its order', async () => {
  const things = new Set([1, 2, 3, 4, 5]);
  const pieces: (readonly number[])[] = [];
  for await (const piece of inPieces(things, 2)) {
    pieces.push(piece);
    if (piece.includes(1)) things.delete(4);
    if (piece.includes(3)) things.add(6);
  }
  expect(pieces).toEqual([[1, 2], [3, 5], [6]]);
  for await (const piece of inPieces([], 2)) expect(piece).toBeUndefined();
});

test('what an answer waits for does not wait for all other work in each of its turns', async () => {
  const keep = (ms: number) => {
    const endMs = performance.now() + ms;
    while (performance.now() < endMs);
  };
  let turns = 0;
  let isOver = false;
  const other = async () => {
    while (!isOver) {
      await shareLoop();
      keep(6);
      turns += 1;
    }
  };
  const others = Array.from({ length: 20 }, other);
  for (let piece = 0; piece < 10; piece += 1) {
    await shareAnswering();
    keep(6);
  }
  isOver = true;
  const before = turns;
  await Promise.all(others);
  // one in each iteration, and twenty once, before any of them had to wait
  expect(before).toBeLessThan(45);
});
