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
/** What happens between the task and its work. */
let meanwhile: () => Promise<void>;

beforeEach(async () => {
  db = await openTestDatabase();
  orphaned.clear();
  meanwhile = async () => {};
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
      runLocal: async (_task: object, work: () => Promise<unknown>) => {
        await meanwhile();
        return work();
      },
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

test.each([{ pool_id: 'p1' }, { status: 'MISSING', pool_id: 'p2' }])(
  'nor for one that is protected before it is forgotten (%j)',
  async more => {
    orphaned.add('p1');
    meanwhile = () => backupFiles.update('f', { protected: 1 });
    expect(await removed(more)).toBe('file_protected');
    expect(await backupFiles.find('f')).toBeDefined();
  },
);

test('a file whose nodes are all away is not forgotten', async () => {
  expect(await removed()).toBe('node_unreachable');
  expect(await backupFiles.find('f')).toBeDefined();
});
