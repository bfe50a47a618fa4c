import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { afterAll, describe, expect, test } from '@jest/globals';
import { KiB, MiB } from '@virtkeep/shared/units';
import type { WriterOptions } from '../format/types.ts';
import { openArchive, ReadOnce } from '../index.ts';
import { BACKUP_ID, manifestOf, noise, scratch, signal, tool, writeArchive, XML } from '../test-kit.ts';
import { ArchiveWriter } from './writer.ts';

const dir = scratch();
afterAll(() => dir.remove());

/** What lies in a directory of its own, hidden files included. */
function freshDirectory(name: string): string {
  mkdirSync(dir.at(name));
  return dir.at(name);
}

const create = (path: string, changes: Partial<WriterOptions> = {}) =>
  ArchiveWriter.create({ path, backupId: BACKUP_ID, compression: null, hash: false, signal, ...changes });

async function finish(writer: ArchiveWriter): Promise<void> {
  await writer.addBytes('0001_vm.xml', 'domain_xml', Buffer.from(XML));
  await writer.finish({ stateNumber: 1, manifest: manifestOf });
}

describe('publishing', () => {
  test('who does not get the name leaves the hash file of who has it', async () => {
    const home = freshDirectory('loser');
    const [winner, loser] = await Promise.all(
      [BACKUP_ID, BACKUP_ID.replace('0b', '0c')].map(backupId =>
        create(`${home}/a.tar`, { backupId, hash: true }),
      ),
    );
    await winner!.addBytes('x', 'other', noise(10));
    await finish(winner!);
    const hashes = readFileSync(`${home}/a.tar.sha256`);
    await expect(finish(loser!)).rejects.toMatchObject({ msgKey: 'file_exists' });
    await Promise.all([winner!.abort(), loser!.abort()]);
    expect(readdirSync(home).sort()).toEqual(['a.tar', 'a.tar.sha256']);
    expect(readFileSync(`${home}/a.tar.sha256`).equals(hashes)).toBe(true);
  });

  test('until it is finished an archive has its partial name only', async () => {
    const home = freshDirectory('partial');
    const writer = await create(`${home}/a.tar`);
    await writer.addBytes('x', 'other', noise(10));
    const [name, ...more] = readdirSync(home);
    expect(more).toEqual([]);
    expect(name).toMatch(/^\.a\.tar\.[0-9a-f-]{36}\.partial$/);
    await finish(writer);
    await writer.abort();
    expect(readdirSync(home)).toEqual(['a.tar']);
    expect(statSync(`${home}/a.tar`).mode & 0o777).toBe(0o600);
  });

  test('an existing file is never overwritten, even one that came in the meantime', async () => {
    const home = freshDirectory('exists');
    writeFileSync(`${home}/a.tar`, 'mine');
    await expect(create(`${home}/a.tar`)).rejects.toMatchObject({ msgKey: 'file_exists' });
    const writer = await create(`${home}/b.tar`, { hash: true });
    writeFileSync(`${home}/b.tar`, 'mine');
    await expect(finish(writer)).rejects.toMatchObject({ msgKey: 'file_exists' });
    await writer.abort();
    expect(readFileSync(`${home}/b.tar`, 'utf8')).toBe('mine');
    expect(readdirSync(home).sort()).toEqual(['a.tar', 'b.tar']);
  });

  test('two writers of the same backup do not share a file', async () => {
    const home = freshDirectory('twice');
    const writer = await create(`${home}/a.tar`);
    await expect(create(`${home}/a.tar`)).rejects.toMatchObject({ msgKey: 'file_exists' });
    await finish(writer);
    await writer.abort();
    expect(readdirSync(home)).toEqual(['a.tar']);
  });

  test('a manifest that does not list what was written is refused', async () => {
    const home = freshDirectory('wrong');
    const writer = await create(`${home}/a.tar`);
    await writer.addBytes('0001_vm.xml', 'domain_xml', Buffer.from(XML));
    await writer.addBytes('y', 'other', noise(5));
    const manifest = (members: Parameters<typeof manifestOf>[0]) => manifestOf(members.slice(0, 1));
    await expect(writer.finish({ stateNumber: 1, manifest })).rejects.toMatchObject({ msgKey: 'internal' });
    await writer.abort();
    expect(readdirSync(home)).toEqual([]);
  });
});

