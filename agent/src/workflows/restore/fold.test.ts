import { describe, expect, test } from '@jest/globals';
import { fileStarts, type Keeping, withinReach } from './fold.ts';

const disk = (layers: number, target = 'vda') => ({ target, layers: Array.from({ length: layers }) });
const keeping = (index: number, merged = true): Keeping => ({
  merged,
  frozen: new Map([['vda', { disk: 'vda', index }]]),
});

describe('the files of a restored disk', () => {
  test('are its layers while they are few', () => {
    expect(fileStarts(disk(4), [keeping(1)], 4)).toEqual([0, 1, 2, 3]);
  });

  test('of more layers are parted where a saved state keeps one, of whichever disk that state tells', () => {
    expect(fileStarts(disk(9), [keeping(6), keeping(2), keeping(8)], 4)).toEqual([0, 3, 7]);
    expect(fileStarts(disk(9, 'vdb'), [keeping(6)], 4)).toEqual([0]);
  });

  test('are one of its own for a layer that a saved state may be inside of', () => {
    const inside = (index: number): Keeping => ({
      merged: false,
      frozen: new Map([['vda', { disk: 'vda', index, isNamedOnly: true }]]),
    });
    expect(fileStarts(disk(120), [inside(50)])).toEqual([0, 50, 51]);
    expect(fileStarts(disk(120), [inside(0), inside(119)])).toEqual([0, 1, 119]);
  });
});

describe('the saved states of a long life', () => {
  test('all come back while the layers are few', () => {
    const states = [1, 2, 3].map(index => keeping(index));
    expect(withinReach([disk(5)], states, 5)).toEqual(states);
  });

  test('come back as far as the files allow: the oldest ones of increments are left out, those of the user stay', () => {
    const mine = keeping(1, false);
    const states = [mine, ...Array.from({ length: 2000 }, (_, index) => keeping(index + 2))];
    const staying = withinReach([disk(2010)], states, 100);
    expect(staying).toHaveLength(99);
    expect(staying[0]).toBe(mine);
    expect(staying.at(-1)).toBe(states.at(-1));
    expect(fileStarts(disk(2010), staying, 100)).toHaveLength(100);
  });

  test('of the user are never left out', () => {
    const states = [1, 2, 3, 4].map(index => keeping(index, false));
    expect(withinReach([disk(9)], states, 3)).toEqual(states);
  });
});
