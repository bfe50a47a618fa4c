/** An archive whose last increment was left by a node that died before all of it was on the disk. */
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { DownloadBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { ArchiveAppender, verifyArchive } from '../../archive/index.ts';
import { appendState, noise, signal, writeArchive } from '../../archive/test-kit.ts';
import { tailPathOf } from '../backup/base.ts';
import { downloadChunks } from '../files/download.ts';
import { openBackup } from './source.ts';

const OTHER_OPERATION = 'c0ffee00-0000-4000-8000-000000000001';
const damaged = expect.objectContaining({ msgKey: 'archive_damaged' });

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'half-extended-'));
  mkdirSync(join(directory, 'backups'));
});
afterEach(() => rmSync(directory, { recursive: true }));

describe.each(['tar', 'tar.zst'])('of a %s', format => {
  let path: string;
  let tailPath: string;
  /** Sizes before the increment and after it. */
  let before: number;
  let after: number;

  beforeEach(async () => {
    path = join(directory, 'backups', `a.${format}`);
    tailPath = tailPathOf(path, OTHER_OPERATION);
    await writeArchive(path, [{ name: 'd', from: noise(5000) }], { zstd: format === 'tar.zst' });
    await appendState(path, [{ name: 'e', from: noise(5000, 2) }]);
    rmSync(`${path}.tail`);
    before = readFileSync(path).length;
    await appendState(path, [{ name: 'f', from: noise(400_000, 3) }], { tailPath });
    after = readFileSync(path).length;
    // as `begin` wrote it
    const saved = readFileSync(tailPath, 'latin1').replace('"durable":true', '"durable":false');
    writeFileSync(tailPath, saved, 'latin1');
  });

  /** Its end reached the disk, some of its data did not. */
  const leaveHole = () =>
    writeFileSync(path, readFileSync(path).fill(0, before + 8192, before + Math.floor((after - before) / 2)));

  async function restored(state: string): Promise<number> {
    const backup = await openBackup(path, state, signal);
    await backup.archive.close();
    return backup.state.number;
  }

  async function downloaded(member = ''): Promise<Buffer> {
    const pieces: Uint8Array[] = [];
    for await (const { data } of downloadChunks(path, DownloadBackupRequest.fromPartial({ member }), signal))
      pieces.push(data);
    return Buffer.concat(pieces);
  }

  test('the state that it added is not given, and the older ones are', async () => {
    leaveHole();
    for (const state of ['', 's3', '3']) await expect(restored(state)).rejects.toEqual(damaged);
    await expect(restored('2')).resolves.toBe(2);
    await expect(restored('1')).resolves.toBe(1);
  });

  test('a verification names it, and takes the older states for restorable', async () => {
    leaveHole();
    const { problems, restorableStates } = await verifyArchive(path, { signal });
    expect(problems).toMatchObject([{ member: null, problem: 'torn_tail' }]);
    expect(restorableStates).toEqual([1, 2]);
  });

  test('no copy of it goes out as whole; its older members do', async () => {
    leaveHole();
    await expect(downloaded()).rejects.toEqual(damaged);
    await expect(downloaded('f')).rejects.toMatchObject({ msgKey: 'member_not_found' });
    expect((await downloaded('e')).equals(noise(5000, 2))).toBe(true);
  });

  test('nor is that state given when its manifest is there and the end behind it is not', async () => {
    leaveHole();
    truncateSync(path, after - (format === 'tar' ? 1024 : 9));
    for (const state of ['', '3']) await expect(restored(state)).rejects.toEqual(damaged);
    await expect(restored('2')).resolves.toBe(2);
    expect((await verifyArchive(path, { signal })).restorableStates).toEqual([1, 2]);
  });

  test('one that was durable counts', async () => {
    const saved = readFileSync(tailPath, 'latin1').replace('"durable":false', '"durable":true');
    writeFileSync(tailPath, saved, 'latin1');
    await expect(restored('')).resolves.toBe(3);
    expect((await verifyArchive(path, { signal })).problems).toEqual([]);
    expect((await downloaded()).length).toBe(after);
  });

  test('one that had only begun is in nobody’s way', async () => {
    rmSync(tailPath);
    const dying = await ArchiveAppender.open({ path, signal });
    await dying.begin(tailPath);
    const saved = readFileSync(tailPath);
    await dying.abort();
    writeFileSync(tailPath, saved);
    await expect(restored('')).resolves.toBe(3);
    expect((await verifyArchive(path, { signal })).problems).toEqual([]);
    expect((await downloaded()).length).toBe(after);
  });

  test('one that was forgotten, and extended since, is in nobody’s way', async () => {
    await appendState(path, [{ name: 'g', from: noise(5000, 4) }]);
    await expect(restored('')).resolves.toBe(4);
    expect((await verifyArchive(path, { signal })).problems).toEqual([]);
  });

  const unreadable = {
    damaged: () => appendFileSync(tailPath, 'more'),
    'a directory': () => {
      rmSync(tailPath);
      mkdirSync(tailPath);
    },
    'too large': () => truncateSync(tailPath, 1024 ** 4),
  };
  test.each(Object.entries(unreadable))(
    'when what tells of it is %s, the newest state is given to who names it',
    async (_what, spoil) => {
      spoil();
      await expect(restored('')).rejects.toEqual(damaged);
      for (const number of [1, 2, 3]) await expect(restored(String(number))).resolves.toBe(number);
      expect((await verifyArchive(path, { signal })).problems).toMatchObject([{ problem: 'torn_tail' }]);
    },
  );

  test('one that is under way on another node refuses readers as before', async () => {
    rmSync(tailPath);
    const running = await ArchiveAppender.open({ path, signal });
    await running.begin(tailPath);
    try {
      await expect(restored('')).rejects.toMatchObject({ msgKey: 'file_busy' });
    } finally {
      await running.abort();
    }
    await expect(restored('')).resolves.toBe(3);
  });
});
