import { describe, expect, test } from '@jest/globals';
import { FrameList, frameAt, readSeekTable, seekTableBytes } from './seek-table.ts';

function tableOf(...frames: [number, number][]): Buffer {
  const list = new FrameList();
  for (const [compressed, raw] of frames) list.add(compressed, raw, 7);
  return list.encode();
}

/** Reads a table that stands behind so many bytes of a file. */
async function read(table: Buffer, before: number) {
  const readAt = async (offset: number, lengthBytes: number) =>
    table.subarray(offset - before, offset - before + lengthBytes);
  return readSeekTable(readAt, table.length, before + table.length);
}

describe('seek table', () => {
  test('comes back as it was written, for many frames', async () => {
    const table = tableOf(...Array.from({ length: 1000 }, (_, index): [number, number] => [index + 5, 100]));
    expect(seekTableBytes(table.subarray(-9))).toBe(table.length);
    const decoded = await read(table, 504_500);
    if (typeof decoded === 'string') throw new Error(decoded);
    expect(decoded.frameCount).toBe(1000);
    expect(decoded.rawOffsets[1000]).toBe(100_000);
    expect(decoded.fileOffsets[3]).toBe(18);
    expect([0, 99, 100, 99_999, 100_000, -1].map(at => frameAt(decoded, at))).toEqual([0, 0, 1, 999, -1, -1]);
  });

  test('empty frames are skipped by a search', async () => {
    const decoded = await read(tableOf([5, 10], [9, 0], [5, 10]), 19);
    if (typeof decoded === 'string') throw new Error(decoded);
    expect(frameAt(decoded, 10)).toBe(2);
  });

  test('a table that does not account for the file is refused', async () => {
    expect(await read(tableOf([5, 10]), 6)).toMatch(/does not fit/);
    expect(await read(tableOf([9, 10], [0, 10]), 9)).toMatch(/a frame that is none/);
  });

  test('anything else is no table', async () => {
    expect(seekTableBytes(Buffer.alloc(9))).toBeUndefined();
    expect(seekTableBytes(Buffer.alloc(3))).toBeUndefined();
    const table = tableOf([5, 10]);
    table[0]! ^= 1;
    expect(await read(table, 5)).toMatch(/torn/);
    expect(await read(table.subarray(1), 5)).toMatch(/torn/);
  });
});
