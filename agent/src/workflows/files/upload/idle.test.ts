import { expect, test } from '@jest/globals';
import { idleAt, idleMsAt, steadyNow } from './idle.ts';

test('time adds up in one run of the kernel, and stands still between two', () => {
  const began = { bootId: 'a', atMs: 1000, idleMs: 0 };
  expect(idleMsAt(began, { bootId: 'a', atMs: 5000 })).toBe(4000);
  const later = idleAt(began, { bootId: 'a', atMs: 5000 });
  expect(idleMsAt(later, { bootId: 'b', atMs: 90_000 })).toBe(4000);
  const again = idleAt(later, { bootId: 'b', atMs: 90_000 });
  expect(idleMsAt(again, { bootId: 'b', atMs: 91_000 })).toBe(5000);
});

test('the clock of this node goes forward', () => {
  const [first, second] = [steadyNow(), steadyNow()];
  expect(second.bootId).toBe(first.bootId);
  expect(second.atMs).toBeGreaterThanOrEqual(first.atMs);
});
