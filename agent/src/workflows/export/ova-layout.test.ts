import { expect, test } from '@jest/globals';
import { GiB } from '@virtkeep/shared/units';
import { Header } from 'tar';
import { afterMember, endOf, headerBlock, manifestText, paddedTo } from './ova-layout.ts';
import { packageBase } from './plan.ts';

test.each([0, 511, 8 * GiB - 1, 8 * GiB, 70_000 * GiB])(
  'a header of %d bytes is one block that is read back',
  sizeBytes => {
    const block = headerBlock('web-disk1.vmdk', sizeBytes, new Date(1_700_000_000_000));
    expect(block).toHaveLength(512);
    const { path, size, cksumValid, mode, mtime } = new Header(block);
    expect({ path, size, cksumValid, mode, time: mtime?.getTime() }).toEqual({
      ...{ path: 'web-disk1.vmdk', size: sizeBytes, cksumValid: true, mode: 0o644, time: 1_700_000_000_000 },
    });
    expect(block.subarray(257, 263).toString('latin1')).toBe('ustar\0');
    // digits as long as they are enough
    expect(block[124]! < 0x80).toBe(sizeBytes < 8 * GiB);
  },
);

test('members follow each other in blocks, and the end is whole records', () => {
  expect([afterMember(0, 0), afterMember(0, 1), afterMember(512, 512), afterMember(512, 513)]).toEqual([
    ...[512, 1024, 1536, 2048],
  ]);
  expect([endOf(0), endOf(9216), endOf(9728)]).toEqual([10_240, 10_240, 20_480]);
});

test('a text gets the size that was kept for it', () => {
  expect(paddedTo('<a/>\n', 8).toString()).toBe('<a/>\n\n\n\n');
  expect(manifestText([{ href: 'a.ovf', sha256: 'ff' }])).toBe('SHA256(a.ovf)= ff\n');
});

test.each([
  ['web-1.example', 'web-1.example'],
  ['Магазин №1 shop', '1_shop'],
  ['../../etc', 'etc'],
  ['пусто', 'vm'],
  ['a'.repeat(300), 'a'.repeat(60)],
])('the files of %s begin with %s', (name, base) => {
  expect(packageBase(name)).toBe(base);
});
