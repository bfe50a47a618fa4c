import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Database, FileRow } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { BackupFiles } from '../backup-files/backup-files.ts';
import { fileRow } from '../schedules/sample-files.ts';
import { FileActionService } from './file-actions.ts';

const USER = { id: 'u', username: 'u' };
const orphaned = new Set<string>();
let db: Database;
let backupFiles: BackupFiles;
let actions: FileActionService;

beforeEach(async () => {
  db = await openTestDatabase();
  orphaned.clear();
  backupFiles = new BackupFiles(
    db,
    () => {},
    () => undefined,
  );
  actions = new FileActionService({
    backupFiles,
    inventory: { isOrphaned: (id: string) => orphaned.has(id) },
    pools: {
      nodeFor: () => {
        throw new VirtkeepError('node_unreachable', { node: 'n1', reason: 'it is away' });
      },
    },
    nodeTasks: {
      ends: { succeeded: () => {}, failed: () => {} },
      runLocal: (_task: object, work: () => Promise<unknown>) => work(),
    },
    tags: { forget: async () => {} },
  } as never);
});
afterEach(() => db.destroy());

/** @returns whether it is forgotten, or why not */
async function removed(more: Partial<FileRow> = {}): Promise<boolean | string> {
  await db
    .insertInto('files')
    .values(fileRow('f', 'f', 0, more))
    .execute();
  try {
    await actions.remove('f', USER, 't');
  } catch (error) {
    return hasKey(error) ? error.msgKey : String(error);
  }
  return (await backupFiles.find('f')) === undefined;
}

test('a file in a pool that no node has any more is forgotten', async () => {
  orphaned.add('p1');
  expect(await removed()).toBe(true);
});

test('but for one that is protected, or that an operation is at', async () => {
  orphaned.add('p1');
  expect(await removed({ protected: 1 })).toBe('file_protected');
  await db.deleteFrom('files').execute();
  expect(await removed({ status: 'UPDATING' })).toBe('file_busy');
});

test('a file whose nodes are all away is not forgotten', async () => {
  expect(await removed()).toBe('node_unreachable');
  expect(await backupFiles.find('f')).toBeDefined();
});
