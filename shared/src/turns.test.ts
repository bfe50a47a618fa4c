import { expect, test } from '@jest/globals';
import { Turns } from './turns.ts';

test('work in a row leaves turns to others', async () => {
  const turns = new Turns();
  let isDone = false;
  let others = 0;
  const other = () => {
    others += 1;
    if (!isDone) setImmediate(other);
  };
  setImmediate(other);
  const endMs = performance.now() + 50;
  while (performance.now() < endMs) await turns.share();
  isDone = true;
  expect(others).toBeGreaterThan(2);
});
