import { expect, test } from '@jest/globals';
import { SeenNodes } from './seen-nodes.ts';

test('what has come, gone or changed since the last look is told once', () => {
  const nodes = new Map([
    ['a', 'there'],
    ['b', 'there'],
  ]);
  const seen = new SeenNodes(
    () => nodes.keys(),
    id => nodes.get(id)!,
  );
  expect([seen.changed(), seen.changed()]).toEqual([['a', 'b'], []]);
  nodes.set('a', 'away');
  nodes.delete('b');
  nodes.set('c', 'there');
  expect([seen.changed(), seen.changed()]).toEqual([['a', 'c', 'b'], []]);
});
