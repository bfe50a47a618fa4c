import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { packedFor, readPages } from './pages.ts';

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-pages-'));
  mkdirSync(join(dir, 'assets'));
  const files = {
    'index.html': '<!doctype html>',
    'assets/index-AbCd_-12.js': 'let a;',
    'assets/index-AbCd_-12.js.br': 'b',
    'assets/index-AbCd_-12.js.gz': 'g',
    'assets/theme.js': 'let t;',
    key: 'no page',
    'assets/secret.key': 'no page either',
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text);
});
afterAll(() => rmSync(dir, { recursive: true }));

test('files of the kinds that pages are made of are known, and which of them never change', () => {
  const files = readPages(dir);
  expect([...files.keys()].sort()).toEqual(['assets/index-AbCd_-12.js', 'assets/theme.js', 'index.html']);
  expect(files.get('assets/index-AbCd_-12.js')!.isImmutable).toBe(true);
  expect(files.get('assets/theme.js')!.isImmutable).toBe(false);
  expect(files.get('index.html')!.isImmutable).toBe(false);
});

test('without a first page there are none', () => {
  expect(readPages(join(dir, 'assets')).size).toBe(0);
  expect(readPages(join(dir, 'nowhere')).size).toBe(0);
});

test('a client gets the smallest form that it takes', () => {
  const files = readPages(dir);
  const script = files.get('assets/index-AbCd_-12.js')!;
  const encoding = (accepted: string | undefined) => packedFor(script, accepted)?.[0];
  expect(encoding('gzip, deflate, br')).toBe('br');
  expect(encoding('GZIP;q=0.5')).toBe('gzip');
  expect(encoding('br;q=0, gzip')).toBe('gzip');
  expect(encoding('gzip;q=0.0')).toBeUndefined();
  expect(encoding('identity')).toBeUndefined();
  expect(encoding(undefined)).toBeUndefined();
  expect(packedFor(files.get('assets/theme.js')!, 'br')).toBeUndefined();
});
