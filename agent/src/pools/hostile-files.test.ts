/** What somebody who may write to a pool's backups/ can put there to harm the agent that looks at it. */
import { execFileSync } from 'node:child_process';
import {
  closeSync, ftruncateSync, mkdirSync, mkdtempSync, openSync, readFileSync, realpathSync, renameSync, rmSync, statSync,
  symlinkSync, truncateSync, writeFileSync, writeSync,
} from 'node:fs'; // biome-ignore format: a list
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { encodeHeader } from '../archive/format/tar-format.ts';
import { lockFile, openArchive } from '../archive/index.ts';
import { writeArchive } from '../archive/test-kit.ts';
import { readImageHeader } from '../disks/index.ts';
import { summaryOf } from '../workflows/archives/backup-file.ts';
import { listBackupPaths } from './backup-dir.ts';
import { BackupFiles } from './index.ts';

const { signal } = new AbortController();
const POOL_ID = '22222222-2222-4333-8444-555555555555';
const GiB = 1024 * MiB;
let dir = '';
let sockets: Server[] = [];
beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'virtkeep-hostile-')));
  mkdirSync(join(dir, 'backups'));
});
afterEach(() => {
  for (const socket of sockets) socket.close();
  sockets = [];
  rmSync(dir, { recursive: true, force: true });
});

const at = (name: string) => join(dir, 'backups', name);
const notAFile = expect.objectContaining({ msgKey: 'not_a_file' });

async function readArchive(path: string) {
  const archive = await openArchive(path, signal, { salvage: true, holding: 'none' });
  try {
    if (!archive.manifest) throw new Error('somebody else wrote it');
    return summaryOf(archive.manifest);
  } finally {
    await archive.close();
  }
}

/** Bytes that this process has read so far, as the kernel counts them. */
const bytesRead = () => Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))![1]);

const pipe = (name: string) => execFileSync('mkfifo', [at(name)]);
const device = (name: string) => execFileSync('mknod', [at(name), 'c', '1', '5']);

async function socket(name: string) {
  const server = createServer();
  sockets.push(server);
  await new Promise<void>(listening => server.listen(at(name), listening));
}

function sparse(name: string, bytes: number) {
  writeFileSync(at(name), '<domain>');
  truncateSync(at(name), bytes);
}

/** A compressed archive whose end claims so many frames; nothing else is in it. */
function framesOnly(name: string, frames: number, entryBytes = 12) {
  const file = openSync(at(name), 'w');
  const body = frames * entryBytes + 9;
  const start = frames * 8;
  ftruncateSync(file, start + 8 + body);
  writeSync(file, Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), 0, 4, 0);
  const header = Buffer.alloc(8);
  header.writeUInt32LE(0x184d2a5e, 0);
  header.writeUInt32LE(body, 4);
  writeSync(file, header, 0, 8, start);
  const footer = Buffer.alloc(9);
  footer.writeUInt32LE(frames, 0);
  footer[4] = 0x80;
  footer.writeUInt32LE(0x8f92eab1, 5);
  writeSync(file, footer, 0, 9, start + 8 + body - 9);
  closeSync(file);
}

/** A tar that ends with the header of a manifest of terabytes, and with one that claims to reach exactly to the end. */
function endlessManifest(name: string) {
  const header = encodeHeader('0001_manifest.json', 4 * 1024 * GiB, new Date(0), 512);
  writeFileSync(at(name), Buffer.concat([header, Buffer.alloc(1024)]));
}

