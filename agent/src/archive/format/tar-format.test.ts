import { describe, expect, test } from '@jest/globals';
import { Header } from 'tar';
import { roundUp, TAR_BLOCK } from './layout.ts';
import {
  checkMemberNames,
  dataOffsetFor,
  decodeHeader,
  encodeHeader,
  type WalkedMember,
  walkTar,
} from './tar-format.ts';

const MTIME = new Date('2026-01-02T03:04:05Z');

async function walkBytes(tar: Buffer): Promise<{ members: WalkedMember[]; fault: string | undefined }> {
  const members: WalkedMember[] = [];
  const end = await walkTar(async (offset, length) => tar.subarray(offset, offset + length), members);
  return { members, fault: end.fault };
}

describe('headers', () => {
  test.each([
    ['disk.qcow2', 0, 10],
    ['disk.qcow2', 512, 4096],
    ['имя образа.iso', 3584, 1],
    [`${'n'.repeat(251)}.iso`, 1024, 20 * 1024 ** 3],
    ['x.memory', 2560, 8 * 1024 ** 3],
  ])('%s at %d is padded so that its data is aligned', async (name, offset, sizeBytes) => {
    const dataOffset = dataOffsetFor(offset, name, true);
    expect(dataOffset % 4096).toBe(0);
    const header = encodeHeader(name, sizeBytes, MTIME, dataOffset - offset);
    expect(header.length).toBe(dataOffset - offset);
    const members: WalkedMember[] = [];
    const end = await walkTar(async (at, length) => {
      if (at >= header.length) return Buffer.alloc(length);
      return header.subarray(at, at + length);
    }, members);
    expect(end.fault).toBeUndefined();
    expect(members).toEqual([{ name, headerOffset: 0, dataOffset: header.length, sizeBytes, isFile: true }]);
  });

  test('small members take one block', () => {
    expect(dataOffsetFor(512, '0001_manifest.json', false)).toBe(1024);
    expect(encodeHeader('0001_manifest.json', 5, MTIME, 512).length).toBe(512);
  });

  test('a flipped bit is seen', () => {
    const block = encodeHeader('a', 5, MTIME, 512);
    block[3]! ^= 1;
    expect(decodeHeader(block)).toBe('a header has a wrong checksum');
  });
});

describe('hostile tars', () => {
  const header = (fields: Partial<ConstructorParameters<typeof Header>[0]> & object) => {
    const made = new Header({ path: 'x', mode: 0o600, size: 0, mtime: MTIME, type: 'File', ...fields });
    made.encode();
    return made.block!;
  };

  test('a size beyond everything ends the walk', async () => {
    const huge = header({ size: Number.MAX_SAFE_INTEGER });
    expect((await walkBytes(Buffer.concat([huge, Buffer.alloc(1024)]))).fault).toBeDefined();
    const negative = header({});
    negative.fill(0xff, 124, 136);
    let sum = 256;
    for (let at = 0; at < 512; at++) if (at < 148 || at >= 156) sum += negative[at]!;
    negative.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    expect((await walkBytes(Buffer.concat([negative, Buffer.alloc(1024)]))).fault).toBeDefined();
  });

  test('an endless chain of extension headers ends the walk', async () => {
    const extension = Buffer.concat([
      header({ path: 'x', size: 512, type: 'ExtendedHeader' }),
      Buffer.alloc(512),
    ]);
    const members: WalkedMember[] = [];
    const end = await walkTar(async (at, length) => {
      const inside = at % extension.length;
      return extension.subarray(inside, inside + length);
    }, members);
    expect(end.fault).toBe('it has too many headers');
  });

  test('a large extension header is refused before it is read', async () => {
    const large = header({ size: 1024 ** 3, type: 'ExtendedHeader' });
    expect((await walkBytes(large)).fault).toBe('an extension header is too large');
  });

  const walkedAfter = (...texts: string[]) => {
    const pieces = texts.flatMap(text => [
      header({ path: 'x', size: text.length, type: 'ExtendedHeader' }),
      Buffer.concat([Buffer.from(text)], roundUp(text.length, TAR_BLOCK)),
    ]);
    return walkBytes(Buffer.concat([...pieces, header({ path: 'made/up' }), Buffer.alloc(1024)]));
  };

  test('a sparse member is called by the first name in its extension header that is none of nothing', async () => {
    const walked = await walkedAfter(
      '20 GNU.sparse.name=\n27 GNU.sparse.name=disk.raw\n24 GNU.sparse.name=other\n',
    );
    expect(walked.members).toMatchObject([{ name: 'disk.raw', isFile: false }]);
    expect((await walkedAfter('27 GNU.sparse.name=disk.raw')).members).toMatchObject([{ name: 'made/up' }]);
  });

  test('extension headers of nothing but beginnings of sparse names are gone through once', async () => {
    const text = ' GNU.sparse.name='.repeat(1024 ** 2).slice(0, 1024 ** 2);
    const { members, fault } = await walkedAfter(text, text, text, text);
    expect(fault).toBeUndefined();
    expect(members).toMatchObject([{ name: 'made/up' }]);
  });

  test('names that leave the directory or occur twice are refused', () => {
    const refuse =
      (...names: string[]) =>
      () =>
        checkMemberNames(
          names.map(name => ({ name })),
          '/a.tar',
        );
    expect(refuse('a', 'b')).not.toThrow();
    expect(refuse('../a')).toThrow(expect.objectContaining({ msgKey: 'archive_unsupported' }));
    expect(refuse('/etc/passwd')).toThrow(expect.objectContaining({ msgKey: 'archive_unsupported' }));
    expect(refuse('a', 'a')).toThrow(expect.objectContaining({ msgKey: 'archive_damaged' }));
  });
});
