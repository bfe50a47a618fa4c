import { expect, test } from '@jest/globals';
import { changesOf } from './opened.ts';

test('only what was changed in a form is saved', () => {
  const opened = { name: 'a', weekdays: ['mon'], enabled: true };
  expect(changesOf(opened, { name: 'b', weekdays: ['mon'], enabled: true })).toEqual({ name: 'b' });
  expect(changesOf(opened, { weekdays: ['mon', 'sun'] })).toEqual({ weekdays: ['mon', 'sun'] });
  expect(changesOf(opened, { ...opened })).toEqual({});
});
