import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { openArchive } from '../index.ts';
import { appendState, noise, scratch, signal, tool, writeArchive } from '../test-kit.ts';
import { ArchiveConverter, type ConvertOptions } from './convert.ts';

const dir = scratch();
afterAll(() => dir.remove());

async function convert(from: string, path: string, changes: Partial<ConvertOptions> = {}): Promise<void> {
  const compression = path.endsWith('.zst') ? {} : null;
  const converter = await ArchiveConverter.open({ from, path, compression, signal, ...changes });
  try {
    await converter.write();
    await converter.publish();
  } finally {
    await converter.abort();
  }
}

const sha256 = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

describe.each([false, true])('an archive of two states (hash: %p)', hash => {
  const plain = dir.at(`a-${hash}.tar`);

  beforeAll(async () => {
    writeFileSync(dir.at('disk'), noise(9 * MiB + 77));
    truncateSync(dir.at('disk'), 30 * MiB);
    writeFileSync(dir.at('layer'), noise(5 * MiB, 2));
    await writeArchive(
      plain,
      [
        { name: 'd.qcow2', from: dir.at('disk') },
        { name: 'small.memory', kind: 'memory', from: noise(300_000) },
        { name: 'empty.iso', kind: 'iso', from: Buffer.alloc(0) },
      ],
      { hash },
    );
    await appendState(plain, [{ name: 'd_s.snapshot', from: dir.at('layer') }]);
    rmSync(`${plain}.tail`);
  });

  test('becomes compressed and plain again, byte for byte the same tar', async () => {
    const zst = dir.at(`b-${hash}.tar.zst`);
    await convert(plain, zst);
    await tool('zstd', ['-q', '-d', zst, '-o', `${zst}.tar`]);
    expect(sha256(`${zst}.tar`)).toBe(sha256(plain));
    const archive = await openArchive(zst, signal);
    expect((await archive.verify({ signal })).problems).toEqual([]);
    expect((await archive.verify({ signal })).restorableStates).toEqual([1, 2]);
    await archive.close();
    const again = dir.at(`c-${hash}.tar`);
    await convert(zst, again, { compression: null });
    expect(sha256(again)).toBe(sha256(plain));
    if (hash) expect(readFileSync(`${again}.sha256`)).toEqual(readFileSync(`${plain}.sha256`));
    if (hash) expect(readFileSync(`${zst}.sha256`)).toEqual(readFileSync(`${plain}.sha256`));
    expect(Number((await tool('stat', ['-c', '%b', again])).trim()) * 512).toBeLessThan(20 * MiB);
  });

  test('can be extended after it', async () => {
    const zst = dir.at(`e-${hash}.tar.zst`);
    await convert(plain, zst);
    await appendState(zst, [{ name: 'd_t.snapshot', from: dir.at('layer') }]);
    const archive = await openArchive(zst, signal);
    expect((await archive.verify({ signal })).restorableStates).toEqual([1, 2, 3]);
    await archive.close();
  });

  test('is left alone when the conversion is cancelled, and no file stays', async () => {
    const home = dir.at(`cancel-${hash}`);
    mkdirSync(home);
    const cancel = new AbortController();
    const converting = convert(plain, `${home}/x.tar.zst`, {
      signal: cancel.signal,
      onProgress: () => cancel.abort(),
    });
    await expect(converting).rejects.toMatchObject({ msgKey: 'canceled' });
    expect(readdirSync(home)).toEqual([]);
  });
});

test('damage is not carried over', async () => {
  const plain = dir.at('damaged.tar');
  writeFileSync(dir.at('disk2'), noise(2 * MiB));
  await writeArchive(plain, [{ name: 'd.qcow2', from: dir.at('disk2') }], { hash: true });
  await convert(plain, dir.at('damaged.tar.zst'));
  for (const [from, to, key] of [
    [plain, dir.at('new.tar.zst'), 'hash_mismatch'],
    [dir.at('damaged.tar.zst'), dir.at('new.tar'), 'archive_damaged'],
  ] as const) {
    const bytes = readFileSync(from);
    bytes[Math.floor(bytes.length / 2)]! ^= 1;
    writeFileSync(from, bytes);
    await expect(convert(from, to)).rejects.toMatchObject({ msgKey: key });
  }
  expect(readdirSync(dir.path).filter(name => name.includes('new'))).toEqual([]);
});

test('a foreign archive is refused', async () => {
  const home = dir.at('foreign');
  mkdirSync(home);
  writeFileSync(`${home}/disk.qcow2`, noise(5000));
  await tool('tar', ['-cf', dir.at('f.tar'), 'disk.qcow2'], home);
  await expect(convert(dir.at('f.tar'), dir.at('f.tar.zst'))).rejects.toMatchObject({
    msgKey: 'archive_unsupported',
  });
});
