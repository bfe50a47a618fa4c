import { expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { KeptOrder } from './kept-order.ts';
import { compareKeys } from './list-order.ts';

const named = (count: number) =>
  new Map<string, string | null>(Array.from({ length: count }, (_, number) => [`${number}`, `vm-${number}`]));

/** All of them put in order anew. */
function sorted(things: ReadonlyMap<string, unknown>, descending: boolean): string[] {
  const sign = descending ? -1 : 1;
  return [...things.keys()].sort(
    (a, b) => sign * compareKeys(things.get(a), things.get(b)) || compareKeys(a, b),
  );
}

const idsOf = (order: KeptOrder) => order.read(ids => ids);

/** An order of these by what they are, and how often it was asked for that; each time `meanwhile` is called with how often. */
function watched(things: ReadonlyMap<string, unknown>, meanwhile: (asked: number) => void = () => {}) {
  const calls = { asked: 0 };
  const order = new KeptOrder({
    all: () => things.keys(),
    keyOf: id => {
      calls.asked += 1;
      meanwhile(calls.asked);
      return things.get(id);
    },
    descending: false,
  });
  return { order, calls };
}

test.each([false, true])(
  'is that of all of them put in order anew, whatever changes (descending: %s)',
  async descending => {
    const random = seededRandom(descending ? 3 : 5);
    const things = new Map<string, number | null>();
    for (let number = 0; number < 200; number += 1) things.set(`id-${number}`, random(20));
    const order = new KeptOrder({ all: () => things.keys(), keyOf: id => things.get(id), descending });
    for (let round = 0; round < 300; round += 1) {
      expect(await idsOf(order)).toEqual(sorted(things, descending));
      for (let change = random(round % 10 === 0 ? 500 : 5); change >= 0; change -= 1) {
        const id = `id-${random(250)}`;
        if (random(4) === 0) things.delete(id);
        else things.set(id, random(10) === 0 ? null : random(20));
        order.touch(id);
      }
    }
  },
);

const KEYS: Record<string, (number: number) => unknown> = {
  numbers: number => number % 700,
  'plain texts': number => `vm-${number % 700}`,
  'texts of which a few are not plain': number => (number % 100 === 0 ? `Ä${number}` : `vm-${number % 700}`),
  times: number => new Date(number * 1e9).toISOString(),
};

test.each(Object.keys(KEYS))(
  'is right at the moment of each look, whatever changes until then: %s',
  async kind => {
    const random = seededRandom(11);
    const keyOf = (number: number) => (number % 50 === 7 ? null : KEYS[kind]!(number));
    const things = new Map<string, unknown>();
    for (let number = 0; number < 3000; number += 1) things.set(`id-${number}`, keyOf(random(3000)));
    const order = new KeptOrder({ all: () => things.keys(), keyOf: id => things.get(id), descending: true });
    let isOver = false;
    const change = (most: number) => {
      for (let left = random(most); left > 0; left -= 1) {
        const id = `id-${random(3500)}`;
        if (random(3) === 0) things.delete(id);
        else things.set(id, keyOf(random(3000)));
        order.touch(id);
      }
    };
    const changing = (async () => {
      for (; !isOver; await Promise.resolve()) {
        change(random(10) === 0 ? 100 : 3);
        if (random(30) === 0) await new Promise(setImmediate);
      }
    })();
    for (let round = 0; round < 12; round += 1) {
      if (round % 3 === 0) change(2000);
      if (round % 4 === 0) {
        // nobody tells of these
        for (const id of things.keys()) if (random(2) === 0) things.set(id, keyOf(random(3000)));
        order.forget();
      }
      const looks = [1, 2].map(() => order.read(ids => expect(ids).toEqual(sorted(things, true))));
      await Promise.all(looks);
    }
    isOver = true;
    await changing;
  },
);

test('what has not changed is not compared again', async () => {
  const names = named(1000);
  const { order, calls } = watched(names);
  expect(await idsOf(order)).toHaveLength(1000);
  expect(calls.asked).toBe(1000);
  names.set('7', 'a');
  order.touch('7');
  expect((await idsOf(order))[0]).toBe('7');
  expect(calls.asked).toBe(1001);
  expect(await idsOf(order)).toBe(await idsOf(order));
});

test('others go on while many are put in order', async () => {
  // longer than a turn
  const spin = (asked: number) => {
    if (asked % 500 !== 0) return;
    const endMs = performance.now() + 6;
    while (performance.now() < endMs);
  };
  const { order } = watched(named(20_000), spin);
  let iterations = 0;
  let isOver = false;
  const count = () => {
    iterations += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  expect(await idsOf(order)).toHaveLength(20_000);
  isOver = true;
  expect(iterations).toBeGreaterThan(15);
});

test('all who look while it is put in order wait for the same', async () => {
  const { order, calls } = watched(named(5000));
  const looks = [idsOf(order), idsOf(order)];
  await Promise.resolve();
  looks.push(idsOf(order));
  const [first, ...others] = await Promise.all(looks);
  expect(calls.asked).toBe(5000);
  for (const other of others) expect(other).toBe(first);
});

test('what comes, changes and goes while it is put in order is in its place', async () => {
  const names = named(5000);
  const { order } = watched(names, asked => {
    if (asked !== 2500) return;
    names.set('0', 'z').set('4999', 'a').set('new', 'b');
    names.delete('1');
    for (const id of ['0', '4999', 'new', '1']) order.touch(id);
  });
  const ids = await idsOf(order);
  expect(ids).toEqual(sorted(names, false));
  expect([ids[0], ids[1], ids.at(-1), ids.length]).toEqual(['4999', 'new', '0', 5000]);
});

test('of many that have changed only these are asked, and what changes meanwhile is in its place', async () => {
  const names = named(5000);
  let isLate = false;
  const { order, calls } = watched(names, () => {
    if (!isLate) return;
    isLate = false;
    names.set('9', '0').set('4000', 'z').set('new', 'b').delete('8');
    for (const id of ['9', '4000', 'new', '8']) order.touch(id);
  });
  await idsOf(order);
  for (let number = 0; number < 500; number += 1) {
    const id = `${number * 7}`;
    names.set(id, number % 3 === 0 ? `a-${number}` : `z-${number}`);
    if (number % 5 === 0) names.delete(id);
    order.touch(id);
  }
  isLate = true;
  calls.asked = 0;
  expect(await idsOf(order)).toEqual(sorted(names, false));
  expect(calls.asked).toBe(504);
});

test('what is forgotten while it is put in order is put in order anew', async () => {
  const names = named(5000);
  const { order, calls } = watched(names, asked => {
    if (asked !== 4000) return;
    for (const id of names.keys()) names.set(id, `${id.length}-${id}`);
    order.forget();
  });
  expect(await idsOf(order)).toEqual(sorted(names, false));
  expect(calls.asked).toBe(10_000);
});

test('what has changed elsewhere is asked for at the moment of the look', async () => {
  const names = named(2000);
  let asked = 0;
  const order: KeptOrder = new KeptOrder({
    all: () => names.keys(),
    keyOf: id => {
      asked += 1;
      // the last of all
      if (asked === 2000) names.set('7', 'a');
      return names.get(id);
    },
    descending: false,
    refresh: () => {
      if (names.get('7') === 'a') order.touch('7');
    },
  });
  expect((await idsOf(order))[0]).toBe('7');
});

test('what changes elsewhere and back while it is put in order is not taken for what it was between', async () => {
  const names = named(5000);
  let [asked, isAway, wasAway] = [0, false, false];
  const order: KeptOrder = new KeptOrder({
    all: () => names.keys(),
    keyOf: id => {
      const key = isAway ? 'away' : names.get(id);
      asked += 1;
      if (asked === 1000 || asked === 2000) isAway = !isAway;
      return key;
    },
    descending: false,
    refresh: () => {
      if (isAway !== wasAway) order.forget();
      wasAway = isAway;
    },
  });
  expect(await idsOf(order)).toEqual(sorted(names, false));
});

test('a look ends although ever more changes', async () => {
  const names = named(2000);
  let rounds = 0;
  const order: KeptOrder = new KeptOrder({
    all: () => names.keys(),
    keyOf: id => names.get(id),
    descending: false,
    refresh: () => {
      rounds += 1;
      for (let number = 0; number < 1000; number += 1) {
        names.set(`${number}`, `${rounds}-${number}`);
        order.touch(`${number}`);
      }
      if (rounds % 2 === 0) order.forget();
    },
  });
  for (let look = 0; look < 2; look += 1) await order.read(ids => expect(ids).toEqual(sorted(names, false)));
  expect(rounds).toBeLessThan(100);
});

test('what could not be put in order is at the next look', async () => {
  const names = named(1000);
  const { order } = watched(names, asked => {
    if (asked === 700) throw new Error('not now');
  });
  await expect(Promise.all([idsOf(order), idsOf(order)])).rejects.toThrow('not now');
  expect(await idsOf(order)).toEqual(sorted(names, false));
});
