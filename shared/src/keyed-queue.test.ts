import { expect, test } from '@jest/globals';
import { KeyedQueue } from './keyed-queue.ts';

test('the same key in order, another key at once, and a failure stops nobody', async () => {
  const queue = new KeyedQueue();
  const log: string[] = [];
  const gate = Promise.withResolvers<void>();
  const slow = queue.run('a', async () => {
    await gate.promise;
    log.push('a1');
    throw new Error('no');
  });
  const next = queue.run('a', async () => void log.push('a2'));
  await queue.run('b', async () => void log.push('b'));
  gate.resolve();
  await expect(slow).rejects.toThrow('no');
  await next;
  expect(log).toEqual(['b', 'a1', 'a2']);
});
