// An extension that cannot begin is refused, and one with nothing to put back to needs no undo. Beside this: archives that grow.
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { undoAppend } from '../index.ts';
import { fileBusy, lockFile } from '../system/file-lock.ts';
import { appendState, noise, scratch, signal, tool, writeArchive } from '../test-kit.ts';
import { ArchiveAppender } from './append.ts';

const dir = scratch();
afterAll(() => dir.remove());

test('where the pool is not mounted the undo is not done', async () => {
  const nowhere = dir.at('unmounted/a.tar');
  await expect(undoAppend(nowhere, `${nowhere}.tail`)).rejects.toMatchObject({ msgKey: 'io_failed' });
});

test('an archive that was removed meanwhile needs no undo', async () => {
  const path = dir.at('removed.tar');
  await writeArchive(path, []);
  await appendState(path, []);
  rmSync(path);
  await undoAppend(path, `${path}.tail`);
  expect(existsSync(path) || existsSync(`${path}.tail`)).toBe(false);
});

test.each(['tar', 'tar.zst'])(
  'of a %s whose lock was lost meanwhile nothing that a successor wrote is cut off',
  async format => {
    const path = dir.at(`lost.${format}`);
    const tailPath = `${path}.tail`;
    await writeArchive(path, [{ name: 'd', from: noise(5000) }], { zstd: format === 'tar.zst' });
    const lock = await lockFile(path, 'exclusive');
    const lost = { ...lock, confirm: () => Promise.reject(fileBusy(path)), release: () => lock.release() };
    const appender = await ArchiveAppender.open({ path, signal, lock: lost });
    await appender.begin(tailPath);
    await appender.addBytes('0002_vm.xml', 'domain_xml', Buffer.from('<domain/>'));
    // who had the lock next has put the old end back, and extended the archive by more
    rmSync(tailPath);
    const successor = noise(900_000, 5);
    writeFileSync(path, successor);
    const finished = appender.finish({ stateNumber: 2, manifest: () => appender.manifest });
    try {
      await expect(finished).rejects.toMatchObject({ msgKey: 'file_busy' });
    } finally {
      await appender.abort();
      await lock.release();
    }
    expect(readFileSync(path).equals(successor)).toBe(true);
  },
);

describe('what is refused', () => {
  test('foreign archives, damaged ones, wrong levels', async () => {
    const home = dir.at('foreign');
    mkdirSync(home);
    writeFileSync(join(home, 'disk.qcow2'), noise(5000));
    await tool('tar', ['-cf', dir.at('f.tar'), 'disk.qcow2'], home);
    await tool('zstd', ['-q', dir.at('f.tar')]);
    for (const name of ['f.tar', 'f.tar.zst'])
      await expect(ArchiveAppender.open({ path: dir.at(name), signal })).rejects.toMatchObject({
        msgKey: 'archive_unsupported',
      });
    const path = dir.at('torn.tar');
    await writeArchive(path, [{ name: 'a.qcow2', from: noise(5000) }]);
    await expect(ArchiveAppender.open({ path, signal, level: 10 })).rejects.toMatchObject({
      msgKey: 'invalid_field',
    });
    truncateSync(path, statSync(path).size - 1);
    await expect(ArchiveAppender.open({ path, signal })).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  });

  test('a name that is in the archive, a file that somebody changed, an old state number', async () => {
    const path = dir.at('again.tar');
    await writeArchive(path, [{ name: 'a.qcow2', from: noise(5000) }]);
    const before = readFileSync(path);
    await expect(appendState(path, [{ name: 'a.qcow2', from: noise(5) }])).rejects.toMatchObject({
      msgKey: 'invalid_name',
    });
    expect(readFileSync(path).equals(before)).toBe(true);
    const appender = await ArchiveAppender.open({ path, signal });
    truncateSync(path, 5000);
    await expect(appender.begin(`${path}.tail`)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
    await appender.abort();
    expect(statSync(path).size).toBe(5000);
  });
});
