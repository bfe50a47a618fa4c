// Images are removed and replaced in this room alone: whoever else imports what can do that is named here, with what it is for.
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { expect, test } from '@jest/globals';

const SOURCE = join(import.meta.dirname, '..');
const REMOVING = /\b(rm|rmSync|unlink|unlinkSync|rename|renameSync|rmdir|rmdirSync|removePath)\b/;
const IMPORT =
  /import\s+(?:type\s+)?\{([^}]*)\}\s+from\s+'(node:fs|node:fs\/promises|@virtkeep\/shared\/files)'/g;

/** Where no image is: a folder ends in a slash. */
const ALLOWED: Record<string, string> = {
  'images/': 'the room itself',
  'archive/': 'archives, their tails and hash files',
  'enroll/': 'keys and certificates',
  'workflows/files/delete-backup.ts': 'archives',
  'workflows/backup/base.ts': 'tails of archives',
  'workflows/backup/destination.ts': 'tails of archives',
  'workflows/archives/remains.ts': 'archives that were not finished',
  'workflows/archives/trimmed.ts': 'the hash file of what was made of an archive and did not take its place',
  'workflows/files/upload/place.ts': 'what has come of an upload, under a name of its own',
  'workflows/files/upload/upload-file.ts': 'the same, when all of it is there',
  'workflows/import/driver-copies.ts': 'copies in a directory that is the operation’s own',
  'workflows/firmware/named-variables.ts': 'one of two names of UEFI variables',
  'workflows/firmware/state-firmware.ts': 'UEFI variables and TPM state',
  'workflows/firmware/tpm-state.ts': 'TPM state',
  'workflows/domain/forgotten-layers.ts': 'notes beside layers that are put back',
  'workflows/restore-points/join.ts': 'copies of layers that it joins, its own',
  'workflows/undo/own-undo.ts': 'directories that are an operation’s own',
};

test('nobody else removes or renames files', () => {
  const found = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.ts') && !name.endsWith('.test.ts') && !name.endsWith('test-kit.ts'))
    .filter(name => removes(readFileSync(join(SOURCE, name), 'utf8')))
    .map(name => relative(SOURCE, join(SOURCE, name)));
  expect(found.filter(name => !Object.keys(ALLOWED).some(place => isAt(name, place)))).toEqual([]);
});

const isAt = (name: string, place: string) => (place.endsWith('/') ? name.startsWith(place) : name === place);

function removes(text: string): boolean {
  return [...text.matchAll(IMPORT)].some(([, names]) => REMOVING.test(names!));
}
