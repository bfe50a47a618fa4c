import { expect, test } from '@jest/globals';
import { cleanPath } from './clean-path.ts';

test.each([
  ['/a/b.qcow2', '/a/b.qcow2'],
  ['//a///b.qcow2', '/a/b.qcow2'],
  ['/./a/././/b.qcow2', '/a/b.qcow2'],
  ['/a/.hidden/..b/...', '/a/.hidden/..b/...'],
  // behind a link it leads elsewhere than the text says
  ['/a/link/..//b.qcow2', '/a/link/../b.qcow2'],
  ['pool/./image', 'pool/./image'],
  ['', ''],
])('%s is %s', (path, clean) => {
  expect(cleanPath(path)).toBe(clean);
});
