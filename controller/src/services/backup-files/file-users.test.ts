import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { ChangeFeed } from '../journal/changes.ts';
import { EventService } from '../journal/events.ts';
import { TaskService } from '../tasks/tasks.ts';
import { BackupFiles } from './backup-files.ts';

const FILE = BackupFile.fromPartial({ id: 'f', poolId: 'p', path: '/p/backups/a.tar', filename: 'a.tar' });
const user = { id: newId(), username: 'someone' };
let db: Database;
let tasks: TaskService;
let backupFiles: BackupFiles;

/** As a restart of the controller leaves it: all that is in memory is gone. */
function restart(): void {
  const changes = new ChangeFeed();
  tasks = new TaskService(db, changes, new EventService(db, changes));
  backupFiles = new BackupFiles(
    db,
    () => {},
    () => undefined,
  );
  tasks.setReleaser(id => backupFiles.letGo(id));
}

beforeEach(async () => {
  db = await openTestDatabase();
  restart();
  await backupFiles.seen(FILE, () => true);
});
afterEach(() => db.destroy());

async function started(name: string): Promise<string> {
  const entities = [{ id: 'f', class: 'file' }];
  const { row } = await tasks.create({ name, verboseName: name, user, entities, nodeId: 'n' });
  return row.id;
}
const begin = (operation: string, status: 'UPDATING' | 'DELETING' = 'UPDATING') =>
  backupFiles.begin('f', status, { operation, description: null, protected: null });
const busyBy = (operation: string) => ({
  msgKey: 'file_busy',
  params: expect.objectContaining({ operation }),
});

test.each(['domain_restore', 'domain_config_restore', 'domain_import_disk', 'file_verify'])(
  '%s keeps writers away until its outcome stands',
  async name => {
    const reader = await started(name);
    await backupFiles.read('f');
    restart();
    await expect(begin(newId(), 'DELETING')).rejects.toMatchObject(busyBy(reader));
    await expect(backupFiles.unused('f')).rejects.toMatchObject(busyBy(reader));
    await tasks.markLost('n');
    await expect(begin(newId())).rejects.toMatchObject(busyBy(reader));
    await tasks.finish(reader, { status: 'CANCELED' });
    await begin(newId());
  },
);

test('readers go together, also with a task that only looks', async () => {
  await started('file_refresh');
  await started('domain_restore');
  await started('file_verify');
  await backupFiles.read('f');
  expect((await backupFiles.idle('f')).id).toBe('f');
});

test('a writer keeps readers away', async () => {
  const writer = await started('domain_backup');
  await begin(writer);
  await expect(backupFiles.read('f')).rejects.toMatchObject(busyBy(writer));
  await expect(backupFiles.download('f')).rejects.toMatchObject(busyBy(writer));
});

test('one whose node is lost keeps no restore away, but other writers', async () => {
  const writer = await started('domain_backup');
  await begin(writer);
  await tasks.markLost('n');
  await backupFiles.read('f');
  await expect(begin(newId())).rejects.toMatchObject(busyBy(writer));
});

test('what is being removed is not read', async () => {
  await begin(newId(), 'DELETING');
  await expect(backupFiles.read('f')).rejects.toMatchObject({ msgKey: 'file_busy' });
});

test('downloads are counted', async () => {
  const [first, second] = [await backupFiles.download('f'), await backupFiles.download('f')];
  first();
  first();
  await expect(begin(newId())).rejects.toMatchObject({ msgKey: 'file_busy' });
  second();
  await begin(newId());
});

test('of a reader and a writer that start at the same time one is refused', async () => {
  const reader = await started('domain_restore');
  const writer = await started('file_remove');
  const outcomes = await Promise.allSettled([begin(writer, 'DELETING'), backupFiles.read('f')]);
  expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
  await tasks.finish(reader, { status: 'CANCELED' });
});

test('what a task had in work is as before when its locks are released, and what it makes waits for its node', async () => {
  const other = await started('domain_backup');
  const writer = await started('domain_backup');
  await begin(writer);
  await backupFiles.creating({
    id: 'new',
    operation: writer,
    poolId: 'p',
    domain: { id: 'd', name: 'd' },
    description: '',
    protected: true,
    compressed: false,
  });
  await tasks.markLost('n');
  await tasks.releaseLocks(other);
  expect((await backupFiles.get('f')).status).toBe('UPDATING');
  await tasks.releaseLocks(writer);
  await backupFiles.letGo(writer);
  expect((await backupFiles.get('f')).status).toBe('ACTIVE');
  await begin(newId(), 'DELETING');
  expect(await backupFiles.get('new')).toMatchObject({ status: 'CREATING', protected: 1 });
});

test('a task whose files could not be let go is released again', async () => {
  const writer = await started('domain_backup');
  await begin(writer);
  await tasks.markLost('n');
  tasks.setReleaser(async () => {
    throw new Error('the database is busy');
  });
  await expect(tasks.releaseLocks(writer)).rejects.toThrow('busy');
  tasks.setReleaser(id => backupFiles.letGo(id));
  expect((await tasks.releaseLocks(writer)).row.status).toBe('FAILED');
  expect((await backupFiles.get('f')).status).toBe('ACTIVE');
});

test('what a task that was given up has made after all leaves the file to who has it now', async () => {
  const lost = await started('domain_backup');
  await begin(lost);
  await tasks.markLost('n');
  await tasks.releaseLocks(lost);
  const next = newId();
  await backupFiles.begin('f', 'UPDATING', { operation: next, description: null, protected: true });
  expect(await backupFiles.recordResult({ ...FILE, size: 20n }, lost)).toBe('f');
  await expect(begin(newId(), 'DELETING')).rejects.toMatchObject(busyBy(next));
  await backupFiles.recordResult({ ...FILE, size: 30n }, next);
  expect(await backupFiles.get('f')).toMatchObject({ status: 'ACTIVE', size: 30, protected: 1 });
});

test('all that somebody reads is known at once', async () => {
  const reader = await started('file_verify');
  await started('domain_backup');
  expect(await backupFiles.readNow()).toEqual(new Set(['f']));
  await tasks.markLost('n');
  expect(await backupFiles.readNow()).toEqual(new Set(['f']));
  await tasks.finish(reader, { status: 'SUCCESS' });
  expect(await backupFiles.readNow()).toEqual(new Set());
  const end = await backupFiles.download('f');
  expect(await backupFiles.readNow()).toEqual(new Set(['f']));
  end();
  expect(await backupFiles.readNow()).toEqual(new Set());
});

test('a task that deletes a file of a pool counts while it is under way on a node that answers', async () => {
  const isDeleted = () => backupFiles.isDeletedFrom('p');
  const operation = await started('file_remove');
  expect(await isDeleted()).toBe(false);
  await begin(operation, 'DELETING');
  expect([await isDeleted(), await backupFiles.isDeletedFrom('q')]).toEqual([true, false]);
  await tasks.markLost('n');
  expect(await isDeleted()).toBe(false);
});
