import { expect, test } from '@jest/globals';
import { OrderedThings } from './ordered-things.ts';

interface Thing {
  id: string;
  name: string;
  place: string;
}

const things = new Map<string, Thing>();
const connected = new Set(['n']);
const lists = new OrderedThings<Thing>({
  all: () => things.keys(),
  find: id => things.get(id),
  own: { name: thing => thing.name },
  derived: { status: thing => (connected.has(thing.place) ? 'ACTIVE' : 'FAILED') },
});

function put(id: string, name: string, place: string): void {
  things.set(id, { id, name, place });
  lists.touch(id);
}

const page = (field: string, descending: boolean, which = {}, { limit = 10, offset = 0 } = {}) => {
  const found = lists.page({ ordering: { field, descending }, limit, offset }, which);
  return [found.count, ...found.things.map(({ id }) => id)];
};

test('pages are cut out of what matches, in order', () => {
  put('1', 'b', 'n');
  put('2', 'a', 'm');
  put('3', 'b', 'm');
  expect(page('name', false)).toEqual([3, '2', '1', '3']);
  expect(page('name', true)).toEqual([3, '1', '3', '2']);
  expect(page('name', false, { among: ['3', '1', 'gone'] })).toEqual([2, '1', '3']);
  expect(
    page('name', false, { matches: ({ name }: Thing) => name === 'b' }, { limit: 1, offset: 1 }),
  ).toEqual([2, '3']);
  expect(page('status', false)).toEqual([3, '1', '2', '3']);
  connected.add('m').delete('n');
  expect(page('status', false)).toEqual([3, '2', '3', '1']);
  expect(page('status', true)).toEqual([3, '1', '2', '3']);
  put('2', 'c', 'm');
  things.delete('1');
  lists.touch('1');
  expect(page('name', false)).toEqual([2, '3', '2']);
  expect(page('status', false)).toEqual([2, '2', '3']);
});