describe('refusals', () => {
  test('names, levels, sizes', async () => {
    const home = freshDirectory('refusals');
    await expect(create(`${home}/a`, { compression: { level: 19 } })).rejects.toMatchObject({
      msgKey: 'invalid_field',
    });
    await expect(create(`${home}/none/a.tar`)).rejects.toMatchObject({ msgKey: 'io_failed' });
    const writer = await create(`${home}/a.tar`);
    await expect(writer.addBytes('../x', 'other', noise(1))).rejects.toMatchObject({
      msgKey: 'invalid_name',
    });
    await writer.addBytes('x', 'other', noise(1));
    await expect(writer.addBytes('x', 'other', noise(1))).rejects.toMatchObject({ msgKey: 'invalid_name' });
    await expect(writer.addBytes('y', 'other', Buffer.alloc(17 * MiB))).rejects.toMatchObject({
      msgKey: 'bad_request',
    });
    await expect(writer.addFile('z', 'disk', `${home}/none`)).rejects.toMatchObject({ msgKey: 'io_failed' });
    await writer.abort();
    expect(readdirSync(home)).toEqual([]);
  });

  test.each([false, true])('a source that becomes shorter fails (zstd: %p)', async zstd => {
    const home = freshDirectory(`shorter-${zstd}`);
    const source = dir.at(`shrinking-${zstd}`);
    const shrink = () => truncateSync(source, 100);
    const part = noise(32 * MiB);
    // the threads may have read all of it before this one is told of the first progress: then a longer one is tried
    let outcome: unknown = 'too late';
    for (let parts = 2; outcome === 'too late'; parts = Math.min(2 * parts, 16)) {
      writeFileSync(source, part);
      for (let more = 1; more < parts; more++) appendFileSync(source, part);
      const writer = await create(`${home}/a`, { compression: zstd ? {} : null, onProgress: shrink });
      outcome = await writer.addFile('d', 'disk', source).then(
        () => 'too late',
        (error: unknown) => error,
      );
      await writer.abort();
      expect(readdirSync(home)).toEqual([]);
    }
    expect(outcome).toMatchObject({ msgKey: 'io_failed' });
  });
});

describe.each([
  ['plain', null, false],
  ['plain with hash', null, true],
  ['zstd', {}, false],
] as const)('cancelling a %s archive', (name, compression, hash) => {
  test('ends it and leaves nothing', async () => {
    const home = freshDirectory(`cancel-${name}`);
    const source = dir.at(`cancel-source-${name}`);
    const handle = await open(source, 'w');
    const bytes = noise(16 * MiB);
    for (let at = 0; at < 16; at++) await handle.write(bytes, 0, bytes.length, at * bytes.length);
    await handle.close();
    const cancel = new AbortController();
    const onProgress = () => cancel.abort();
    const writer = await create(`${home}/a`, { compression, hash, signal: cancel.signal, onProgress });
    await expect(writer.addFile('d', 'disk', source)).rejects.toMatchObject({ msgKey: 'canceled' });
    await writer.abort();
    expect(readdirSync(home)).toEqual([]);
  });
});

describe.each([
  { how: 'here', sizeMiB: 100, level: null },
  { how: 'by threads', sizeMiB: 160, level: null },
  { how: 'compressed', sizeMiB: 160, level: 1 },
])('a file that gives back its room while it is copied $how', ({ sizeMiB, level }) => {
  test.each([false, true])('comes whole, and needs none at the end (hash: %p)', async hash => {
    const home = freshDirectory(`once-${sizeMiB}-${level}-${hash}`);
    const spare = `${home}/spare`;
    const bytes = Buffer.concat(
      Array.from({ length: sizeMiB }, (_, index) =>
        noise(64 * KiB, index)
          .toString('latin1')
          .repeat(16),
      ).map(text => Buffer.from(text, 'latin1')),
    );
    writeFileSync(spare, bytes);
    const file = await open(spare, 'r+');
    const once = new ReadOnce(file);
    const writer = await create(`${home}/a.tar`, { hash, compression: level === null ? null : { level } });
    await writer.addFile('disk', 'disk', spare, { onCopied: done => once.done(done) });
    await once.settled();
    await file.close();
    expect(statSync(spare).blocks * 512).toBeLessThan(32 * MiB);
    await finish(writer);
    const archive = await openArchive(`${home}/a.tar`, signal);
    const options = { signal, checkHash: hash };
    await archive.extractMember('disk', `${home}/back`, options).finally(() => archive.close());
    expect(readFileSync(`${home}/back`).equals(bytes)).toBe(true);
    for (const name of ['spare', 'back', 'a.tar']) rmSync(`${home}/${name}`);
  });
});

test('a signal that has fired already stops everything', async () => {
  const home = freshDirectory('fired');
  await expect(create(`${home}/a`, { signal: AbortSignal.abort() })).rejects.toMatchObject({
    msgKey: 'canceled',
  });
  expect(readdirSync(home)).toEqual([]);
});

