import { expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { sortInPieces } from './sort-in-pieces.ts';

const compare = (a: number, b: number) => a - b;

test.each([0, 1, 999, 1000, 1001, 5000, 12_345])('%d things are in order then', async count => {
  const random = seededRandom(count + 1);
  const ordered = Array.from({ length: count }, (_, number) => number);
  const mixed = ordered.map(number => ({ number, at: random(2 ** 32) }));
  mixed.sort((a, b) => a.at - b.at);
  const numbers = mixed.map(({ number }) => number);
  expect(await sortInPieces(numbers, compare)).toEqual(ordered);
  expect(numbers).toEqual(mixed.map(({ number }) => number));
});

test('those that were in order before are hardly compared', async () => {
  let compared = 0;
  const counting = (a: number, b: number) => {
    compared += 1;
    return a - b;
  };
  const ordered = Array.from({ length: 50_000 }, (_, number) => number);
  expect(await sortInPieces(ordered, counting)).toEqual(ordered);
  expect(compared).toBeLessThan(51_000);
});
