import { createHash } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { fingerprint, isFingerprintOf } from './fingerprint.ts';

const request = StartBackupRequest.fromPartial({ operationId: 'o', domainId: 'd', compress: true });

test('a field that says nothing makes no other request, and one that says something does', () => {
  const { removedArchives: _new, ...before } = request;
  expect(fingerprint('backup', before)).toBe(fingerprint('backup', request));
  for (const change of [{ removedArchives: ['a'] }, { compress: false }, { domainId: 'e' }, { level: 3 }])
    expect(fingerprint('backup', { ...request, ...change })).not.toBe(fingerprint('backup', request));
  expect(fingerprint('restore', request)).not.toBe(fingerprint('backup', request));
});

test('a request that the version before took is the same one', () => {
  const { removedArchives: _new, ...before } = request;
  const sorted = Object.fromEntries(
    Object.entries(before)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, value]) => [key, typeof value === 'bigint' ? String(value) : value]),
  );
  const known = createHash('sha256')
    .update(`backup\n${JSON.stringify(sorted)}`)
    .digest('hex');
  expect(isFingerprintOf(known, 'backup', request)).toBe(true);
  expect(isFingerprintOf(known, 'backup', { ...request, domainId: 'e' })).toBe(false);
  expect(isFingerprintOf(known, 'backup', { ...request, removedArchives: ['a'] })).toBe(false);
});
