import { appendFileSync, copyFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { isVirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import zstd from 'zstd-napi/binding.js';
import type { ArchiveMember } from './format/types.ts';
import { openArchive, verifyArchive } from './index.ts';
import { noise, scratch, signal, tool, writeArchive } from './test-kit.ts';

const dir = scratch();
const archives = { tar: dir.at('a.tar'), hashed: dir.at('h.tar'), zst: dir.at('a.tar.zst') };

beforeAll(async () => {
  writeFileSync(dir.at('one'), noise(5 * MiB, 1));
  writeFileSync(dir.at('two'), noise(3 * MiB, 2));
  const pieces = [
    { name: 'one.qcow2', from: dir.at('one') },
    { name: 'two.qcow2', from: dir.at('two') },
  ];
  await writeArchive(archives.tar, pieces);
  await writeArchive(archives.hashed, pieces, { hash: true });
  await writeArchive(archives.zst, pieces, { zstd: true });
});
afterAll(() => dir.remove());

async function membersOf(path: string): Promise<readonly ArchiveMember[]> {
  const archive = await openArchive(path, signal);
  await archive.close();
  return archive.members;
}

/** A copy with some bytes changed. */
function changed(path: string, change: (bytes: Buffer) => Buffer | undefined): string {
  const bytes = readFileSync(path);
  const copy = dir.at('changed');
  writeFileSync(copy, change(bytes) ?? bytes);
  return copy;
}

const problemsOf = async (path: string) =>
  (await verifyArchive(path, { signal })).problems.map(({ member, problem }) => `${member}: ${problem}`);

describe('verify names what is damaged', () => {
  test('a flipped byte of data, by hash', async () => {
    const two = (await membersOf(archives.hashed))[1]!;
    const path = changed(archives.hashed, bytes => {
      bytes[two.dataOffset + 1_000_000]! ^= 1;
      return undefined;
    });
    expect(await problemsOf(path)).toEqual(['two.qcow2: hash_mismatch']);
    const archive = await openArchive(path, signal);
    const out = dir.at('out');
    await expect(archive.extractMember('two.qcow2', out, { signal, checkHash: true })).rejects.toMatchObject({
      msgKey: 'hash_mismatch',
    });
    expect(() => readFileSync(out)).toThrow();
    await archive.extractMember('one.qcow2', out, { signal, checkHash: true });
    rmSync(out);
    await archive.close();
  });

  test('a flipped byte of a frame, by its checksum', async () => {
    const path = changed(archives.zst, bytes => {
      bytes[Math.floor(bytes.length * 0.8)]! ^= 1;
      return undefined;
    });
    expect(await problemsOf(path)).toEqual(['two.qcow2: damaged']);
    const archive = await openArchive(path, signal);
    const extracting = archive.extractMember('two.qcow2', dir.at('out'), { signal });
    await expect(extracting).rejects.toMatchObject({ msgKey: 'archive_damaged' });
    await archive.close();
  });

  test('a flipped byte of a header', async () => {
    const two = (await membersOf(archives.tar))[1]!;
    const path = changed(archives.tar, bytes => {
      bytes[two.dataOffset - 500]! ^= 1;
      return undefined;
    });
    expect(await problemsOf(path)).toContain('two.qcow2: damaged');
  });

  test('a flipped byte of the manifest', async () => {
    const members = await membersOf(archives.tar);
    const path = changed(archives.tar, bytes => {
      bytes[members.at(-1)!.dataOffset] = 0x7d;
      return undefined;
    });
    expect((await verifyArchive(path, { signal })).problems.length).toBeGreaterThan(0);
    await expect(openArchive(path, signal)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  });

  test('a cut file', async () => {
    const path = changed(archives.tar, bytes => bytes.subarray(0, 6 * MiB));
    expect(await problemsOf(path)).toEqual(['two.qcow2: truncated']);
    await expect(openArchive(path, signal)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
    const cut = changed(archives.zst, bytes => bytes.subarray(0, Math.floor(bytes.length * 0.8)));
    expect(await problemsOf(cut)).toEqual(['two.qcow2: truncated']);
    await expect(openArchive(cut, signal)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  });

  test('a torn tail', async () => {
    for (const path of [archives.tar, archives.zst])
      for (const cut of [1, 512, 1500]) {
        const torn = changed(path, bytes => bytes.subarray(0, bytes.length - cut));
        expect((await verifyArchive(torn, { signal })).problems.length).toBeGreaterThan(0);
      }
    for (const tail of [Buffer.from('tail'), noise(512)]) {
      const longer = changed(archives.tar, bytes => Buffer.concat([bytes, tail]));
      expect((await verifyArchive(longer, { signal })).problems.length).toBeGreaterThan(0);
    }
  });

  test('a missing, an unexpected and a moved member', async () => {
    const [one, two, xml] = await membersOf(archives.tar);
    const at = (member: ArchiveMember | undefined) => member!.dataOffset;
    const starts = { one: 0, two: at(one) + one!.sizeBytes, xml: at(xml) - 512 };
    const without = changed(archives.tar, bytes =>
      Buffer.concat([bytes.subarray(0, starts.two), bytes.subarray(starts.xml)]),
    );
    expect(await problemsOf(without)).toContain('two.qcow2: missing');
    const swapped = changed(archives.tar, bytes =>
      Buffer.concat([
        bytes.subarray(starts.two, starts.xml),
        bytes.subarray(0, starts.two),
        bytes.subarray(starts.xml),
      ]),
    );
    expect((await problemsOf(swapped)).some(text => text.endsWith('wrong_order'))).toBe(true);
    expect(two).toBeDefined();
  });
});

describe('foreign archives', () => {
  test('a GNU tar and its zstd form are listed, read, extracted and verified', async () => {
    const home = dir.at('foreign');
    await tool('mkdir', [home]);
    copyFileSync(dir.at('one'), `${home}/disk.qcow2`);
    writeFileSync(`${home}/0003_vm.xml`, '<domain/>');
    await tool('tar', ['-cf', dir.at('foreign.tar'), '.'], home);
    await tool('zstd', ['-q', '-f', dir.at('foreign.tar')]);
    for (const path of [dir.at('foreign.tar'), dir.at('foreign.tar.zst')]) {
      const archive = await openArchive(path, signal);
      expect(archive.manifest).toBeNull();
      const kinds = Object.fromEntries(archive.members.map(({ name, kind }) => [name, kind]));
      expect(kinds).toEqual({ 'disk.qcow2': 'disk', '0003_vm.xml': 'domain_xml' });
      expect((await archive.readMember('0003_vm.xml', signal)).toString()).toBe('<domain/>');
      await archive.extractMember('disk.qcow2', dir.at('foreign.out'), { signal });
      await tool('cmp', [dir.at('one'), dir.at('foreign.out')]);
      rmSync(dir.at('foreign.out'));
      expect((await archive.verify({ signal })).problems).toEqual([]);
      await archive.close();
    }
  });

  test('what is no archive is unsupported', async () => {
    for (const bytes of [
      Buffer.alloc(0),
      Buffer.from('hello'),
      noise(5000),
      Buffer.from([0x1f, 0x8b, 8, 0]),
    ]) {
      writeFileSync(dir.at('none'), bytes);
      await expect(openArchive(dir.at('none'), signal)).rejects.toMatchObject({
        msgKey: 'archive_unsupported',
      });
    }
    await expect(openArchive(dir.path, signal)).rejects.toMatchObject({ msgKey: 'not_a_file' });
    await expect(openArchive(dir.at('absent'), signal)).rejects.toMatchObject({ msgKey: 'io_failed' });
  });

  test('a member that is a link is not extracted', async () => {
    const home = dir.at('links');
    await tool('mkdir', [home]);
    await tool('ln', ['-s', '/etc/passwd', `${home}/disk.qcow2`]);
    await tool('tar', ['-cf', dir.at('links.tar'), 'disk.qcow2'], home);
    const archive = await openArchive(dir.at('links.tar'), signal);
    const extracting = archive.extractMember('disk.qcow2', dir.at('links.out'), { signal });
    await expect(extracting).rejects.toMatchObject({ msgKey: 'archive_unsupported' });
    await expect(archive.readMember('none', signal)).rejects.toMatchObject({ msgKey: 'member_not_found' });
    await archive.close();
  });

  test('a zstd bomb is bounded in memory and can be cancelled', async () => {
    const context = new zstd.CCtx();
    const frame = Buffer.alloc(MiB);
    const length = context.compress2(frame, Buffer.alloc(128 * MiB));
    const bomb = Buffer.concat(Array.from({ length: 4000 }, () => frame.subarray(0, length)));
    const head = Buffer.alloc(4096);
    const [first] = await membersOf(archives.tar);
    const header = readFileSync(archives.tar).subarray(first!.dataOffset - 512, first!.dataOffset);
    const huge = Buffer.from(header);
    huge.write('77777777777\0', 124);
    let sum = 256;
    for (let at = 0; at < 512; at++) if (at < 148 || at >= 156) sum += huge[at]!;
    huge.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    const start = head.subarray(0, context.compress2(head, huge));
    writeFileSync(dir.at('bomb.tar.zst'), Buffer.concat([start, bomb]));
    const before = process.cpuUsage();
    const opening = openArchive(dir.at('bomb.tar.zst'), AbortSignal.timeout(300));
    await expect(opening).rejects.toMatchObject({ msgKey: 'canceled' });
    // work is bounded, not time: a busy machine makes slow
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1e6).toBeLessThan(15);
  });
});

/** A small generator of its own, so that a failing seed can be run again. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return below => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

function mutate(bytes: Buffer, seed: number): Buffer {
  const next = random(seed + 1);
  let result = Buffer.from(bytes);
  for (let times = 1 + next(4); times > 0; times--) {
    // Half of the changes hit the tail and the headers, where the structure is.
    const near = next(2) === 0 ? Math.max(0, result.length - 6000) : 0;
    const at = near + next(Math.max(1, result.length - near));
    const kind = next(5);
    if (kind === 0) result[at] = next(256);
    else if (kind === 1) result = Buffer.concat([result.subarray(0, at), result.subarray(at + next(5000))]);
    else if (kind === 2) result.fill(next(256), at, Math.min(result.length, at + next(600)));
    else if (kind === 3)
      result = Buffer.concat([
        result.subarray(0, at),
        result.subarray(next(at + 1), at),
        result.subarray(at),
      ]);
    else
      result.writeUInt32LE(
        next(2) === 0 ? 0xffffffff : next(2 ** 31),
        Math.min(at, Math.max(0, result.length - 4)),
      );
  }
  return result;
}

describe('random damage', () => {
  const small = { tar: dir.at('s.tar'), zst: dir.at('s.tar.zst') };
  beforeAll(async () => {
    writeFileSync(dir.at('small'), noise(20_000));
    const pieces = [
      { name: 'small.qcow2', from: dir.at('small') },
      { name: 'ö.iso', from: noise(3000) },
    ];
    await writeArchive(small.tar, pieces, { hash: true });
    await writeArchive(small.zst, pieces, { zstd: true });
  });

  /** Opens, reads and walks what can be; anything but our own errors fails the test. */
  async function exercise(path: string): Promise<void> {
    try {
      const archive = await openArchive(path, AbortSignal.timeout(240_000));
      try {
        for (const { name } of archive.members)
          await archive.readMember(name, signal).catch((error: unknown) => {
            if (!isVirtkeepError(error)) throw error;
          });
      } finally {
        await archive.close();
      }
    } catch (error) {
      if (!isVirtkeepError(error) || error.msgKey === 'internal' || error.msgKey === 'canceled') throw error;
    }
  }

  test.each(['tar', 'zst'] as const)('of a %s is always an error of ours, soon', async kind => {
    const bytes = readFileSync(small[kind]);
    const until = performance.now() + 4000;
    let seed = 0;
    for (; seed < 400 && (seed < 40 || performance.now() < until); seed++) {
      const path = dir.at(`fuzz-${kind}`);
      writeFileSync(path, mutate(bytes, seed));
      await exercise(path).catch((error: unknown) => {
        throw new Error(`seed ${seed}: ${String((error as Error).stack)}`);
      });
    }
  });

  test('verify reports and does not throw', async () => {
    const bytes = readFileSync(small.zst);
    for (let seed = 1000; seed < 1015; seed++) {
      const path = dir.at('fuzz-verify');
      writeFileSync(path, mutate(bytes, seed));
      const result = await verifyArchive(path, { signal }).catch((error: unknown) => {
        if (isVirtkeepError(error) && error.msgKey === 'archive_unsupported') return undefined;
        throw new Error(`seed ${seed}: ${String((error as Error).stack)}`);
      });
      if (result !== undefined) expect(Array.isArray(result.problems)).toBe(true);
    }
  });
});

test('the file may grow while it is read', async () => {
  copyFileSync(archives.tar, dir.at('growing'));
  const archive = await openArchive(dir.at('growing'), signal);
  appendFileSync(dir.at('growing'), Buffer.alloc(4096, 1));
  truncateSync(dir.at('growing'), 3 * MiB);
  const extracting = archive.extractMember('two.qcow2', dir.at('grown'), { signal });
  await expect(extracting).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  await archive.close();
});
