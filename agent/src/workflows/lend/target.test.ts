import { describe, expect, test } from '@jest/globals';
import { freeTarget, targetAt } from './target.ts';

describe('names of disks', () => {
  test.each([
    [0, 'vda'],
    [25, 'vdz'],
    [26, 'vdaa'],
    [51, 'vdaz'],
    [52, 'vdba'],
    [701, 'vdzz'],
    [702, 'vdaaa'],
  ])('number %i is %s', (index, name) => expect(targetAt(index)).toBe(name));

  test('no two numbers share a name', () => {
    const names = Array.from({ length: 2000 }, (_, index) => targetAt(index));
    expect(new Set(names).size).toBe(names.length);
  });

  test('the first free one is taken, however many there are', () => {
    const taken: string[] = [];
    for (let count = 0; count < 100; count += 1) {
      const next = freeTarget(taken);
      expect(taken).not.toContain(next);
      expect(next).toBe(targetAt(count));
      taken.push(next);
    }
    expect(freeTarget(taken.filter(name => name !== 'vdf'))).toBe('vdf');
    expect(freeTarget(['sda', 'hda'])).toBe('vda');
    expect(freeTarget(['vda', 'sda', 'sdc'], 'sd')).toBe('sdb');
  });
});
