import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { ArchiveAppender, lockFile, putTailsBack, removeTails } from '../../archive/index.ts';
import { appendState, noise, signal, writeArchive } from '../../archive/test-kit.ts';
import { samplePool } from '../../pools/sample-pool.ts';
import { readBase, tailPathOf } from './base.ts';

const OTHER_OPERATION = 'c0ffee00-0000-4000-8000-000000000001';
let directory: string;
let path: string;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'extend-base-'));
  mkdirSync(join(directory, 'backups'));
  path = join(directory, 'backups', 'a.tar');
  await writeArchive(path, [{ name: 'd', from: noise(5000) }], { hash: true });
  await appendState(path, [{ name: 'e', from: noise(5000, 2) }]);
  rmSync(`${path}.tail`);
});
afterEach(() => rmSync(directory, { recursive: true }));

const read = () =>
  readBase(
    StartBackupRequest.fromPartial({ extend: { poolId: 'id-p', filename: 'a.tar' } }),
    [samplePool('p', { path: directory })],
    { nodeName: 'node' },
    signal,
  );

test('an extension that died on another node is undone before the archive is extended again', async () => {
  const before = readFileSync(path);
  const tailPath = tailPathOf(path, OTHER_OPERATION);
  const dying = await ArchiveAppender.open({ path, signal });
  await dying.begin(tailPath);
  await dying.addBytes('f', 'layer', noise(70_000, 3));
  const saved = readFileSync(tailPath);
  await dying.abort();
  // as a node that lost its power leaves both
  const torn = Buffer.concat([before.subarray(0, -1024), noise(30_000, 4)]);
  writeFileSync(path, torn);
  writeFileSync(tailPath, saved);
  const base = await read();
  expect(base.manifest.states).toHaveLength(2);
  expect(readFileSync(path).equals(before)).toBe(true);
  expect(existsSync(tailPath)).toBe(false);
  await base.lock?.release();
});

test('an extension that opens whole and was not durable when its node died is undone', async () => {
  const before = readFileSync(path);
  const hashes = readFileSync(`${path}.sha256`);
  const tailPath = tailPathOf(path, OTHER_OPERATION);
  const dying = await ArchiveAppender.open({ path, signal });
  await dying.begin(tailPath);
  const saved = readFileSync(tailPath);
  await dying.abort();
  await appendState(path, [{ name: 'f', from: noise(400_000, 3) }], { tailPath });
  // its end reached the disk, some of its data did not
  const holed = readFileSync(path).fill(0, before.length + 8192, before.length + 300_000);
  writeFileSync(path, holed);
  writeFileSync(tailPath, saved);
  const base = await read();
  expect(base.manifest.states).toHaveLength(2);
  expect(readFileSync(path).equals(before)).toBe(true);
  expect(readFileSync(`${path}.sha256`).equals(hashes)).toBe(true);
  expect(existsSync(tailPath)).toBe(false);
  await base.lock.release();
});

test('an old end whose extension is durable is not put back, and stays for who saved it until the archive is extended', async () => {
  const tailPath = tailPathOf(path, OTHER_OPERATION);
  await appendState(path, [{ name: 'f', from: noise(5000, 3) }], { tailPath });
  const after = readFileSync(path);
  const base = await read();
  expect(base.manifest.states).toHaveLength(3);
  expect(readFileSync(path).equals(after)).toBe(true);
  expect(existsSync(tailPath)).toBe(true);
  await removeTails(path);
  expect(existsSync(tailPath)).toBe(false);
  await base.lock.release();
});

