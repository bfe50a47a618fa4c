import { expect, test } from '@jest/globals';
import { ageText, fitted, withAge, without } from './table.ts';

const NOW = Date.parse('2026-03-01T12:00:00Z');

test('a time is told with its age, and nothing else is changed', () => {
  expect(withAge('2026-02-24T04:26:17.000Z', NOW)).toBe('2026-02-24 04:26Z 5 d ago');
  expect(withAge('2026-03-01T15:30:00Z', NOW)).toBe('2026-03-01 15:30Z in 3 h');
  expect(withAge('web 2026-02-24T04:26:17.000Z', NOW)).toBe('web 2026-02-24T04:26:17.000Z');
  expect(ageText('2026-03-01T11:59:59Z', NOW)).toBe('1 s ago');
});

test('the longest cells are cut until a row fits, but no column to nothing', () => {
  const rows = [['a-very-long-name-of-a-machine', 'ACTIVE', 'the node with the longest name of all']];
  const [row] = fitted(['NAME', 'STATUS', 'NODE'], rows, 40);
  expect(row!.join('  ').length).toBe(40);
  expect(row).toEqual([expect.stringMatching(/^a-very-long-n.*…$/), 'ACTIVE', expect.stringMatching(/…$/)]);
  expect(fitted(['NAME', 'STATUS', 'NODE'], rows, 5)[0]).toEqual(['a-very-…', 'ACTIVE', 'the nod…']);
  expect(fitted(['NAME', 'STATUS', 'NODE'], rows, 500)).toEqual(rows);
});

test('columns are left out by their heads', () => {
  expect(without(['ID'], ['NAME', 'ID', 'X'], [['a', '1', 'x']])).toEqual({
    head: ['NAME', 'X'],
    rows: [['a', 'x']],
  });
});
