import { expect, test } from '@jest/globals';
import { hrefPaths } from './href.ts';

test.each([
  ['disk1.vmdk', ['disk1.vmdk']],
  ['sub/disk1.vmdk', ['sub/disk1.vmdk']],
  ['./disk1.vmdk', ['disk1.vmdk']],
  ['a//b.vmdk', ['a/b.vmdk']],
  ['диск ü 磁.vmdk', ['диск ü 磁.vmdk']],
  ['disk%201.vmdk', ['disk 1.vmdk', 'disk%201.vmdk']],
  ['%D0%B4.vmdk', ['д.vmdk', '%D0%B4.vmdk']],
  ['100%.vmdk', ['100%.vmdk']],
  ['%ff.vmdk', ['%ff.vmdk']],
  // decoded once only
  ['%252e%252e%252fx', ['%2e%2e%2fx', '%252e%252e%252fx']],
  ['..disk', ['..disk']],
  ['a..b/c', ['a..b/c']],
  ['-o.vmdk', ['-o.vmdk']],
])('%s', (href, paths) => expect(hrefPaths(href)).toEqual({ paths, fault: null }));

test.each([
  ['', 'names no file'],
  ['.', 'names no file'],
  ['sub/', 'names no file'],
  ['/', 'names no file'],
  ['../disk.vmdk', 'leads out'],
  ['a/../../disk.vmdk', 'leads out'],
  ['a/..', 'leads out'],
  ['%2e%2e/disk.vmdk', 'leads out'],
  ['..%2fdisk.vmdk', 'leads out'],
  ['/etc/passwd', 'absolute'],
  ['%2fetc/passwd', 'absolute'],
  ['//host/share', 'absolute'],
  ['http://example.org/disk.vmdk', 'address'],
  ['HTTPS://example.org/disk.vmdk', 'address'],
  ['file:disk.vmdk', 'address'],
  ['nbd:localhost:10809', 'address'],
  ['json:%7B%7D', 'address'],
  ['http%3A//example.org/x', 'address'],
  ['C:/disk.vmdk', 'address'],
  ['..\\disk.vmdk', 'backslash'],
  ['a%5cb', 'backslash'],
  ['disk\0.vmdk', 'control'],
  ['disk%00.vmdk', 'control'],
  ['disk%0a.vmdk', 'control'],
  ['x'.repeat(256), 'too long'],
  ['я'.repeat(128), 'too long'],
  [`${'x/'.repeat(2100)}x`, 'too long'],
])('%s is refused', (href, reason) => {
  const { paths, fault } = hrefPaths(href);
  expect(paths).toEqual([]);
  expect(fault).toContain(reason);
});
