import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type FileLock, isBeingWritten, lockFile } from './file-lock.ts';
import { setLock } from './syscalls.ts';

const run = promisify(execFile);
let directory: string;
let path: string;
const held: FileLock[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'file-lock-'));
  path = join(directory, 'a.tar');
  await writeFile(path, 'content');
});
afterEach(async () => {
  for (const lock of held.splice(0)) await lock.release();
  await rm(directory, { recursive: true });
});

async function lock(mode: 'shared' | 'exclusive', file = path): Promise<FileLock> {
  const taken = await lockFile(file, mode);
  held.push(taken);
  return taken;
}

const busy = expect.objectContaining({ msgKey: 'file_busy' });

test('readers go together, a writer goes with nobody', async () => {
  const first = await lock('shared');
  const second = await lock('shared');
  await expect(lockFile(path, 'exclusive')).rejects.toEqual(busy);
  await first.release();
  await expect(lockFile(path, 'exclusive')).rejects.toThrow(/another node/);
  await second.release();
  await lock('exclusive');
  await expect(lockFile(path, 'shared')).rejects.toEqual(busy);
  await expect(lockFile(path, 'exclusive')).rejects.toEqual(busy);
});

const TAKE = `
  const { lockFile } = await import(${JSON.stringify(new URL('./file-lock.ts', import.meta.url).href)});
  try { console.log((await lockFile(process.argv[1], process.argv[2])).excludes ? 'locked' : 'not excluding'); }
  catch (error) { console.log(error.msgKey); }
  process.kill(process.pid, 'SIGKILL');`;

/** What another process is told that locks the file and dies. @param before the program by which it is run */
async function other(mode: string, before: string[] = []): Promise<string> {
  const [program, ...args] = [
    ...before,
    process.execPath,
    '--input-type=module',
    '--no-warnings',
    '-e',
    TAKE,
  ];
  const { stdout } = await run(program!, [...args, path, mode]).catch((error: { stdout: string }) => error);
  return stdout.trim();
}

test('another process is told of it, and its death frees the file', async () => {
  const reader = await lock('shared');
  expect(await other('exclusive')).toBe('file_busy');
  expect(await other('shared')).toBe('locked');
  await reader.release();
  expect(await other('exclusive')).toBe('locked');
  await lock('exclusive');
});

test('a file that may not be written is still locked for its removal, while nobody uses it', async () => {
  // as an export that takes root's rights away
  const squashed = ['setpriv', '--bounding-set=-dac_override,-dac_read_search'];
  await chmod(path, 0o444);
  expect(await other('exclusive', squashed)).toBe('not excluding');
  const reader = await lock('shared');
  expect(await other('exclusive', squashed)).toBe('file_busy');
  expect(await other('shared', squashed)).toBe('locked');
  await setLock(reader.handle.fd, 'shared', { start: 100n, lengthBytes: 1n });
  await setLock(reader.handle.fd, 'none', { start: 1n << 62n, lengthBytes: 1n });
  expect(await other('exclusive', squashed)).toBe('file_busy');
  await reader.release();
  await lock('exclusive');
  expect(await other('exclusive', squashed)).toBe('file_busy');
});

test('a name that means another file by the time of the lock is opened again', async () => {
  const old = await lock('exclusive');
  const next = join(directory, 'next');
  await writeFile(next, 'other');
  await rename(next, path);
  const fresh = await lock('shared');
  expect((await fresh.handle.stat()).ino).not.toBe((await old.handle.stat()).ino);
});

test('a file that is gone is an error of its opening', async () => {
  await expect(lockFile(join(directory, 'none'), 'shared')).rejects.toMatchObject({ msgKey: 'io_failed' });
});

test('what QEMU has open is not written, and is read', async () => {
  const qemu = await lock('shared');
  await setLock(qemu.handle.fd, 'shared', { start: 100n, lengthBytes: 1n });
  await setLock(qemu.handle.fd, 'none', { start: 1n << 62n, lengthBytes: 1n });
  await expect(lockFile(path, 'exclusive')).rejects.toEqual(busy);
  await lock('shared');
});

test('who looks without a lock learns whether somebody writes', async () => {
  const reader = await lock('shared');
  expect(await isBeingWritten(reader.handle)).toBe(false);
  await reader.release();
  const writer = await lock('exclusive');
  await expect(writer.confirm()).resolves.toBeUndefined();
  expect(await isBeingWritten(writer.handle)).toBe(false);
});
