import { setTimeout as wait } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { KeyedQueue } from './keyed-queue.ts';

test('the same key in order, another key at once, and a failure stops nobody', async () => {
  const queue = new KeyedQueue();
  const log: string[] = [];
  const slow = queue.run('a', async () => {
    await wait(20);
    log.push('a1');
    throw new Error('no');
  });
  const next = queue.run('a', async () => void log.push('a2'));
  await queue.run('b', async () => void log.push('b'));
  await expect(slow).rejects.toThrow('no');
  await next;
  expect(log).toEqual(['b', 'a1', 'a2']);
});
