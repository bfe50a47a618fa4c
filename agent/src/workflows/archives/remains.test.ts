import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { lockFile, partialPathOf, reserveName } from '../../archive/index.ts';
import { appendState, BACKUP_ID, noise, signal, writeArchive } from '../../archive/test-kit.ts';
import { fileMarkAt } from '../../images/index.ts';
import { removeReplaced, removeUnfinished } from './remains.ts';

let directory: string;
let path: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'remains-'));
  path = join(directory, 'a.tar');
});
afterEach(() => rmSync(directory, { recursive: true }));

const written = (at = path) => writeArchive(at, [{ name: 'd', from: noise(5000) }], { hash: true });
const effect = (change: { owner?: string; states?: number } = {}) => ({
  type: 'archive' as const,
  backupId: BACKUP_ID,
  partialPath: partialPathOf(path, BACKUP_ID),
  finalPath: path,
  ...change,
});
const files = () => readdirSync(directory).filter(name => !name.startsWith('.'));

test('what was published and not committed goes, with its hash file', async () => {
  await (await reserveName(path, 'me'))!.release();
  await written();
  writeFileSync(`${effect().partialPath}.sha256`, '');
  await removeUnfinished(effect({ owner: 'me', states: 1 }), signal);
  expect(readdirSync(directory)).toEqual(['.a.tar.reserved']);
});

test('the archive of another who got the name stays, also when it is of the same backup', async () => {
  await (await reserveName(path, 'other'))!.release();
  await written();
  await removeUnfinished(effect({ owner: 'me', states: 1 }), signal);
  expect(files()).toEqual(['a.tar', 'a.tar.sha256']);
});

test('the hash file goes, too, when the removal was cut off behind the archive', async () => {
  await (await reserveName(path, 'me'))!.release();
  await written();
  rmSync(path);
  await removeUnfinished(effect({ owner: 'me', states: 1 }), signal);
  expect(files()).toEqual([]);
});

test('one that was extended since stays', async () => {
  await (await reserveName(path, 'me'))!.release();
  await written();
  await appendState(path, []);
  rmSync(`${path}.tail`);
  await removeUnfinished(effect({ owner: 'me', states: 1 }), signal);
  expect(files()).toEqual(['a.tar', 'a.tar.sha256']);
});

test('one that somebody reads waits', async () => {
  await written();
  const reader = await lockFile(path, 'shared');
  await expect(removeUnfinished(effect(), signal)).rejects.toMatchObject({ msgKey: 'file_busy' });
  await reader.release();
  await removeUnfinished(effect(), signal);
  expect(files()).toEqual([]);
});

test('a hash file of somebody else who is about to take the name stays', async () => {
  writeFileSync(`${path}.sha256`, '');
  await removeUnfinished(effect(), signal);
  expect(existsSync(`${path}.sha256`)).toBe(true);
});

describe('an archive that was converted', () => {
  const by = () => join(directory, 'a.tar.zst');
  const whole = ['a.tar', 'a.tar.sha256', 'a.tar.zst', 'a.tar.zst.sha256'];
  /** What is recorded before it is removed. */
  const replaced = () => ({
    type: 'replaced_archive' as const,
    path,
    by: by(),
    was: { backupId: BACKUP_ID, states: 1, sizeBytes: statSync(path).size },
  });
  /** As it is recorded by the version before. */
  const bare = () => ({ type: 'replaced_archive' as const, path, by: by() });
  const warn = jest.fn();
  const remove = (effect: Parameters<typeof removeReplaced>[0]) => removeReplaced(effect, { signal, warn });
  beforeEach(async () => {
    warn.mockClear();
    await written();
  });

  test.each([
    ['', replaced],
    [' (of the version before)', bare],
  ])('goes only while what was made of it is there%s', async (_name, effect) => {
    const declared = effect();
    await remove(declared);
    expect(files()).toEqual(['a.tar', 'a.tar.sha256']);
    await written(by());
    await remove(declared);
    await remove(declared);
    expect(files()).toEqual(['a.tar.zst', 'a.tar.zst.sha256']);
  });

  test.each([
    ['', replaced],
    [' (of the version before)', bare],
  ])('stays when it was extended since, and is named%s', async (_name, effect) => {
    await written(by());
    const before = effect();
    await appendState(path, []);
    rmSync(`${path}.tail`);
    await remove(before);
    expect(files()).toEqual(whole);
    expect(warn).toHaveBeenCalledWith(expect.stringContaining(path));
  });

  test('takes its own hash file along when its removal was cut off, and not one of somebody else', async () => {
    await written(by());
    const before = replaced();
    const recorded = { ...before, was: { ...before.was, hashFile: (await fileMarkAt(`${path}.sha256`))! } };
    rmSync(path);
    await remove(before);
    expect(existsSync(`${path}.sha256`)).toBe(true);
    await remove(recorded);
    expect(existsSync(`${path}.sha256`)).toBe(false);
    writeFileSync(`${path}.sha256`, 'of somebody else');
    await remove(recorded);
    expect(existsSync(`${path}.sha256`)).toBe(true);
  });

  test('stays when it is another size, or cannot be read', async () => {
    await written(by());
    const before = replaced();
    appendFileSync(path, 'x');
    await remove(before);
    rmSync(path);
    writeFileSync(path, noise(before.was.sizeBytes));
    await remove(before);
    expect(files()).toEqual(whole);
  });

  test('stays when what was made of it is not whole any more, and goes when that was extended', async () => {
    await written(by());
    await appendState(by(), []);
    rmSync(`${by()}.tail`);
    const bytes = readFileSync(by());
    writeFileSync(by(), bytes.subarray(0, -1));
    await remove(replaced());
    expect(files()).toEqual(whole);
    writeFileSync(by(), bytes);
    await remove(replaced());
    expect([existsSync(path), existsSync(by())]).toEqual([false, true]);
  });

  test('waits while somebody reads it, and goes under the lock of who converted it', async () => {
    await written(by());
    const reader = await lockFile(path, 'shared');
    await expect(remove(replaced())).rejects.toMatchObject({ msgKey: 'file_busy' });
    await reader.release();
    const lock = await lockFile(path, 'exclusive');
    await removeReplaced(replaced(), { signal, warn, lock });
    await lock.release();
    expect(existsSync(path)).toBe(false);
    expect(warn).not.toHaveBeenCalled();
  });
});
