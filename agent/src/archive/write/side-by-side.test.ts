// Several disks that are converted where they stay in a plain tar, by the real program, on real file systems.
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { afterAll, describe, expect, test } from '@jest/globals';
import { GiB, KiB, MiB } from '@virtkeep/shared/units';
import { openArchive } from '../index.ts';
import { BACKUP_ID, manifestOf, noise, scratch, signal, tool, XML } from '../test-kit.ts';
import { PlainOutput } from './plain-output.ts';
import { measureQcow2 } from './raw.ts';
import { MOST_SIDE_BY_SIDE_BYTES, type RawDisk, windowsOf } from './side-by-side.ts';
import { ArchiveWriter } from './writer.ts';

const asRoot = process.getuid?.() === 0 ? describe : describe.skip;
const dir = scratch();
afterAll(() => dir.remove());

/** Closed whatever happens: a file system that is in use stays mounted. */
const opened: { close: () => Promise<void> }[] = [];

async function create(
  path: string,
  changes: { hash?: boolean; zstd?: boolean; signal?: AbortSignal } = {},
): Promise<ArchiveWriter> {
  const { zstd = false, hash = false, ...others } = changes;
  const compression = zstd ? {} : null;
  const writer = await ArchiveWriter.create({
    ...{ path, backupId: BACKUP_ID, compression, hash, signal },
    ...others,
  });
  opened.push({ close: () => writer.abort() });
  return writer;
}

async function finish(writer: ArchiveWriter): Promise<void> {
  await writer.addBytes('0001_vm.xml', 'domain_xml', Buffer.from(XML));
  await writer.finish({ stateNumber: 1, manifest: manifestOf });
}

/** A raw disk: data, zeros that are no hole and give less than was measured, and a hole. */
async function diskOf(name: string, dataBytes: number, zeroBytes: number): Promise<RawDisk> {
  const path = dir.at(`${name}.raw`);
  writeFileSync(path, Buffer.concat([noise(dataBytes, dataBytes % 200), Buffer.alloc(zeroBytes)]));
  truncateSync(path, 32 * MiB);
  const content = { path };
  const mostBytes = await measureQcow2(content, signal);
  return { name: `${name}.qcow2`, content, virtualSizeBytes: 32 * MiB, mostBytes, formerPath: null };
}

/** Work on a file system of its own. */
async function onFileSystem(make: string, work: (mount: string) => Promise<void>): Promise<void> {
  const home = mkdtempSync(dir.at('fs-'));
  const mount = `${home}/mount`;
  mkdirSync(mount);
  await tool('truncate', ['-s', '512M', `${home}/image`]);
  await tool(make, ['-q', `${home}/image`]);
  await tool('mount', ['-o', 'loop', `${home}/image`, mount]);
  try {
    await work(mount);
  } finally {
    for (const one of opened.splice(0)) await one.close();
    await tool('umount', [mount]);
  }
}

test('windows lie one behind the other, each with room for a header before it', () => {
  const disks = [
    { name: 'a', mostBytes: 100 * KiB },
    { name: 'b', mostBytes: 64 * KiB },
  ];
  expect(windowsOf(disks, 0)).toEqual([
    { offset: 4096, sizeBytes: 128 * KiB },
    { offset: 4096 + 128 * KiB + 4096, sizeBytes: 64 * KiB },
  ]);
  expect(windowsOf(disks.slice(1), 4096)[0]!.offset).toBe(8192);
});

