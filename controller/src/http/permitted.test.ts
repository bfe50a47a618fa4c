import { expect, test } from '@jest/globals';
import { newId, uuidV5 } from '@virtkeep/shared/ids';
import type { Principal } from '../auth/principal.ts';
import { fileRecord, NO_DETAILS } from '../services/backup-files/record.ts';
import type { FileRow } from '../store/schema.ts';
import { permitted } from './permitted.ts';

const viewer = { role: 'administrator' } as Principal;

const offered = (part: Partial<FileRow>) => {
  const row = {
    id: newId(),
    filename: 'f',
    path: '/f',
    status: 'ACTIVE',
    type: 'tar',
    compressed: 0,
    protected: 0,
    domain_id: null,
    record_json: JSON.stringify(NO_DETAILS),
    ...part,
  } as FileRow;
  return permitted('file', fileRecord(row, undefined, undefined), viewer).permissions;
};

test('what a file is refused for is not offered', () => {
  const always = ['update', 'refresh', 'verify', 'remove'];
  expect(offered({})).toEqual([...always, 'compress', 'export', 'restore', 'download']);
  expect(offered({ compressed: 1 })).toEqual([...always, 'unpack', 'export', 'restore', 'download']);
  expect(offered({ type: 'xml' })).toEqual(['update', 'refresh', 'remove', 'config_restore', 'download']);
  expect(offered({ type: 'vma' })).toEqual([
    ...['update', 'refresh', 'remove', 'convert_backup', 'restore', 'config_restore', 'download'],
  ]);
  const directory = 'virtnbdbackup';
  expect(offered({ type: directory })).toEqual([
    ...['update', 'refresh', 'convert_backup', 'config_restore', 'download'],
  ]);
  expect(offered({ type: directory, status: 'MISSING' })).toEqual(['update', 'remove']);
  const image = ['update', 'refresh', 'remove', 'import_disk', 'download'];
  expect(offered({ type: 'disk' })).toEqual(image);
  expect(offered({ type: 'disk', status: 'DAMAGED' })).toEqual(image);
  expect(offered({ status: 'MISSING' })).toEqual(['update', 'remove']);
  expect(offered({ status: 'MISSING', protected: 1 })).toEqual(['update']);
  expect(offered({ status: 'DAMAGED' })).toEqual([...always, 'download']);
  // read while it is extended or converted
  expect(offered({ status: 'UPDATING' })).toEqual(['update', 'refresh']);
  expect(offered({ status: 'CREATING' })).toEqual(['update']);
});

test('an archive that others made is not offered to be converted', () => {
  const id = uuidV5(newId(), 'of others');
  for (const compressed of [0, 1])
    expect(offered({ id, compressed })).not.toEqual(
      expect.arrayContaining([compressed ? 'unpack' : 'compress']),
    );
});
