import { beforeEach, expect, test } from '@jest/globals';
import { OrderedThings } from './ordered-things.ts';

interface Thing {
  id: string;
  name: string;
}

const things = new Map<string, Thing>();
/** Of their nodes. */
const states = new Map<string, string>();
let looks = 0;
/** Called when it is looked for a thing, with how often that was done. */
let onLook: (looks: number) => void = () => {};
const lists = new OrderedThings<Thing>({
  all: () => things.keys(),
  find: id => {
    looks += 1;
    onLook(looks);
    return things.get(id);
  },
  fields: { name: thing => thing.name, id: thing => thing.id, state: ({ id }) => states.get(id) ?? null },
  nodeFields: ['state'],
});

beforeEach(() => {
  things.clear();
  states.clear();
  lists.forget();
  onLook = () => {};
  looks = 0;
});

function put(id: string, name: string): void {
  things.set(id, { id, name });
  lists.touch(id);
}

const page = async (field: string, descending: boolean, which = {}, { limit = 10, offset = 0 } = {}) => {
  const found = await lists.page({ ordering: { field, descending }, limit, offset }, which);
  return [found.count, ...found.things.map(({ id }) => id)];
};
const isB = ({ name }: Thing) => name === 'b';

test('pages are cut out of what matches, in order', async () => {
  put('1', 'b');
  put('2', 'a');
  put('3', 'b');
  expect(await page('name', false)).toEqual([3, '2', '1', '3']);
  expect(await page('name', true)).toEqual([3, '1', '3', '2']);
  expect(await page('name', false, { among: ['3', '1', 'gone'] })).toEqual([2, '1', '3']);
  for (const name of [undefined, 'called b', 'called b'])
    expect(await page('name', false, { matches: isB, name }, { limit: 1, offset: 1 })).toEqual([2, '3']);
  put('2', 'b');
  things.delete('1');
  lists.touch('1');
  expect(await page('id', true)).toEqual([2, '3', '2']);
  for (const name of [undefined, 'called b'])
    expect(await page('name', false, { matches: isB, name })).toEqual([2, '2', '3']);
});

test('those that match are looked for once', async () => {
  for (let number = 10; number < 1000; number += 1) put(`${number}`, number % 2 ? 'b' : 'c');
  await page('id', false, { matches: isB, name: 'called b' });
  looks = 0;
  put('11', 'c');
  expect((await page('id', false, { matches: isB, name: 'called b' }))[0]).toBe(494);
  expect(looks).toBeLessThan(20);
});

function remove(id: string): void {
  things.delete(id);
  lists.touch(id);
}

const WAYS: Record<string, object> = {
  all: {},
  'those that match': { matches: isB },
  'those that match, kept': { matches: isB, name: 'called b' },
  'some that match': {
    matches: isB,
    among: new Set(Array.from({ length: 5000 }, (_, number) => `${number}`)),
  },
};

test.each(Object.keys(WAYS))('what changes while a page is made is on it as it is then: %s', async way => {
  for (let number = 0; number < 5000; number += 1) put(`${number}`, 'b');
  onLook = count => {
    if (count !== 3000) return;
    put('0', 'a');
    put('4999', 'ba');
    for (let number = 1; number < 400; number += 1) remove(`${number}`);
  };
  const isAll = way === 'all';
  const found = await page('name', true, WAYS[way], { limit: 2 });
  expect(found).toEqual(isAll ? [4601, '4999', '1000'] : [4599, '1000', '1001']);
  onLook = () => {};
  expect(await page('name', true, WAYS[way], { limit: 2 })).toEqual(found);
  expect(await page('name', false, WAYS[way], { limit: 1 })).toEqual([found[0], isAll ? '0' : '1000']);
});

test('of those that are asked for a page has no others, also not what comes meanwhile', async () => {
  for (let number = 0; number < 2000; number += 1) put(`${number}`, 'b');
  onLook = count => {
    if (count !== 1) return;
    put('2000', 'a');
    put('7', 'a');
    remove('8');
  };
  expect(await page('name', false, { among: ['6', '7', '8', '9', '7'].values() })).toEqual([
    3,
    '7',
    '6',
    '9',
  ]);
});

test('an order is put in order once for all who ask meanwhile', async () => {
  for (let number = 0; number < 5000; number += 1) put(`${number}`, 'b');
  const pages = await Promise.all([1, 2, 3].map(() => page('name', false, {}, { limit: 1 })));
  expect(pages).toEqual([1, 2, 3].map(() => [5000, '0']));
  expect(looks).toBe(5003);
});

test('an order that is not kept while somebody waits for it hears of what changes all the same', async () => {
  for (let number = 0; number < 3000; number += 1) put(`${number}`, 'b');
  const first = page('name', false, {}, { limit: 1 });
  const others = Array.from({ length: 20 }, (_, number) =>
    page('name', false, { matches: isB, name: `${number}` }),
  );
  put('7', 'a');
  for (const thing of things.values()) if (thing.id !== '7') thing.name = `c${thing.id}`;
  lists.forget();
  put('8', 'bb');
  expect(await first).toEqual([3000, '7']);
  for (const other of others) expect(await other).toEqual([0]);
  expect(await page('name', false, {}, { limit: 2 })).toEqual([3000, '7', '8']);
});

test('what is forgotten while somebody waits for an order that is not kept is put in order anew', async () => {
  for (let number = 0; number < 3000; number += 1) put(`${number}`, 'b');
  onLook = count => {
    if (count !== 2900) return;
    for (const thing of things.values()) thing.name = thing.id === '7' ? 'a' : 'c';
    lists.forget();
  };
  const among = [...things.keys()];
  expect(await page('name', false, { among }, { limit: 2 })).toEqual([3000, '7', '0']);
});

test.each([1, 100])(
  'when %s nodes have changed, only what says something of them is put in order anew',
  async count => {
    for (let number = 10; number < 1000; number += 1) put(`${number}`, 'b');
    const isOn = ({ id }: Thing) => states.get(id) === 'on';
    const on = { matches: isOn, name: 'on' };
    for (const which of [{}, on]) await page('name', false, which);
    await page('state', true);
    states.set('500', 'on');
    lists.nodesChanged(Array(count).fill('node'), () => ['500', '501']);
    looks = 0;
    expect(await page('name', false, {}, { limit: 1 })).toEqual([990, '10']);
    expect(looks).toBe(1);
    expect(await page('state', true, {}, { limit: 1 })).toEqual([990, '500']);
    expect(await page('name', false, on)).toEqual([1, '500']);
  },
);
