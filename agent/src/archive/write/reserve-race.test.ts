import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';

const real = await import('node:fs/promises');
/** Runs once, when a file was just made and nothing is in it yet. */
let afterMaking: (() => Promise<void>) | undefined;
/** What `link` fails with. */
let linkError: string | undefined;

jest.unstable_mockModule('node:fs/promises', () => ({
  ...real,
  open: async (...args: Parameters<typeof real.open>) => {
    const file = await real.open(...args);
    const then = afterMaking;
    if (!String(args[1]).startsWith('w') || then === undefined) return file;
    afterMaking = undefined;
    try {
      await then();
      return file;
    } catch (error) {
      await file.close();
      throw error;
    }
  },
  link: async (...args: Parameters<typeof real.link>) => {
    if (linkError !== undefined) throw Object.assign(new Error(linkError), { code: linkError });
    await real.link(...args);
  },
}));
const { freeName, ownsName, reserveName } = await import('./reserve.ts');

let directory: string;
let path: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'reserve-race-'));
  path = join(directory, 'a.tar');
  linkError = undefined;
});
afterEach(() => rmSync(directory, { recursive: true }));

test('who gets a name that another is just making keeps it', async () => {
  let second: Awaited<ReturnType<typeof reserveName>> = null;
  afterMaking = async () => {
    second = await reserveName(path, 'second');
  };
  const first = await reserveName(path, 'first');
  expect([first, second].filter(lock => lock !== null)).toHaveLength(1);
  expect(await ownsName(path, first === null ? 'second' : 'first')).toBe(true);
  await (first ?? second!).release();
  for (const owner of ['first', 'second']) await freeName(path, owner);
  expect(readdirSync(directory)).toEqual([]);
});

test('what was left of one that died before its reservation could be seen goes with it', async () => {
  afterMaking = () => Promise.reject(new Error('it died'));
  await expect(reserveName(path, 'dead')).rejects.toThrow();
  await freeName(path, 'dead');
  expect(readdirSync(directory)).toEqual([]);
});

test('names are reserved also where there are no hard links', async () => {
  linkError = 'EPERM';
  const lock = await reserveName(path, 'one');
  expect(await ownsName(path, 'one')).toBe(true);
  expect(await reserveName(path, 'two')).toBeNull();
  await lock!.release();
  await freeName(path, 'one');
  expect(readdirSync(directory)).toEqual([]);
});
