import { chmodSync, chownSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { backupTargetRefusal } from './guards.ts';
import { directoriesOf, otherWriters } from './ownership.ts';
import { samplePool } from './sample-pool.ts';

const USER = 1234;
let dir = '';
const at = (...names: string[]) => join(dir, ...names);
const writers = async (path = at('above', 'pool')) => otherWriters(await directoriesOf(path));

beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'virtkeep-owner-')));
  mkdirSync(at('above', 'pool', 'backups'), { recursive: true, mode: 0o755 });
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

describe('who may change what is in a pool', () => {
  test('is root alone where root owns everything, below a directory like /tmp too', async () => {
    expect(await writers()).toBeUndefined();
    rmSync(at('above', 'pool', 'backups'), { recursive: true });
    expect(await writers()).toBeUndefined();
  });

  test.each<[string, () => void, RegExp]>([
    ['the pool is of a user', () => chownSync(at('above/pool'), USER, USER), /pool belongs to the user 1234/],
    [
      'its backups are',
      () => chownSync(at('above/pool/backups'), USER, USER),
      /backups belongs to the user 1234/,
    ],
    ['what is above is', () => chownSync(at('above'), USER, USER), /above belongs to the user 1234/],
    ['everybody writes', () => chmodSync(at('above/pool'), 0o1777), /pool may be written to by everybody/],
    ['everybody renames it', () => chmodSync(at('above'), 0o777), /above may be written to by everybody/],
    [
      'a group writes',
      () => {
        chownSync(at('above/pool/backups'), 0, USER);
        chmodSync(at('above/pool/backups'), 0o2770);
      },
      /backups may be written to by the group 1234/,
    ],
  ])('is told when %s', async (_what, make, text) => {
    make();
    expect(await writers()).toMatch(text);
  });

  test('is told of the directories behind a link, too', async () => {
    symlinkSync(at('above', 'pool'), at('link'));
    expect(await writers(at('link'))).toBeUndefined();
    chownSync(at('above'), USER, USER);
    expect(await writers(at('link'))).toMatch(/above belongs to the user 1234/);
  });
});

test('such a pool is written to unless the setting refuses it', () => {
  const how = '/pools/p belongs to the user 1234';
  expect(backupTargetRefusal(samplePool('p', { othersMayWrite: { how, refused: false } }))).toBeUndefined();
  const refusal = backupTargetRefusal(samplePool('p', { othersMayWrite: { how, refused: true } }));
  expect(refusal).toMatchObject({ msgKey: 'pool_ownership' });
  expect(refusal!.message).toContain(how);
});
