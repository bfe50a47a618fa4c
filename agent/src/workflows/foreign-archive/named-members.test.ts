import { expect, test } from '@jest/globals';
import type { MemberRecord } from '../../archive/index.ts';
import { finderOf, overlaysOf } from './named-members.ts';

const record = (name: string, kind: MemberRecord['kind'] = 'other') => ({ name, kind }) as MemberRecord;
const stateOf = (name: string, ...paths: string[]) => ({
  name,
  disks: paths.map((path, at) => ({ name: `vd${at}`, mode: 'external' as const, path })),
});
const named = (...names: string[]) => names.map(name => ({ name }));

test('of several names the first member counts, when it is of one of the kinds', () => {
  const find = finderOf([record('b.iso', 'iso'), record('a.iso', 'disk'), record('c'), record('a')]);
  expect(find(['a', 'c', 'b.iso'], ['iso', 'other'])?.name).toBe('b.iso');
  expect(find(['a', 'c'], ['other'])?.name).toBe('c');
  expect(find(['a.iso', 'x'], ['iso', 'other'])).toBeUndefined();
});

test('a layer is that of the saved state in its name, when it is the only one and the state of one disk', () => {
  const members = named(
    'd_s_1.snapshot',
    'x_s_1_2.snapshot',
    'd_two.snapshot',
    'e_two.snapshot',
    'd_off.snapshot',
  );
  const states = [
    stateOf('s_1', '/there/a.s_1'),
    stateOf('s_1_2', '/there/a.s_1_2'),
    stateOf('two', '/there/a.two'),
    stateOf('off', '/there/a.off', '/there/b.off'),
    stateOf('none', '/there/a.none'),
  ];
  expect([...overlaysOf(states, members)]).toEqual([
    ['d_s_1.snapshot', '/there/a.s_1'],
    ['x_s_1_2.snapshot', '/there/a.s_1_2'],
  ]);
  // the ending of the one is that of the other, too
  expect([...overlaysOf([stateOf('2', '/a.2')], named('a_1_2.snapshot', 'b_2.snapshot'))]).toEqual([]);
});

test('hundreds of thousands of names are looked for among as many members', () => {
  const count = 100_000;
  const names = Array.from({ length: count }, (_, at) => `state ${at}`);
  const find = finderOf(names.map(name => record(`d_${name}.snapshot`)));
  const missing = names.filter(name => find([name, `d_${name}.snapshot`], ['other']) === undefined);
  expect(missing).toEqual([]);
  const states = names.map(name => stateOf(name, `/there/${name}`));
  const overlays = overlaysOf(
    states,
    names.map(name => ({ name: `d_${name}.snapshot` })),
  );
  expect(overlays.size).toBe(count);
  expect(overlays.get(`d_state ${count - 1}.snapshot`)).toBe(`/there/state ${count - 1}`);
});
