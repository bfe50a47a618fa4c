/** What somebody who may write to a pool does while the agent works in it. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, symlinkSync,
  writeFileSync,
} from 'node:fs'; // biome-ignore format: a list
import fs from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { whileSwapped } from '../test/swap.ts';
import * as beneath from './beneath.ts';
import { exists, removePath, syncDirectoryOf } from './files.ts';
import { openForeign, readForeign, writeFresh } from './foreign-file.ts';

let dir = '';
const at = (name: string) => join(dir, 'pool', 'backups', name);
const victim = (name = '') => join(dir, 'victim', name);
const outside = expect.objectContaining({ msgKey: 'path_outside_pool' });

beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'virtkeep-beneath-')));
  mkdirSync(join(dir, 'pool', 'backups', 'sub'), { recursive: true });
  mkdirSync(victim());
  writeFileSync(victim('x.tar'), 'of another');
  beneath.guardBackups(join(dir, 'pool'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** One life of a backup file, as the archive's code lives it. */
async function life(path: string, calls: Pick<typeof fs, 'open' | 'link' | 'rename' | 'rm'>): Promise<void> {
  const partial = `${path}.partial`;
  const file = await calls.open(partial, 'w');
  await file.writeFile('backup');
  await file.close();
  await calls.rename(partial, path);
  await calls.link(path, `${path}.second`);
  await calls.rm(`${path}.second`);
  await calls.rm(path);
}

describe('below backups/', () => {
  test('a directory exchanged for a link at any moment leads no call outside', async () => {
    symlinkSync(victim(), join(dir, 'pool', 'link'));
    const before = readdirSync(victim());
    await whileSwapped(at('sub'), join(dir, 'pool', 'link'), async () => {
      for (let turn = 0; turn < 150; turn++) {
        await life(at('sub/x.tar'), beneath as unknown as typeof fs).catch(() => {});
        await writeFresh(at('sub/y'), 'ours').catch(() => {});
        await removePath(at('sub/x.tar')).catch(() => {});
        const read = await readForeign(at('sub/x.tar'), 100).catch(() => undefined);
        expect(read?.toString()).not.toBe('of another');
      }
    });
    expect(readdirSync(victim())).toEqual(before);
    expect(readFileSync(victim('x.tar'), 'utf8')).toBe('of another');
  });

  test('the calls of node:fs are led outside by the same', async () => {
    symlinkSync(victim(), join(dir, 'pool', 'link'));
    await whileSwapped(at('sub'), join(dir, 'pool', 'link'), async () => {
      for (let turn = 0; turn < 20_000 && existsSync(victim('x.tar')); turn++)
        await life(at('sub/x.tar'), fs).catch(() => {});
    });
    expect(existsSync(victim('x.tar'))).toBe(false);
  });

  test.each<[string, (path: string) => Promise<unknown>]>([
    ['open', path => beneath.open(path, 'r')],
    ['openForeign', path => openForeign(path)],
    ['make', path => writeFresh(path, '')],
    ['remove', path => removePath(path)],
    ['rename', path => beneath.rename(path, `${path}.new`)],
    ['link', path => beneath.link(path, `${path}.new`)],
    ['look at', path => beneath.lstatBig(path)],
    ['look at many', path => beneath.lstatAll(join(path, '..'), ['x.tar'])],
    ['look for', path => exists(path)],
    ['make a directory', path => beneath.mkdir(`${path}.d`, { recursive: true })],
    ['make its name durable', path => syncDirectoryOf(path)],
    ['list', path => beneath.readdir(join(path, '..'))],
    ['stream', path => beneath.opendir(join(path, '..'))],
  ])('to %s something through a link is refused', async (_what, call) => {
    symlinkSync(victim(), at('link'));
    await expect(call(at('link/x.tar'))).rejects.toEqual(outside);
    rmSync(join(dir, 'pool', 'backups'), { recursive: true });
    symlinkSync(victim(), join(dir, 'pool', 'backups'));
    await expect(call(at('x.tar'))).rejects.toEqual(outside);
    expect(readdirSync(victim())).toEqual(['x.tar']);
  });

  test('what is there is reached, what is not is named as people know it', async () => {
    const file = await beneath.open(at('sub/new'), 'wx', 0o600);
    await file.close();
    await beneath.rename(at('sub/new'), at('newer'));
    expect(await beneath.readdir(join(dir, 'pool', 'backups'))).toEqual(['newer', 'sub']);
    const looked = await beneath.lstatAll(join(dir, 'pool', 'backups'), ['no', 'newer', 'sub']);
    expect([...looked.keys()].sort()).toEqual(['newer', 'sub']);
    const { size, mtimeNs } = await beneath.lstatBig(at('newer'));
    expect(looked.get('newer')).toEqual({ size, mtimeNs });
    const names = [];
    for await (const { name } of await beneath.opendir(join(dir, 'pool', 'backups'))) names.push(name);
    expect(names.sort()).toEqual(['newer', 'sub']);
    await expect(beneath.open(at('sub/no'), 'r')).rejects.toMatchObject({
      code: 'ENOENT',
      message: expect.stringContaining(`'${at('sub/no')}'`),
    });
    await expect(beneath.open(at('no/no'), 'r')).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await exists(at('no/no'))).toBe(false);
    await expect(beneath.open(`${dir}/pool/backups/../../victim/x.tar`, 'r')).rejects.toEqual(outside);
  });
});

