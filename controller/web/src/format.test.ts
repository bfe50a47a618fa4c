import { expect, test } from '@jest/globals';
import { formatOf } from './format.ts';
import { en } from './texts/en.ts';
import { ru } from './texts/ru.ts';

const english = formatOf('en', 'never');
const russian = formatOf('ru', 'никогда');
const NOW = Date.parse('2026-03-01T12:00:00Z');

test('sizes are in binary units, with one digit after the point at most', () => {
  expect([0, 1023, 1024, 1536, 20 * 1024 ** 3, 3 * 1024 ** 5, 2 ** 63].map(english.size)).toEqual([
    ...['0 B', '1,023 B', '1 KiB', '1.5 KiB', '20 GiB', '3 PiB', '8,192 PiB'],
  ]);
  expect(russian.size(1536)).toBe('1,5 KiB');
});

test('ages are told by the largest unit that fits, also of what is to come', () => {
  const age = (time: string | null) => english.age(time, NOW);
  expect(age('2026-03-01T11:59:50Z')).toBe('10 seconds ago');
  expect(age('2026-03-01T09:00:00Z')).toBe('3 hours ago');
  expect(age('2026-02-28T11:00:00Z')).toBe('yesterday');
  expect(age('2026-03-01T12:45:00Z')).toBe('in 45 minutes');
  expect(age(null)).toBe('never');
  expect(russian.age('2026-03-01T09:00:00Z', NOW)).toBe('3 часа назад');
});

test('a duration is told by the largest unit that it has', () => {
  expect([0, 30, 240, 7300, 200_000].map(english.duration)).toEqual([
    ...['1 sec', '30 sec', '4 min', '2 hr', '2 days'],
  ]);
  expect(russian.duration(240)).toBe('4 мин');
  expect(english.second('2026-03-01T12:00:07Z')).toMatch(/:07/);
});

test('a time is told with its zone, and none as such', () => {
  expect(english.time('2026-03-01T12:00:00Z')).toMatch(/Mar 1, 2026.*(UTC|GMT|[A-Z]{2,4})/);
  expect(english.time(null)).toBe('never');
  expect(english.day('2026-03-01')).toBe('3/1');
});

test('numbers of things are told as each language counts', () => {
  expect([1, 2].map(en.backup.of)).toEqual(['1 machine', '2 machines']);
  expect([1, 3, 5, 11, 21, 22].map(ru.backup.of)).toEqual([
    ...['1 машина', '3 машины', '5 машин', '11 машин', '21 машина', '22 машины'],
  ]);
});
