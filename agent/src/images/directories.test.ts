import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { guardBackups } from '@virtkeep/shared/beneath';
import { removeEmptyDirectories } from './index.ts';

let root: string;
const at = (...names: string[]) => join(root, ...names);
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'vk-directories-'));
  for (const name of ['pool/backups/a/b', 'pool/own/a', 'elsewhere/empty/empty'])
    mkdirSync(at(name), { recursive: true });
  guardBackups(at('pool'));
});
afterEach(() => rmSync(root, { recursive: true }));

test('they go with those in them that hold no file', async () => {
  writeFileSync(at('pool/own/file'), '');
  for (const name of ['pool/backups', 'pool/own', 'pool/none']) await removeEmptyDirectories(at(name));
  expect(existsSync(at('pool/backups'))).toBe(false);
  expect([existsSync(at('pool/own/a')), existsSync(at('pool/own/file'))]).toEqual([false, true]);
});

test.each(['pool/backups', 'pool/own'])('nothing goes behind a link in the place of %s', async name => {
  renameSync(at(name), at('former'));
  symlinkSync(at('elsewhere'), at(name));
  await removeEmptyDirectories(at(name));
  rmSync(at(name));
  mkdirSync(at(name));
  symlinkSync(at('elsewhere'), at(name, 'a'));
  await removeEmptyDirectories(at(name));
  expect(existsSync(at('elsewhere/empty/empty'))).toBe(true);
});
