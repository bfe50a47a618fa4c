import { expect, test } from '@jest/globals';
import { merge } from './merge.ts';

/** A stream whose items come when the test says so. */
function valve<T>() {
  const waiting: ((result: IteratorResult<T>) => void)[] = [];
  const answer = (result: IteratorResult<T>) => waiting.shift()?.(result);
  return {
    give: (value: T) => answer({ value, done: false }),
    end: () => answer({ value: undefined, done: true }),
    [Symbol.asyncIterator]: () => ({
      next: () => new Promise<IteratorResult<T>>(resolve => waiting.push(resolve)),
    }),
  };
}

test('items come as they are ready, until one stream ends', async () => {
  const left = valve<string>();
  const right = valve<string>();
  const merged = merge(left, right);
  const next = merged.next();
  left.give('a');
  expect((await next).value).toBe('a');
  const second = merged.next();
  right.give('x');
  expect((await second).value).toBe('x');
  const third = merged.next();
  left.give('b');
  expect((await third).value).toBe('b');
  const last = merged.next();
  left.end();
  expect((await last).done).toBe(true);
});

test('a failing stream fails the whole', async () => {
  async function* failing(): AsyncGenerator<string> {
    yield 'a';
    throw new Error('lost');
  }
  const seen: string[] = [];
  await expect(
    (async () => {
      for await (const item of merge(failing(), valve<string>())) seen.push(item);
    })(),
  ).rejects.toThrow('lost');
  expect(seen).toEqual(['a']);
});
