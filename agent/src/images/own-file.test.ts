/** What is made for a restore while somebody who may write to the pool exchanges its directories. */
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { guardBackups } from '@virtkeep/shared/beneath';
import { whileSwapped } from '../../../shared/test/swap.ts';
import { makeOwnFile, type OwnFile } from './own-file.ts';

let dir = '';
const at = (...names: string[]) => join(dir, ...names);
const inside = () => at('pool', 'sub', 'disk');
const make = (inPool: boolean, declared: OwnFile[] = []) =>
  makeOwnFile(inside(), effect => ({ keep: () => void declared.push(effect) }), { inPool });

beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'virtkeep-own-')));
  mkdirSync(at('pool', 'sub'), { recursive: true });
  mkdirSync(at('victim'));
  guardBackups(at('pool'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

async function madeOutside(inPool: boolean): Promise<string[]> {
  symlinkSync(at('victim'), at('pool', 'link'));
  const found = new Set<string>();
  await whileSwapped(at('pool', 'sub'), at('pool', 'link'), async () => {
    for (let turn = 0; turn < (inPool ? 200 : 20_000) && found.size === 0; turn++) {
      await make(inPool).catch(() => {});
      for (const name of readdirSync(at('victim'))) found.add(name);
      for (const name of ['sub', 'link']) rmSync(at('pool', name, 'disk'), { force: true });
    }
  });
  return [...found];
}

test('a directory exchanged for a link at any moment leads no file out of the pool', async () => {
  expect(await madeOutside(true)).toEqual([]);
});

test('files whose names come from this node are led out by the same', async () => {
  expect(await madeOutside(false)).not.toEqual([]);
});

test('a link inside of the pool may be meant', async () => {
  mkdirSync(at('pool', 'real'));
  rmSync(at('pool', 'sub'), { recursive: true });
  symlinkSync('real', at('pool', 'sub'));
  await make(true);
  expect(readdirSync(at('pool', 'real'))).toEqual(['disk']);
  await expect(make(true)).rejects.toEqual(expect.objectContaining({ msgKey: 'file_exists' }));
});
