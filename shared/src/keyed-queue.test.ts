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

test('work on several keys waits for all before it on each, and all after it on any wait for it', async () => {
  const queue = new KeyedQueue();
  const log: string[] = [];
  const gate = Promise.withResolvers<void>();
  const say = (word: string) => async () => void log.push(word);
  const slow = queue.run('b', () => gate.promise);
  const both = queue.runAll(['a', 'b'], say('a and b'));
  const turned = queue.runAll(['b', 'a'], say('b and a'));
  const after = queue.run('a', say('a'));
  await queue.run('c', say('c'));
  expect(log).toEqual(['c']);
  gate.resolve();
  await Promise.all([slow, both, turned, after]);
  expect(log).toEqual(['c', 'a and b', 'b and a', 'a']);
});
