/** A directory of a pool that somebody exchanges for a link to another one, after it was looked at. */
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import * as real from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { PoolRecord } from '../pools/index.ts';

/** Called with each path that is about to be opened or looked at. */
let before: (path: string) => void = () => {};
const told =
  <A extends [path: never, ...rest: never[]], R>(call: (...args: A) => R) =>
  (...args: A): R => {
    before(String(args[0]));
    return call(...args);
  };
jest.unstable_mockModule('node:fs/promises', () => ({
  ...real,
  open: told(real.open as never),
  opendir: told(real.opendir as never),
  lstat: told(real.lstat as never),
}));
const { guardBackups } = await import('@virtkeep/shared/beneath');
const { findIso, isoChunks, listIsoImages } = await import('./index.ts');

let root: string;
let pool: PoolRecord & { path: string };
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'virtkeep-iso-'));
  for (const name of ['pool', 'outside']) {
    mkdirSync(join(root, name, 'sub'), { recursive: true });
    writeFileSync(join(root, name, 'sub/a.iso'), name);
  }
  const path = join(root, 'pool');
  guardBackups(path);
  pool = { id: 'p', name: 'pool', path, hasDirectory: true, active: true, mounted: true } as typeof pool;
});
afterEach(() => {
  before = () => {};
  rmSync(root, { recursive: true });
});

const outside = expect.objectContaining({ msgKey: 'path_outside_pool' });

function exchange(): void {
  before = () => {};
  renameSync(join(pool.path, 'sub'), join(root, 'former'));
  symlinkSync(join(root, 'outside/sub'), join(pool.path, 'sub'));
}

const read = async (path: string) => {
  const pieces: Buffer[] = [];
  const whole = { offset: 0, length: 0 };
  for await (const { data } of isoChunks(path, whole, AbortSignal.timeout(60_000))) pieces.push(data);
  return Buffer.concat(pieces).toString();
};

test('is not read from', async () => {
  const { path } = await findIso([pool], { poolId: 'p', filename: 'sub/a.iso' }, 'node');
  expect(await read(path)).toBe('pool');
  exchange();
  await expect(read(path)).rejects.toEqual(outside);
});

test('is no place of an image', async () => {
  before = path => path.includes('/sub') && exchange();
  await expect(findIso([pool], { poolId: 'p', filename: 'sub/a.iso' }, 'node')).rejects.toEqual(outside);
});

test.each(['/sub', '/sub/a.iso'])('is not listed: exchanged at %s', async end => {
  expect(await listIsoImages(pool.path)).toHaveLength(1);
  let isAt = end !== '/sub/a.iso';
  // the first look at the directory is for its names
  before = path => {
    if (!path.endsWith('/sub') && !path.endsWith(end)) return;
    if (isAt) exchange();
    else isAt = true;
  };
  expect(await listIsoImages(pool.path)).toEqual([]);
});