test('more old ends than agents ever leave are refused, and removed with the archive', async () => {
  const tailPath = (number: number) => tailPathOf(path, OTHER_OPERATION.replace(/..$/, String(number)));
  await appendState(path, [{ name: 'f', from: noise(5000, 3) }], { tailPath: tailPath(10) });
  for (let number = 11; number < 10 + 32; number++) copyFileSync(tailPath(10), tailPath(number));
  const put = async () => {
    const lock = await lockFile(path, 'exclusive');
    await putTailsBack(path, lock, signal).finally(() => lock.release());
  };
  await put();
  copyFileSync(tailPath(10), tailPath(42));
  await expect(put()).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  await removeTails(path);
  expect(readdirSync(join(directory, 'backups'))).toEqual(['a.tar', 'a.tar.sha256']);
});

describe.each(['tar', 'tar.zst'])(
  'the old end of a %s, of an agent that does not note what is durable',
  format => {
    const file = () => join(directory, 'backups', `b.${format}`);
    const tailPath = () => tailPathOf(file(), OTHER_OPERATION);
    let before: Buffer;

    beforeEach(async () => {
      await writeArchive(file(), [{ name: 'd', from: noise(5000) }], { zstd: format === 'tar.zst' });
      await appendState(file(), [{ name: 'e', from: noise(5000, 2) }]);
      rmSync(`${file()}.tail`);
      before = readFileSync(file());
      await appendState(file(), [{ name: 'f', from: noise(5000, 3) }], { tailPath: tailPath() });
      const [line, ...rest] = readFileSync(tailPath(), 'latin1').split('\n');
      const { durable, before: known, ...header } = JSON.parse(line!) as Record<string, unknown>;
      expect([durable, typeof known]).toEqual([true, 'string']);
      writeFileSync(tailPath(), [JSON.stringify(header), ...rest].join('\n'), 'latin1');
    });

    async function put(): Promise<void> {
      const lock = await lockFile(file(), 'exclusive');
      await putTailsBack(file(), lock, signal).finally(() => lock.release());
    }

    test('is put back, as that agent itself would', async () => {
      await put();
      expect(readFileSync(file()).equals(before)).toBe(true);
      expect(existsSync(tailPath())).toBe(false);
    });

    test('is put back when the archive is torn', async () => {
      truncateSync(file(), before.length + 4096);
      await put();
      expect(readFileSync(file()).equals(before)).toBe(true);
    });

    test('is left when the archive was extended again since', async () => {
      await appendState(file(), [{ name: 'g', from: noise(5000, 4) }]);
      const after = readFileSync(file());
      await put();
      expect(readFileSync(file()).equals(after)).toBe(true);
      await removeTails(file());
      expect(existsSync(tailPath())).toBe(false);
    });

    test('is left when another archive has the name', async () => {
      rmSync(file());
      await writeArchive(file(), [{ name: 'd', from: noise(900_000, 9) }], { zstd: format === 'tar.zst' });
      const successor = readFileSync(file());
      await put();
      expect(readFileSync(file()).equals(successor)).toBe(true);
    });
  },
);

test('while an extension is under way another is refused, and the old end that it saved stays', async () => {
  const running = await ArchiveAppender.open({ path, signal });
  const tailPath = tailPathOf(path, OTHER_OPERATION);
  await running.begin(tailPath);
  try {
    await expect(read()).rejects.toMatchObject({ msgKey: 'file_busy' });
    expect(existsSync(tailPath)).toBe(true);
  } finally {
    await running.abort();
  }
});

test('the old end of an archive that was replaced is not put into its successor', async () => {
  const running = await ArchiveAppender.open({ path, signal });
  const tailPath = tailPathOf(path, OTHER_OPERATION);
  await running.begin(tailPath);
  const saved = readFileSync(tailPath);
  await running.abort();
  rmSync(path);
  rmSync(`${path}.sha256`);
  await writeArchive(path, [{ name: 'd', from: noise(900_000, 9) }]);
  truncateSync(path, 800_000);
  const successor = readFileSync(path);
  writeFileSync(tailPath, saved);
  await expect(read()).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  expect(readFileSync(path).equals(successor)).toBe(true);
  expect(existsSync(`${path}.sha256`)).toBe(false);
});
