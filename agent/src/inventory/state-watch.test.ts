import { describe, expect, test } from '@jest/globals';
import { happenedWithoutUs, type SeenStates } from './state-watch.ts';

const seen = (change: Partial<SeenStates> = {}): SeenStates => ({
  states: ['a', 'b'],
  current: 'b',
  deleted: null,
  ...change,
});

describe('what others did to the states of a domain', () => {
  test.each<[string, Partial<SeenStates>, string[], boolean]>([
    ['nothing', {}, [], false],
    ['a state was made', { states: ['a', 'b', 'c'], current: 'c' }, [], false],
    ['one is gone', { states: ['a'], current: 'a' }, [], true],
    ['one is gone that we announced', { states: ['a'], current: 'a' }, ['b'], false],
    ['one is gone that we announced, and another', { states: [], current: null }, ['b'], true],
    ['one is gone and recorded', { states: ['a'], current: 'a', deleted: '2026-01-01' }, [], false],
    ['the domain was reverted', { current: 'a' }, [], true],
    ['we reverted it', { current: 'a', deleted: '2026-01-01' }, [], false],
  ])('%s', (_name, now, removed, expected) => {
    expect(happenedWithoutUs(seen(), seen(now), removed)).toBe(expected);
  });
});
