import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { lockFile } from '../../archive/index.ts';
import { appendState, BACKUP_ID, noise, signal, writeArchive } from '../../archive/test-kit.ts';
import { fileMarkAt } from '../../images/index.ts';
import type { Effect } from '../effect.ts';
import { contentOf } from './content.ts';
import { replaceByTrimmed, trimmedOfBefore } from './trimmed.ts';

type Trimmed = Extract<Effect, { type: 'trimmed_archive' }>;

let directory: string;
let path: string;
let by: string;
let effect: Trimmed;
const warn = jest.fn();

const extend = async (at: string) => {
  await appendState(at, []);
  rmSync(`${at}.tail`);
};
const described = async (at: string) => {
  const { points: _, ...content } = (await contentOf(at, 'none', signal))!;
  return content;
};
/** Two restore points, and beside them what is to take their place. */
beforeEach(async () => {
  warn.mockClear();
  directory = mkdtempSync(join(tmpdir(), 'trimmed-'));
  [path, by] = [join(directory, 'a.tar'), join(directory, 'a-2.tar')];
  await writeArchive(path, [{ name: 'd', from: noise(5000) }], { hash: true });
  await extend(path);
  await writeArchive(by, [{ name: 'd', from: noise(3000) }], { hash: true });
  const hashFile = (await fileMarkAt(`${by}.sha256`))!;
  const made = { ...(await described(by)), hashFile };
  effect = { type: 'trimmed_archive', path, by, was: await described(path), made };
});
afterEach(() => rmSync(directory, { recursive: true }));

const files = () => readdirSync(directory).filter(name => !name.startsWith('.'));
const replace = (of: Trimmed = effect) => replaceByTrimmed(of, { signal, warn });
const BOTH = ['a-2.tar', 'a-2.tar.sha256', 'a.tar', 'a.tar.sha256'];
const ONE = ['a.tar', 'a.tar.sha256'];

test('what was made gets the name, with its hash file, also when that is repeated', async () => {
  const [archive, hashes] = [readFileSync(by), readFileSync(`${by}.sha256`)];
  await replace();
  await replace();
  expect(files()).toEqual(ONE);
  expect([readFileSync(path).equals(archive), readFileSync(`${path}.sha256`).equals(hashes)]).toEqual([
    true,
    true,
  ]);
  expect(warn).not.toHaveBeenCalled();
});

test('one without hashes takes those of the former archive away', async () => {
  rmSync(`${by}.sha256`);
  await replace();
  expect(files()).toEqual(['a.tar']);
});

describe('as the version before noted it', () => {
  const noted = () => {
    const { manifestSha256: _, ...was } = effect.was;
    return trimmedOfBefore({ type: 'replaced_archive', path, by, was, isTrimmed: true });
  };

  test('what was made gets the name', async () => {
    await replace(noted());
    await replace(noted());
    expect(files()).toEqual(ONE);
  });

  test('an archive that was removed does not come back', async () => {
    for (const suffix of ['', '.sha256']) rmSync(`${path}${suffix}`);
    await replace(noted());
    expect(existsSync(path)).toBe(false);
  });
});

test('an archive that was removed meanwhile does not come back, and what was made of it is not lost', async () => {
  for (const suffix of ['', '.sha256']) rmSync(`${path}${suffix}`);
  await replace();
  expect(files()).toEqual(['a-2.tar', 'a-2.tar.sha256']);
  expect(warn).toHaveBeenCalledWith(expect.stringContaining(by));
});

test('one that was extended meanwhile stays, and what was made of it goes', async () => {
  await extend(path);
  const now = readFileSync(path);
  await replace();
  expect([files(), readFileSync(path).equals(now)]).toEqual([ONE, true]);
  expect(warn).toHaveBeenCalledWith(expect.stringContaining('was not trimmed'));
});

test.each([
  ['the archive is another one of the same size and number of states', () => path, () => effect.was],
  ['what was made is another one of the same size and number of states', () => by, () => effect.made!],
])('no name changes when %s', async (_name, at, recorded) => {
  recorded().manifestSha256 = 'another';
  const before = readFileSync(at());
  await replace();
  expect(readFileSync(at()).equals(before)).toBe(true);
  expect(warn).toHaveBeenCalledTimes(1);
});

test('no name changes, and nothing goes, when the archive is damaged, or what was made was extended', async () => {
  const whole = readFileSync(path);
  appendFileSync(path, 'x');
  await replace();
  expect(files()).toEqual(BOTH);
  writeFileSync(path, whole);
  await extend(by);
  await replace();
  expect([files(), readFileSync(path).equals(whole)]).toEqual([BOTH, true]);
});

test('no name changes under a lock of a file that has lost the name', async () => {
  const lock = await lockFile(path, 'exclusive');
  copyFileSync(path, join(directory, 'copy'));
  renameSync(join(directory, 'copy'), path);
  await replaceByTrimmed(effect, { signal, warn, lock });
  await lock.release();
  expect(files()).toEqual(BOTH);
});

describe('cut off between the archive and its hash file', () => {
  beforeEach(() => renameSync(by, path));

  test('the hash file follows', async () => {
    const hashes = readFileSync(`${by}.sha256`);
    await replace();
    expect([files(), readFileSync(`${path}.sha256`).equals(hashes)]).toEqual([ONE, true]);
  });

  test('that of an archive that was extended meanwhile stays', async () => {
    await extend(path);
    const hashes = readFileSync(`${path}.sha256`);
    await replace();
    expect([files(), readFileSync(`${path}.sha256`).equals(hashes)]).toEqual([ONE, true]);
  });

  test('that of another who got the name stays, too', async () => {
    renameSync(`${by}.sha256`, join(directory, 'aside'));
    writeFileSync(`${by}.sha256`, 'of another');
    const hashes = readFileSync(`${path}.sha256`);
    await replace();
    expect(readFileSync(`${by}.sha256`, 'utf8')).toBe('of another');
    expect(readFileSync(`${path}.sha256`).equals(hashes)).toBe(true);
  });

  test('it goes when the archive was removed meanwhile', async () => {
    for (const suffix of ['', '.sha256']) rmSync(`${path}${suffix}`);
    await replace();
    expect(files()).toEqual([]);
  });
});

test('waits while somebody reads the archive, or writes what was made of it', async () => {
  for (const [at, mode] of [
    [path, 'shared'],
    [by, 'exclusive'],
  ] as const) {
    const lock = await lockFile(at, mode);
    await expect(replace()).rejects.toMatchObject({ msgKey: 'file_busy' });
    await lock.release();
  }
  const { size } = statSync(by);
  await replace();
  expect([files(), statSync(path).size]).toEqual([ONE, size]);
  expect((await contentOf(path, 'none', signal))!.backupId).toBe(BACKUP_ID);
});
