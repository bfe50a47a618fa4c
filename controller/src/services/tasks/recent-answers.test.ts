import { expect, test } from '@jest/globals';
import { RecentAnswers } from './recent-answers.ts';

test('an answer is there for ten minutes', () => {
  let nowMs = 0;
  const answers = new RecentAnswers(() => nowMs);
  answers.keep('a', '1');
  nowMs = 599_999;
  answers.keep('b', '2');
  expect([answers.find('a'), answers.find('b'), answers.find('c')]).toEqual(['1', '2', undefined]);
  nowMs = 600_001;
  expect([answers.find('a'), answers.find('b')]).toEqual([undefined, '2']);
});

test('the oldest go when there are too many, or too much', () => {
  const answers = new RecentAnswers(() => 0);
  for (let index = 0; index < 1001; index += 1) answers.keep(`${index}`, 'x');
  expect([answers.find('0'), answers.find('1')]).toEqual([undefined, 'x']);
  answers.keep('long', 'x'.repeat(32 * 1024 * 1024 - 1));
  expect([answers.find('999'), answers.find('1000')]).toEqual([undefined, 'x']);
  answers.keep('longer', 'x'.repeat(33 * 1024 * 1024));
  expect(answers.find('longer')).toBeUndefined();
});
