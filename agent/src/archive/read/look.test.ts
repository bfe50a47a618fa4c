/** One stream of zstd, looked at: nobody's removal waits for it, and what has no end is refused. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { afterAll, expect, test } from '@jest/globals';
import { sleep } from '@virtkeep/shared/abort';
import { MAX_LOOKS_WAITING, mostUnpacked } from '../format/bounds.ts';
import { lockFile, openArchive, removeArchive } from '../index.ts';
import { scratch, signal, tool } from '../test-kit.ts';
import { inLookTurn } from './look.ts';
import { scanStream } from './stream.ts';

const dir = scratch();
afterAll(() => dir.remove());

/** Bytes that this process has read so far, as the kernel counts them: it unpacks. */
const bytesRead = () => Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))![1]);

/** Behind 4 MiB of nothing a tar whose one member is of zeros; so many frames of 128 MiB follow. */
async function bomb(name: string, frames: number): Promise<string> {
  const home = dir.at(`${name}.d`);
  mkdirSync(home);
  writeFileSync(`${home}/a.qcow2`, '');
  await tool('truncate', ['-s', String(frames * 2 ** 27), `${home}/a.qcow2`]);
  const header = execFileSync('sh', [
    '-c',
    `tar -C ${home} -cf - a.qcow2 2>/dev/null | head -c 512 | zstd -q`,
  ]);
  const nothing = Buffer.alloc(8 + 2 ** 22);
  nothing.writeUInt32LE(0x184d2a50, 0);
  nothing.writeUInt32LE(2 ** 22, 4);
  const zeros = execFileSync('sh', ['-c', 'head -c 134217728 /dev/zero | zstd -q --no-check']);
  writeFileSync(
    dir.at(name),
    Buffer.concat([nothing, header, ...Array.from({ length: frames }, () => zeros)]),
  );
  return dir.at(name);
}

test('a removal is not refused while it is looked at, and ends the look', async () => {
  const path = await bomb('endless.tar.zst', 4096);
  const before = bytesRead();
  const look = openArchive(path, signal, { salvage: true, holding: 'look' });
  const ended = expect(look).rejects.toMatchObject({ msgKey: 'file_not_found' });
  while (bytesRead() - before < 4 * 2 ** 20) await sleep(5);
  await removeArchive(path);
  await ended;
});

test('what another node writes is not looked at', async () => {
  const path = await bomb('written.tar.zst', 1);
  const lock = await lockFile(path, 'exclusive');
  await expect(openArchive(path, signal, { holding: 'look' })).rejects.toMatchObject({
    msgKey: 'file_busy',
  });
  await lock.release();
  const archive = await openArchive(path, signal, { holding: 'look', salvage: true }).catch(error => error);
  expect(archive).toMatchObject({ msgKey: 'archive_damaged' });
});

test('what unpacks to more than is believed of its size is refused by name', async () => {
  const path = await bomb('large.tar.zst', 8);
  const handle = await open(path);
  await expect(scanStream(handle.fd, path, { signal, mostBytes: 2 ** 29 })).rejects.toMatchObject({
    msgKey: 'archive_unsupported',
    params: { reason: expect.stringContaining('zstd -d') },
  });
  await handle.close();
});

test('a large archive may hold a thousand times its size, a small one a TiB', () => {
  expect(mostUnpacked(1)).toBeGreaterThanOrEqual(2 ** 40);
  expect(mostUnpacked(2 ** 40)).toBeGreaterThanOrEqual(1000 * 2 ** 40);
  expect(mostUnpacked(2 ** 30)).toBeLessThan(2.5 * 2 ** 40);
});

test('one at a time, in the order they came; who gives up leaves the row, and too many are refused', async () => {
  const ended: number[] = [];
  const first = Promise.withResolvers<void>();
  const row = [0, 1, 2].map(index => {
    const own = new AbortController();
    const done = inLookTurn('a.tar.zst', own.signal, async () => {
      if (index === 0) await first.promise;
      ended.push(index);
    });
    return { own, done };
  });
  row[1]!.own.abort();
  await expect(row[1]!.done).rejects.toMatchObject({ msgKey: 'canceled' });
  expect(ended).toEqual([]);
  const more = Array.from({ length: MAX_LOOKS_WAITING - 1 }, () =>
    inLookTurn('b.tar.zst', signal, async () => {}),
  );
  await expect(inLookTurn('c.tar.zst', signal, async () => {})).rejects.toMatchObject({
    msgKey: 'file_busy',
  });
  first.resolve();
  await Promise.all([row[0]!.done, row[2]!.done, ...more]);
  expect(ended).toEqual([0, 2]);
  await expect(inLookTurn('d.tar.zst', signal, async () => 'read')).resolves.toBe('read');
});
