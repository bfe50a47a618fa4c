import { mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { markOf, writtenSince } from './mark.ts';

let directory: string;
let below: string;
let overlay: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'mark-'));
  [below, overlay] = [join(directory, 'below'), join(directory, 'overlay')];
  writeFileSync(below, 'x');
  writeFileSync(overlay, 'y');
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

const changedAt = (path: string, secondsFromNow: number) => {
  const time = Date.now() / 1000 + secondsFromNow;
  utimesSync(path, time, time);
};

test('without a mark what arrived soon after the overlay was made is of before it', async () => {
  expect(await writtenSince(below, overlay)).toBe('same');
  changedAt(below, 10);
  expect(await writtenSince(below, overlay)).toBe('same');
  changedAt(below, 60);
  expect(await writtenSince(below, overlay)).toBe('written');
});

describe('with a mark', () => {
  test('any later change counts, a time that a power cut took back does not', async () => {
    const mark = await markOf(below);
    expect(await writtenSince(below, overlay, mark)).toBe('same');
    changedAt(below, 1);
    expect(await writtenSince(below, overlay, mark)).toBe('written');
    changedAt(below, -60);
    expect(await writtenSince(below, overlay, mark)).toBe('same');
  });

  test('another file under the name is not the one of then', async () => {
    const mark = await markOf(below);
    const other = join(directory, 'other');
    writeFileSync(other, 'z');
    changedAt(other, -60);
    renameSync(other, below);
    expect(await writtenSince(below, overlay, mark)).toBe('written');
  });
});

test('a device cannot tell', async () => {
  expect(await writtenSince('/dev/null', overlay)).toBeUndefined();
});
