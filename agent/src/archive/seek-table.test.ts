import { describe, expect, test } from '@jest/globals';
import { decodeSeekTable, FrameList, frameAt, seekTableBytes } from './seek-table.ts';

function tableOf(...frames: [number, number][]): Buffer {
  const list = new FrameList();
  for (const [compressed, raw] of frames) list.add(compressed, raw, 7);
  return list.encode();
}

describe('seek table', () => {
  test('comes back as it was written, for many frames', () => {
    const table = tableOf(...Array.from({ length: 1000 }, (_, index): [number, number] => [index + 1, 100]));
    expect(seekTableBytes(table.subarray(-9))).toBe(table.length);
    const decoded = decodeSeekTable(table, 500_500 + table.length);
    if (typeof decoded === 'string') throw new Error(decoded);
    expect(decoded.frameCount).toBe(1000);
    expect(decoded.rawOffsets[1000]).toBe(100_000);
    expect(decoded.fileOffsets[3]).toBe(6);
    expect([0, 99, 100, 99_999, 100_000, -1].map(at => frameAt(decoded, at))).toEqual([0, 0, 1, 999, -1, -1]);
  });

  test('empty frames are skipped by a search', () => {
    const decoded = decodeSeekTable(tableOf([5, 10], [9, 0], [5, 10]), 19 + 8 + 36 + 9);
    if (typeof decoded === 'string') throw new Error(decoded);
    expect(frameAt(decoded, 10)).toBe(2);
  });

  test('a table that does not account for the file is refused', () => {
    const table = tableOf([5, 10]);
    expect(decodeSeekTable(table, 6 + table.length)).toMatch(/does not fit/);
  });

  test('anything else is no table', () => {
    expect(seekTableBytes(Buffer.alloc(9))).toBeUndefined();
    expect(seekTableBytes(Buffer.alloc(3))).toBeUndefined();
    const table = tableOf([5, 10]);
    table[0]! ^= 1;
    expect(decodeSeekTable(table, 5 + table.length)).toMatch(/torn/);
    expect(decodeSeekTable(table.subarray(1), 5 + table.length)).toMatch(/torn/);
  });
});
