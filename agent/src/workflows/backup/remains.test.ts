import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { lockFile, partialPathOf, reserveName } from '../../archive/index.ts';
import { appendState, BACKUP_ID, noise, signal, writeArchive } from '../../archive/test-kit.ts';
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

test('an archive that was converted goes only while what was made of it is there', async () => {
  await written();
  const by = join(directory, 'a.tar.zst');
  await removeReplaced({ path, by });
  expect(files()).toEqual(['a.tar', 'a.tar.sha256']);
  await written(by);
  await removeReplaced({ path, by });
  expect(files()).toEqual(['a.tar.zst', 'a.tar.zst.sha256']);
});