describe('a scan', () => {
  test('reads the files that are some, names those that are none, and takes no memory for what they claim', async () => {
    writeFileSync(at('a.xml'), `<domain><name>n</name><uuid>${POOL_ID}</uuid></domain>`);
    pipe('pipe.tar');
    pipe('pipe.xml');
    device('device.tar');
    await socket('socket.tar');
    symlinkSync('/etc/shadow', at('shadow.xml'));
    symlinkSync('/etc', at('etc.tar'));
    sparse('sparse.xml', 3 * GiB);
    sparse('smaller.xml', 1 * GiB);
    framesOnly('frames.tar.zst', 8 * 1024 * 1024);
    endlessManifest('manifest.tar');
    writeFileSync(at('z.xml'), `<domain><name>z</name><uuid>${POOL_ID}</uuid></domain>`);
    const before = bytesRead();
    const taken = [jest.spyOn(Buffer, 'alloc'), jest.spyOn(Buffer, 'allocUnsafeSlow')];

    const backupFiles = new BackupFiles(readArchive);
    await backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });

    const largest = Math.max(...taken.flatMap(({ mock }) => mock.calls.map(([bytes]) => bytes)));
    for (const spy of taken) spy.mockRestore();
    expect(largest).toBeLessThan(32 * MiB);
    expect(bytesRead() - before).toBeLessThan(64 * MiB);
    const files = backupFiles.files(POOL_ID);
    expect(files.filter(({ damage }) => damage === '').map(({ filename }) => filename)).toEqual([
      'a.xml',
      'z.xml',
    ]);
    expect(files.filter(({ damage }) => damage !== '').map(({ filename }) => filename)).toEqual([
      'frames.tar.zst',
      'manifest.tar',
      'smaller.xml',
      'sparse.xml',
    ]);
    expect(
      backupFiles
        .skipped(POOL_ID)
        .map(({ filename }) => filename)
        .sort(),
    ).toEqual(['device.tar', 'etc.tar', 'pipe.tar', 'pipe.xml', 'shadow.xml', 'socket.tar']);
  });

  test('of a directory with more names than are looked at is cut, and what was known stays', async () => {
    for (let index = 0; index < 30; index++) writeFileSync(at(`${index}.xml`), '<domain>');
    const backupFiles = new BackupFiles(readArchive);
    await backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });
    const limits = { files: 10, names: 20 };
    expect(await listBackupPaths(join(dir, 'backups'), limits)).toMatchObject({ isCut: true });
    expect((await listBackupPaths(join(dir, 'backups'), limits)).names).toHaveLength(10);
    const narrow = new BackupFiles(readArchive, { files: 100, names: 30 });
    await narrow.refresh({ id: POOL_ID, path: dir }, { signal });
    expect(narrow.count(POOL_ID)).toBe(30);
    writeFileSync(at('more.xml'), '<domain>');
    rmSync(at('0.xml'));
    writeFileSync(at('even-more.xml'), '<domain>');
    await narrow.refresh({ id: POOL_ID, path: dir }, { signal });
    // those that were known are there still, but for the one that is gone
    expect(narrow.files(POOL_ID).filter(({ filename }) => /^\d/.test(filename))).toHaveLength(29);
    expect(narrow.skipped(POOL_ID)).toMatchObject([{ reason: expect.stringContaining('more names') }]);
  });
});

test('a scan unpacks no foreign archive, however much is in it', async () => {
  // 32 GiB of zeros in 256 frames that do not tell their size
  const frame = execFileSync('sh', ['-c', 'head -c 134217728 /dev/zero | zstd -q --no-check']);
  writeFileSync(
    at('bomb.tar.zst'),
    Buffer.concat(Array.from({ length: 256 }, () => Buffer.concat([frame, skippable(65_536)]))),
  );
  const before = bytesRead();
  const backupFiles = new BackupFiles(readArchive);
  await backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });
  expect(backupFiles.files(POOL_ID)[0]!.damage).not.toBe('');
  expect(bytesRead() - before).toBeLessThan(statSync(at('bomb.tar.zst')).size / 2);
});

/** A frame of zstd that holds nothing. */
function skippable(bytes: number): Buffer {
  const frame = Buffer.alloc(8 + bytes);
  frame.writeUInt32LE(0x184d2a50, 0);
  frame.writeUInt32LE(bytes, 4);
  return frame;
}

describe('whoever opens one of them', () => {
  test.each([
    ['a pipe', () => pipe('x.tar')],
    ['a device', () => device('x.tar')],
    ['a socket', () => socket('x.tar')],
    ['a symbolic link', () => symlinkSync('/etc/shadow', at('x.tar'))],
    ['a directory', () => mkdirSync(at('x.tar'))],
  ])('gets no hold of %s', async (what, make) => {
    await Promise.resolve(make());
    const refused = expect.objectContaining({
      msgKey: 'not_a_file',
      params: expect.objectContaining({ what }),
    });
    await expect(openArchive(at('x.tar'), signal)).rejects.toEqual(refused);
    await expect(openArchive(at('x.tar'), signal, { holding: 'none' })).rejects.toEqual(refused);
    await expect(lockFile(at('x.tar'), 'exclusive')).rejects.toEqual(refused);
  });

  test('an image that is a pipe keeps nobody waiting', async () => {
    pipe('image.qcow2');
    await expect(readImageHeader(at('image.qcow2'))).rejects.toEqual(notAFile);
  });
});

test('what is restored goes into the file that was made for it, and into none that took its name', async () => {
  await writeArchive(at('vm.tar'), [{ name: '0001_vda.qcow2', from: Buffer.alloc(8192, 'x') }]);
  const image = join(dir, 'image');
  writeFileSync(image, '');
  const { ino, birthtimeNs } = statSync(image, { bigint: true });
  const mark = { inode: String(ino), bornNs: String(birthtimeNs) };
  renameSync(image, join(dir, 'made'));
  writeFileSync(image, 'of another');
  const archive = await openArchive(at('vm.tar'), signal);
  try {
    const extract = (path: string) =>
      archive.extractMember('0001_vda.qcow2', path, { signal, existing: true, mark });
    await expect(extract(image)).rejects.toEqual(expect.objectContaining({ msgKey: 'file_exists' }));
    expect(readFileSync(image, 'utf8')).toBe('of another');
    symlinkSync(image, join(dir, 'link'));
    await expect(extract(join(dir, 'link'))).rejects.toThrow();
    expect(readFileSync(image, 'utf8')).toBe('of another');
    await extract(join(dir, 'made'));
    expect(statSync(join(dir, 'made')).size).toBe(8192);
  } finally {
    await archive.close();
  }
});
