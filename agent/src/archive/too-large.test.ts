/** What no reader would take is not written. */
import { existsSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { afterAll, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { MAX_DATA_FRAMES, MAX_FRAMES } from './format/bounds.ts';
import { framesOfTar, requireReadable } from './format/growth.ts';
import { seekTableBytes } from './format/seek-table.ts';
import { openArchive } from './index.ts';
import { appendState, BACKUP_ID, noise, scratch, signal, writeArchive } from './test-kit.ts';
import { ArchiveAppender } from './write/append.ts';
import { ArchiveConverter } from './write/convert.ts';
import { ArchiveWriter } from './write/writer.ts';

const dir = scratch();
afterAll(() => dir.remove());
const TOO_LARGE = { msgKey: 'archive_too_large' };
const frames = (path: string) => (seekTableBytes(readFileSync(path).subarray(-9))! - 17) / 12;

test('as much as readers take may be written, and no more', () => {
  const most = (MAX_DATA_FRAMES - 2) * 4 * MiB;
  requireReadable('/a', { bytes: most, members: 1 });
  expect(() => requireReadable('/a', { bytes: most + 1, members: 1 })).toThrow(
    expect.objectContaining({ msgKey: 'archive_too_large' }),
  );
  expect(MAX_FRAMES - MAX_DATA_FRAMES).toBeGreaterThan(16);
});

test('the frames of an archive are never more than was counted before', async () => {
  const path = dir.at('counted.tar.zst');
  writeFileSync(dir.at('disk'), noise(5 * MiB));
  truncateSync(dir.at('disk'), 21 * MiB);
  await writeArchive(path, [{ name: 'd.qcow2', from: dir.at('disk') }], { zstd: true });
  await appendState(path, [{ name: 'd_s.snapshot', from: dir.at('disk') }]);
  const { members, close } = await openArchive(path, signal).then(archive => ({
    members: archive.members,
    close: () => archive.close(),
  }));
  await close();
  const last = members.at(-1)!;
  const bytes = last.dataOffset + last.sizeBytes;
  expect(frames(path)).toBeLessThanOrEqual(framesOfTar({ bytes, members: members.length }) + 2);
});

test('a member that would make it too large is not begun, and nothing is published', async () => {
  const path = dir.at('new.tar.zst');
  const options = { path, backupId: BACKUP_ID, compression: {}, hash: false, signal, maxFrames: 6 };
  writeFileSync(dir.at('small'), noise(4 * MiB));
  writeFileSync(dir.at('large'), '');
  truncateSync(dir.at('large'), 16 * MiB);
  const writer = await ArchiveWriter.create(options);
  await writer.addFile('a.qcow2', 'disk', dir.at('small'));
  await expect(writer.addFile('b.qcow2', 'disk', dir.at('large'))).rejects.toMatchObject(TOO_LARGE);
  await writer.abort();
  expect(existsSync(path)).toBe(false);
});

test('what just fits gets its manifest, which takes a little more', async () => {
  const path = dir.at('fits.tar.zst');
  await writeArchive(path, [{ name: 'd.qcow2', from: dir.at('small') }], { zstd: true, maxFrames: 6 });
  expect(frames(path)).toBeGreaterThan(6);
  const archive = await openArchive(path, signal);
  await archive.close();
  expect(archive.manifest).not.toBeNull();
});

test('an increment that would is undone, byte for byte', async () => {
  const path = dir.at('grown.tar.zst');
  await writeArchive(path, [{ name: 'd.qcow2', from: dir.at('small') }], { zstd: true });
  const before = readFileSync(path);
  const adding = appendState(path, [{ name: 'd_s.snapshot', from: dir.at('large') }], { maxFrames: 12 });
  await expect(adding).rejects.toMatchObject(TOO_LARGE);
  expect(readFileSync(path).equals(before)).toBe(true);
  const appender = await ArchiveAppender.open({ path, signal });
  await appender.abort();
});

test('a plain one that would is not compressed; it may be made plain again', async () => {
  const from = dir.at('plain.tar');
  await writeArchive(from, [{ name: 'd.qcow2', from: dir.at('large') }]);
  const compressing = { from, path: dir.at('c.tar.zst'), compression: {}, signal, maxFrames: 8 };
  await expect(ArchiveConverter.open(compressing)).rejects.toMatchObject(TOO_LARGE);
  expect(readdirSync(dir.at('')).filter(name => name.startsWith('c.tar'))).toEqual([]);
  const converter = await ArchiveConverter.open({ ...compressing, maxFrames: 30 });
  await converter.abort();
});