test('a pool may be a link, and paths elsewhere are taken as they are', async () => {
  symlinkSync(join(dir, 'pool'), join(dir, 'alias'));
  beneath.guardBackups(join(dir, 'alias/'));
  await writeFresh(join(dir, 'alias', 'backups', 'x'), 'ours');
  expect(readFileSync(at('x'), 'utf8')).toBe('ours');
  symlinkSync(victim(), join(dir, 'pool', 'images'));
  expect(await exists(join(dir, 'pool', 'images', 'x.tar'))).toBe(true);
});

/** In a process that is nobody, as root is on the server of a squashed NFS export. */
const AS_NOBODY = `
  const [beneath, files] = await Promise.all(process.argv.slice(1, 3).map(url => import(url)));
  const [pool] = process.argv.slice(3);
  process.setgid(65534);
  process.setuid(65534);
  beneath.guardBackups(pool);
  const at = name => pool + '/backups/' + name;
  const file = await beneath.open(at('sub/new'), 'wx', 0o600);
  await file.close();
  await files.syncDirectoryOf(at('sub/new'));
  await beneath.rename(at('sub/new'), at('newer'));
  await beneath.lstat(pool + '/backups');
  const names = await beneath.readdir(pool + '/backups');
  const list = await beneath.readdir(pool).catch(error => error.code);
  const inPool = await beneath.inPoolDirectory(pool + '/backups/x', async directory => {
    await (await beneath.open(directory + '/made', 'wx')).close();
    return 'made';
  });
  const link = await beneath.open(at('link/x.tar'), 'r').catch(error => error.msgKey);
  console.log(JSON.stringify({ names, list, inPool, link }));
`;

test('directories that may be searched and not read lead on, and a link there does not', () => {
  const [pool, backups] = [join(dir, 'pool'), join(dir, 'pool', 'backups')];
  symlinkSync(victim(), at('link'));
  for (const path of [backups, at('sub')]) chownSync(path, 65534, 65534);
  for (const path of [dir, pool]) chmodSync(path, 0o711);
  chmodSync(at('sub'), 0o700);
  const modules = ['./beneath.ts', './files.ts'].map(name => new URL(name, import.meta.url).href);
  const flags = ['--no-warnings', '--input-type=module', '--eval', AS_NOBODY];
  const { stdout, stderr } = spawnSync(process.execPath, [...flags, '--', ...modules, pool], {
    encoding: 'utf8',
  });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    names: ['link', 'newer', 'sub'],
    list: 'EACCES',
    inPool: 'made',
    link: 'path_outside_pool',
  });
  expect(existsSync(at('made'))).toBe(true);
});
