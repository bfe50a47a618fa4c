import { expect, test } from '@jest/globals';
import { OrderedThings } from './ordered-things.ts';

interface Thing {
  id: string;
  name: string;
}

const things = new Map<string, Thing>();
let looks = 0;
const lists = new OrderedThings<Thing>({
  all: () => things.keys(),
  find: id => {
    looks += 1;
    return things.get(id);
  },
  fields: { name: thing => thing.name, id: thing => thing.id },
});

function put(id: string, name: string): void {
  things.set(id, { id, name });
  lists.touch(id);
}

const page = (field: string, descending: boolean, which = {}, { limit = 10, offset = 0 } = {}) => {
  const found = lists.page({ ordering: { field, descending }, limit, offset }, which);
  return [found.count, ...found.things.map(({ id }) => id)];
};
const isB = ({ name }: Thing) => name === 'b';

test('pages are cut out of what matches, in order', () => {
  put('1', 'b');
  put('2', 'a');
  put('3', 'b');
  expect(page('name', false)).toEqual([3, '2', '1', '3']);
  expect(page('name', true)).toEqual([3, '1', '3', '2']);
  expect(page('name', false, { among: ['3', '1', 'gone'] })).toEqual([2, '1', '3']);
  for (const name of [undefined, 'called b', 'called b'])
    expect(page('name', false, { matches: isB, name }, { limit: 1, offset: 1 })).toEqual([2, '3']);
  put('2', 'b');
  things.delete('1');
  lists.touch('1');
  expect(page('id', true)).toEqual([2, '3', '2']);
  for (const name of [undefined, 'called b'])
    expect(page('name', false, { matches: isB, name })).toEqual([2, '2', '3']);
});

test('those that match are looked for once', () => {
  for (let number = 10; number < 1000; number += 1) put(`${number}`, number % 2 ? 'b' : 'c');
  page('id', false, { matches: isB, name: 'called b' });
  looks = 0;
  put('11', 'c');
  expect(page('id', false, { matches: isB, name: 'called b' })[0]).toBe(496);
  expect(looks).toBeLessThan(20);
});
