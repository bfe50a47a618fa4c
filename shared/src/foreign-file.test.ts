import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { replaceWhole } from './foreign-file.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'vk-foreign-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

test('a file takes the place of another, and nothing is written through what lies under its unfinished name', async () => {
  const [path, unfinished, other] = ['a', 'a.new', 'other'].map(name => join(directory, name));
  writeFileSync(path!, 'before');
  writeFileSync(other!, 'of somebody else');
  symlinkSync(other!, unfinished!);
  await replaceWhole(path!, 'after', unfinished!);
  expect(readFileSync(path!, 'utf8')).toBe('after');
  expect(readFileSync(other!, 'utf8')).toBe('of somebody else');
  expect(readdirSync(directory).sort()).toEqual(['a', 'other']);
});

test('one that cannot take the place leaves it, and nothing beside it', async () => {
  const path = join(directory, 'a');
  mkdirSync(path);
  await expect(replaceWhole(path, 'after', `${path}.new`)).rejects.toThrow('EISDIR');
  expect(readdirSync(directory)).toEqual(['a']);
});
