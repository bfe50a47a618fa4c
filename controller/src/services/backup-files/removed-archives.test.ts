import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { SavedState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { BackupFiles } from './backup-files.ts';
import { RemovedArchives } from './removed-archives.ts';

const ARCHIVE = BackupFile.fromPartial({
  id: 'a',
  archiveId: 'a',
  poolId: 'p',
  path: '/p/backups/a.tar',
  filename: 'a.tar',
  size: 10n,
  type: 'tar',
  domainId: 'vm',
  canBeIncremental: true,
});
const COPY = BackupFile.fromPartial({
  ...ARCHIVE,
  id: 'copy',
  poolId: 'q',
  path: '/q/backups/c.tar',
  filename: 'c.tar',
});
const VM = { id: 'vm', savedStates: [SavedState.fromPartial({ backupId: 'a' })] };
let db: Database;
let backupFiles: BackupFiles;
let archives: RemovedArchives;

beforeEach(async () => {
  db = await openTestDatabase();
  backupFiles = new BackupFiles(
    db,
    () => {},
    () => undefined,
  );
  archives = new RemovedArchives(db);
  await backupFiles.seen(ARCHIVE, () => true);
});
afterEach(() => db.destroy());

const see = (file: BackupFile) => backupFiles.seen(file, () => true);
async function remove(id: string): Promise<void> {
  await archives.removed(await backupFiles.get(id));
  await backupFiles.remove(id);
}
/** A file that is missed, and is forgotten then: nobody removed it. */
const forget = (id: string) => backupFiles.remove(id);

test('an archive that was removed counts as removed, and no more as soon as a file of it is seen', async () => {
  await remove('a');
  expect(await archives.of(VM)).toEqual(['a']);
  await see(ARCHIVE);
  expect(await archives.of(VM)).toEqual([]);
  await forget('a');
  expect(await archives.of(VM)).toEqual([]);
});

test('one that came back as a copy is not removed when the copy is forgotten, but when it is removed', async () => {
  await remove('a');
  await see(COPY);
  await forget('copy');
  expect(await archives.of(VM)).toEqual([]);
  await see(COPY);
  await remove('copy');
  expect(await archives.of(VM)).toEqual(['a']);
});

test('of two copies that are known the last decides', async () => {
  await see(COPY);
  await remove('a');
  await forget('copy');
  expect(await archives.of(VM)).toEqual([]);
  await see(ARCHIVE);
  await see(COPY);
  await remove('a');
  await remove('copy');
  expect(await archives.of(VM)).toEqual(['a']);
});

test.each([true, false])(
  'which task it was of is forgotten with it (extendable: %s)',
  async canBeIncremental => {
    await see(BackupFile.fromPartial({ ...ARCHIVE, canBeIncremental }));
    await see(BackupFile.fromPartial({ ...COPY, canBeIncremental }));
    const origin = { scheduled_task_id: 't', domain_id: 'vm', created: '' };
    await db
      .insertInto('file_origins')
      .values(['a', 'other'].map(archive_id => ({ ...origin, archive_id })))
      .execute();
    const origins = async () =>
      (await db.selectFrom('file_origins').select('archive_id').execute()).map(row => row.archive_id).sort();
    await remove('copy');
    expect(await origins()).toEqual(['a', 'other']);
    await remove('a');
    expect(await origins()).toEqual(['other']);
  },
);
