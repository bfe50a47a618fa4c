import { afterEach, expect, jest, test } from '@jest/globals';
import type { Settings } from '../pools/index.ts';
import { Revisions } from './revisions.ts';

function memory(): Settings & { writes: number } {
  const values = new Map<string, unknown>();
  return {
    writes: 0,
    get: key => values.get(key),
    set(key, value) {
      this.writes += 1;
      values.set(key, value);
    },
  };
}

afterEach(() => {
  jest.restoreAllMocks();
});

test('each is greater than the one before, and almost none costs a write', () => {
  const settings = memory();
  const revisions = new Revisions(settings);
  expect(settings.writes).toBe(0);
  let before = revisions.newest;
  for (let count = 0; count < 1000; count += 1) {
    const next = revisions.next();
    expect(next).toBeGreaterThan(before);
    before = next;
  }
  expect(revisions.newest).toBe(before);
  expect(settings.writes).toBe(1);
});

test('those of the next run are greater, also when the clock was set back meanwhile', () => {
  const settings = memory();
  const last = new Revisions(settings).next();
  jest.spyOn(Date, 'now').mockReturnValue(1_000_000);
  expect(new Revisions(settings).next()).toBeGreaterThan(last);
});

test('they grow while the journal cannot be written', () => {
  const revisions = new Revisions({
    get: () => undefined,
    set: () => {
      throw new Error('disk full');
    },
  });
  expect(revisions.next()).toBeLessThan(revisions.next());
});
