import { expect, test } from '@jest/globals';
import { watchOf } from './watch.ts';

test('the option is taken out of the arguments, and only where it is ours', () => {
  expect(watchOf(['vms', '--watch', '-o', 'wide'])).toEqual({ args: ['vms', '-o', 'wide'], everyS: 2 });
  expect(watchOf(['--watch=10', 'tasks'])).toEqual({ args: ['tasks'], everyS: 10 });
  expect(watchOf(['vm', 'exec', 'web', '--', 'x', '--watch'])).toEqual({
    args: ['vm', 'exec', 'web', '--', 'x', '--watch'],
  });
  for (const wrong of ['soon', '0', 'Infinity', '1e9'])
    expect(() => watchOf(['vms', `--watch=${wrong}`])).toThrow('no number of seconds');
});
