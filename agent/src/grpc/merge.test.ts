import { expect, test } from '@jest/globals';
import { merge } from './merge.ts';

async function* after(delayMs: number, ...items: string[]): AsyncGenerator<string> {
  for (const item of items) {
    await new Promise(resolve => setTimeout(resolve, delayMs));
    yield item;
  }
  await new Promise(resolve => setTimeout(resolve, 10 * delayMs));
}

test('items come as they are ready, until one stream ends', async () => {
  const seen: string[] = [];
  for await (const item of merge(after(2, 'a', 'b'), after(7, 'x'))) seen.push(item);
  expect(seen).toEqual(['a', 'b', 'x']);
});

test('a failing stream fails the whole', async () => {
  async function* failing(): AsyncGenerator<string> {
    yield 'a';
    throw new Error('lost');
  }
  const seen: string[] = [];
  await expect(
    (async () => {
      for await (const item of merge(failing(), after(50))) seen.push(item);
    })(),
  ).rejects.toThrow('lost');
  expect(seen).toEqual(['a']);
});
