import { expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { KeptOrder } from './kept-order.ts';
import { compareKeys } from './list-order.ts';

test.each([false, true])(
  'is that of all of them put in order anew, whatever changes (descending: %s)',
  descending => {
    const random = seededRandom(descending ? 3 : 5);
    const things = new Map<string, number | null>();
    for (let number = 0; number < 200; number += 1) things.set(`id-${number}`, random(20));
    const order = new KeptOrder(things.keys(), id => things.get(id), descending);
    const sign = descending ? -1 : 1;
    for (let round = 0; round < 300; round += 1) {
      const expected = [...things.keys()].sort(
        (a, b) => sign * compareKeys(things.get(a), things.get(b)) || compareKeys(a, b),
      );
      expect(order.ids()).toEqual(expected);
      for (let change = random(round % 10 === 0 ? 150 : 5); change >= 0; change -= 1) {
        const id = `id-${random(250)}`;
        if (random(4) === 0) things.delete(id);
        else things.set(id, random(10) === 0 ? null : random(20));
        order.touch(id);
      }
    }
  },
);

test('what has not changed is not compared again', () => {
  const names = new Map(Array.from({ length: 1000 }, (_, number) => [`${number}`, `vm-${number}`]));
  let asked = 0;
  const order = new KeptOrder(
    names.keys(),
    id => {
      asked += 1;
      return names.get(id);
    },
    false,
  );
  expect(order.ids()).toHaveLength(1000);
  names.set('7', 'a');
  order.touch('7');
  expect(order.ids()[0]).toBe('7');
  expect(asked).toBeLessThan(2050);
  expect(order.ids()).toBe(order.ids());
});
