import { expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { compareKeys, compareTexts } from './list-order.ts';

test('plain texts are in the order that people expect of English', () => {
  const random = seededRandom(7);
  const characters = '-0123456789abcdefghijklmnopqrstuvwxyz';
  const text = () => Array.from({ length: random(6) }, () => characters[random(characters.length)]).join('');
  for (let times = 0; times < 20_000; times += 1) {
    const [a, b] = [text(), text()];
    expect([a, b, Math.sign(compareTexts(a, b))]).toEqual([a, b, Math.sign(a.localeCompare(b, 'en'))]);
  }
});

test('times are in the order of their codes', () => {
  const random = seededRandom(9);
  const time = () => new Date(random(2 ** 32) * 500).toISOString();
  for (let times = 0; times < 2000; times += 1) {
    const [a, b] = [time(), time()];
    expect([a, b, Math.sign(compareTexts(a, b))]).toEqual([a, b, Math.sign(a.localeCompare(b, 'en'))]);
  }
});

test('numbers by value, names of things, what is absent first', () => {
  expect([10, 9, null, 2].sort(compareKeys)).toEqual([null, 2, 9, 10]);
  const things = ['b', 'A', 'a'].map(verbose_name => ({ verbose_name }));
  expect(things.sort(compareKeys).map(({ verbose_name }) => verbose_name)).toEqual(['a', 'A', 'b']);
});
