import { describe, expect, test } from '@jest/globals';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { changesExtension, whyNotExtendable } from './extendable.ts';

const MADE = '2026-01-02T03:04:05.000Z';
const facts = { capable: true, lastState: MADE, requiredStates: ['b', 'a'], grown: '' };
const domain = (names: string[], statesDeleted?: string) =>
  Domain.fromPartial({
    savedStates: names.map(name => ({ name })),
    ...(statesDeleted ? { statesDeleted: new Date(statesDeleted) } : {}),
  });

describe('a backup can be extended', () => {
  test('while its VM has the states it stands on', () => {
    expect(whyNotExtendable(facts, domain(['a', 'b', 'later']))).toBe('');
    expect(whyNotExtendable(facts, domain(['a']))).toContain('no longer has the saved state b');
    expect(whyNotExtendable(facts, undefined)).toContain('on no known node');
  });

  test('not after any state was deleted, but after one was deleted before', () => {
    expect(whyNotExtendable(facts, domain(['a', 'b'], '2026-01-02T03:04:06Z'))).toContain('deleted');
    expect(whyNotExtendable(facts, domain(['a', 'b'], '2026-01-02T03:04:04Z'))).toBe('');
  });

  test('not when it has grown as long as an archive may be', () => {
    const grown = 'it has grown to 3000 states';
    expect(whyNotExtendable({ ...facts, grown }, domain(['a', 'b']))).toBe(grown);
  });

  test('whatever the clocks say, when its own last state tells that nothing was deleted since', () => {
    const telling = (nothingDeletedSince: boolean, statesDeleted?: string) => {
      const { savedStates, ...rest } = domain(['a', 'b'], statesDeleted);
      const told = savedStates.map(state => (state.name === 'b' ? { ...state, nothingDeletedSince } : state));
      return { ...rest, savedStates: told };
    };
    // the clock was set back by a day between the deletion and the backup
    expect(whyNotExtendable(facts, telling(true, '2026-01-03T03:04:05Z'))).toBe('');
    // it was set back between the backup and the deletion
    expect(whyNotExtendable(facts, telling(false, '2026-01-01T03:04:05Z'))).toContain('deleted');
    expect(whyNotExtendable(facts, telling(false))).toContain('deleted');
    expect(changesExtension(telling(true), telling(false))).toBe(true);
  });

  test('only when it was made so', () => {
    expect(whyNotExtendable({ ...facts, capable: false }, domain(['a', 'b']))).toContain('without');
  });
});

test('only states and their deletion matter to it', () => {
  const before = domain(['a']);
  expect(changesExtension(before, { ...before, memoryCount: 7n })).toBe(false);
  expect(changesExtension(before, domain(['a', 'b']))).toBe(true);
  expect(changesExtension(before, domain(['a'], MADE))).toBe(true);
  expect(changesExtension(before, undefined)).toBe(true);
});