const asRoot = process.getuid?.() === 0 ? describe : describe.skip;
asRoot('a full file system', () => {
  test.each([false, true])('is disk_full and leaves nothing (zstd: %p)', async zstd => {
    const mount = freshDirectory(`full-${zstd}`);
    await tool('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'none', mount]);
    try {
      const source = dir.at('full-source');
      writeFileSync(source, noise(24 * MiB));
      const writer = await create(`${mount}/a`, { compression: zstd ? {} : null });
      await expect(writer.addFile('d', 'disk', source)).rejects.toMatchObject({ msgKey: 'disk_full' });
      await writer.abort();
      const archived = dir.at(`full-${zstd}.archive`);
      await writeArchive(archived, [{ name: 'd.qcow2', from: source }], { zstd });
      const archive = await openArchive(archived, signal);
      const extracting = archive.extractMember('d.qcow2', `${mount}/d`, { signal });
      await expect(extracting).rejects.toMatchObject({ msgKey: 'disk_full' });
      await archive.close();
      expect(readdirSync(mount)).toEqual([]);
    } finally {
      await tool('umount', [mount]);
    }
  });
});

asRoot('a file system with reflinks', () => {
  test('shares the extents both ways', async () => {
    const mount = freshDirectory('xfs');
    await tool('truncate', ['-s', '512M', dir.at('xfs.img')]);
    await tool('mkfs.xfs', ['-q', '-m', 'reflink=1', dir.at('xfs.img')]);
    await tool('mount', ['-o', 'loop', dir.at('xfs.img'), mount]);
    try {
      writeFileSync(`${mount}/d`, noise(24 * MiB + 1234));
      await writeArchive(`${mount}/a.tar`, [{ name: 'd.qcow2', from: `${mount}/d` }], { hash: true });
      await tool('tar', ['-tf', `${mount}/a.tar`]);
      const archive = await openArchive(`${mount}/a.tar`, signal);
      await archive.extractMember('d.qcow2', `${mount}/out`, { signal, checkHash: true });
      expect((await archive.verify({ signal })).problems).toEqual([]);
      await archive.close();
      await tool('cmp', [`${mount}/d`, `${mount}/out`]);
      const used = Number((await tool('du', ['-B1', '-s', mount])).split('\t')[0]);
      expect(used).toBeGreaterThan(60 * MiB);
      const shared = await tool('filefrag', ['-v', `${mount}/out`]);
      expect(shared).toContain('shared');
    } finally {
      await tool('umount', [mount]);
    }
  });
});

describe.each([
  ['tar', null],
  ['tar.zst', {}],
] as const)('a raw disk into a %s', (format, compression) => {
  test.each([false, true])('becomes an equal qcow2 (hash: %p)', async hash => {
    const raw = dir.at('raw.img');
    const handle = await open(raw, 'w');
    await handle.write(noise(3 * MiB), 0, 3 * MiB, 5 * MiB);
    await handle.truncate(64 * MiB);
    await handle.close();
    const path = dir.at(`raw-${hash}.${format}`);
    const writer = await create(path, { compression, hash });
    await writer.addBytes('before', 'other', noise(700));
    const record = await writer.addRaw('d.qcow2', { path: raw }, 64 * MiB, { formerPath: raw });
    await writer.addBytes('after', 'other', noise(700));
    await finish(writer);
    expect(record.sizeBytes).toBeLessThan(5 * MiB);
    const unpack = format === 'tar' ? [] : ['--zstd'];
    const out = freshDirectory(`raw-out-${format}-${hash}`);
    await tool('tar', ['-C', out, ...unpack, '-xf', path]);
    await tool('qemu-img', ['check', '-q', `${out}/d.qcow2`]);
    await tool('qemu-img', ['compare', '-q', '-f', 'raw', '-F', 'qcow2', raw, `${out}/d.qcow2`]);
    if (hash) await tool('sha256sum', ['--strict', '--quiet', '-c', `${path}.sha256`], out);
    const archive = await openArchive(path, signal);
    await archive.extractMember('d.qcow2', `${out}/e.qcow2`, { signal, checkHash: hash });
    expect((await archive.verify({ signal })).problems).toEqual([]);
    await archive.close();
    await tool('qemu-img', ['compare', '-q', raw, `${out}/e.qcow2`]);
  });

  test('that cannot be read is an error of qemu-img', async () => {
    const home = freshDirectory(`raw-none-${format}`);
    const writer = await create(`${home}/a`, { compression });
    const adding = writer.addRaw('d.qcow2', { path: `${home}/none` }, MiB);
    await expect(adding).rejects.toMatchObject({ msgKey: 'qemu_img_failed' });
    await writer.abort();
    expect(readdirSync(home)).toEqual([]);
  });
});

test('a qcow2 can be read in place by its offset in the tar', async () => {
  const disk = dir.at('slice.qcow2');
  await tool('qemu-img', ['create', '-q', '-f', 'qcow2', disk, '16M']);
  await tool('qemu-io', ['-c', 'write -P 7 1M 2M', disk]);
  const path = dir.at('slice.tar');
  await writeArchive(path, [{ name: 'd.qcow2', from: disk }]);
  const archive = await openArchive(path, signal);
  const { dataOffset, sizeBytes } = archive.members[0]!;
  await archive.close();
  const file = { driver: 'file', filename: path };
  const slice = { driver: 'qcow2', file: { driver: 'raw', offset: dataOffset, size: sizeBytes, file } };
  await tool('qemu-img', ['compare', '-q', '-F', 'qcow2', `json:${JSON.stringify(slice)}`, disk]);
});