asRoot.each(['mkfs.ext4', 'mkfs.xfs'])('on the file system of %s', make => {
  test('they become equal images that close up, and nothing else lies beside the archive', async () => {
    await onFileSystem(make, async mount => {
      const disks = [
        await diskOf('loose', 3 * MiB, 2 * MiB),
        await diskOf('tight', 5 * MiB, 0),
        await diskOf('empty', 0, 3 * MiB),
        await diskOf('last', MiB + 5, MiB),
      ];
      const done = disks.map(() => 0);
      const onProgress = (index: number, fraction: number) => {
        done[index] = fraction;
      };
      const path = `${mount}/a.tar`;
      const writer = await create(path);
      expect(await writer.canAddRaws(disks)).toBe(true);
      await writer.addRaws(disks, { atOnce: 3, onProgress });
      expect(readdirSync(mount).filter(name => name.endsWith('.qcow2'))).toEqual([]);
      await finish(writer);
      expect(done).toEqual([1, 1, 1, 1]);

      const archive = await openArchive(path, signal);
      opened.push(archive);
      const windows = windowsOf(disks, 0);
      let end = 0;
      for (const [index, { dataOffset, sizeBytes }] of archive.members.slice(0, disks.length).entries()) {
        expect(dataOffset).toBe(end + 4096);
        end = dataOffset + sizeBytes;
        if (index !== 1) expect(sizeBytes).toBeLessThan(windows[index]!.sizeBytes);
      }
      expect(archive.members[disks.length]!.dataOffset).toBe(end + 512);
      expect((await archive.verify({ signal })).problems).toEqual([]);

      const out = `${mount}/out`;
      mkdirSync(out);
      await tool('tar', ['-C', out, '-xf', path]);
      for (const { name } of disks) {
        const image = `${out}/${name}`;
        await tool('qemu-img', ['check', '-q', image]);
        const raw = dir.at(name.replace('qcow2', 'raw'));
        await tool('qemu-img', ['compare', '-q', '-f', 'raw', '-F', 'qcow2', raw, image]);
      }
    });
  });

  test('one that fails ends the others, and nothing stays', async () => {
    await onFileSystem(make, async mount => {
      const none = { ...(await diskOf('none', MiB, 0)), content: { path: `${mount}/none` } };
      const writer = await create(`${mount}/a.tar`);
      const adding = writer.addRaws([await diskOf('good', 20 * MiB, 0), none], {
        atOnce: 2,
        onProgress: () => {},
      });
      await expect(adding).rejects.toMatchObject({ msgKey: 'qemu_img_failed' });
      await writer.abort();
      expect(readdirSync(mount).filter(name => name !== 'lost+found')).toEqual([]);
    });
  });

  test('an image that outgrows its window is an error, and writes into no other', async () => {
    await onFileSystem(make, async mount => {
      const small = { ...(await diskOf('small', 3 * MiB, 0)), mostBytes: MiB };
      const disks = [small, await diskOf('other', 2 * MiB, 0)];
      const writer = await create(`${mount}/a.tar`);
      const window = windowsOf(disks, 0)[0]!;
      const adding = writer.addRaws(disks, { atOnce: 1, onProgress: () => {} });
      await expect(adding).rejects.toMatchObject({ msgKey: 'disk_full' });
      // a header's place lies between them
      const bytes = readFileSync(writer.partialPath);
      const end = window.offset + window.sizeBytes;
      expect(bytes.subarray(end, end + 4096).equals(Buffer.alloc(4096))).toBe(true);
      await writer.abort();
    });
  });

  test('what is written into the file goes to the disk when that is hinted at, not only at the end', async () => {
    await onFileSystem(make, async mount => {
      const path = `${mount}/a.tar`;
      const output = await PlainOutput.create({ path, workers: undefined, signal });
      opened.push(output);
      const extents = () => tool('filefrag', ['-v', path]);
      appendFileSync(output.name, noise(8 * MiB));
      expect(await extents()).toContain('delalloc');
      output.hint();
      // one at a time, and no sooner than after a while
      output.hint();
      await output.close();
      expect(await extents()).not.toContain('delalloc');
      opened.splice(0);
    });
  });

  test('a cancel ends all of them', async () => {
    await onFileSystem(make, async mount => {
      const canceling = new AbortController();
      const writer = await create(`${mount}/a.tar`, { signal: canceling.signal });
      const disks = [await diskOf('one', 20 * MiB, 0), await diskOf('two', 20 * MiB, 0)];
      const adding = writer.addRaws(disks, { atOnce: 2, onProgress: () => canceling.abort() });
      await expect(adding).rejects.toMatchObject({ msgKey: 'canceled' });
      await writer.abort();
      expect(readdirSync(mount).filter(name => name !== 'lost+found')).toEqual([]);
    });
  });
});

test('it is told where that is impossible, and the archive is as it was', async () => {
  const disks = [await diskOf('a', MiB, 0), await diskOf('b', MiB, 0)];
  const zstd = await create(dir.at('a.tar.zst'), { zstd: true });
  expect(await zstd.canAddRaws(disks)).toBe(false);
  await zstd.abort();
  const hashing = await create(dir.at('hashed.tar'), { hash: true });
  expect(await hashing.canAddRaws(disks)).toBe(false);
  await hashing.abort();
  // no file system in memory closes gaps
  const path = `/dev/shm/vk-side-${process.pid}.tar`;
  const inMemory = await create(path);
  try {
    expect(await inMemory.canAddRaws(disks)).toBe(false);
    expect(statSync(inMemory.partialPath).size).toBe(0);
  } finally {
    await inMemory.abort();
  }
  const large = await create(dir.at('large.tar'));
  const beyond = [
    { ...disks[0]!, mostBytes: MOST_SIDE_BY_SIDE_BYTES - GiB },
    { ...disks[1]!, mostBytes: 2 * GiB },
  ];
  expect(await large.canAddRaws(beyond)).toBe(false);
  await large.abort();
});
