import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import { openDatabase } from '../store/database.ts';
import type { Database } from '../store/schema.ts';
import { Catalogue } from './catalogue.ts';
import { ChangeFeed } from './changes.ts';
import { EventService } from './events.ts';
import { TaskService } from './tasks.ts';

const FILE = BackupFile.fromPartial({ id: 'f', poolId: 'p', path: '/p/backups/a.tar', filename: 'a.tar' });
const user = { id: newId(), username: 'someone' };
let db: Database;
let tasks: TaskService;
let catalogue: Catalogue;

/** As a restart of the controller leaves it: all that is in memory is gone. */
function restart(): void {
  const changes = new ChangeFeed();
  tasks = new TaskService(db, changes, new EventService(db, changes));
  catalogue = new Catalogue(
    db,
    () => {},
    () => undefined,
  );
}

beforeEach(async () => {
  db = await openDatabase(':memory:');
  restart();
  await catalogue.seen(FILE, () => true);
});
afterEach(() => db.destroy());

async function started(name: string): Promise<string> {
  const entities = [{ id: 'f', class: 'file' }];
  const { row } = await tasks.create({ name, verboseName: name, user, entities, nodeId: 'n' });
  return row.id;
}
const begin = (operation: string, status: 'UPDATING' | 'DELETING' = 'UPDATING') =>
  catalogue.begin('f', status, { operation, description: null, protected: null });
const busyBy = (operation: string) => ({
  msgKey: 'file_busy',
  params: expect.objectContaining({ operation }),
});

test.each(['domain_restore', 'file_verify'])('%s keeps writers away until its outcome stands', async name => {
  const reader = await started(name);
  await catalogue.read('f');
  restart();
  await expect(begin(newId(), 'DELETING')).rejects.toMatchObject(busyBy(reader));
  await expect(catalogue.unused('f')).rejects.toMatchObject(busyBy(reader));
  await tasks.markLost('n');
  await expect(begin(newId())).rejects.toMatchObject(busyBy(reader));
  await tasks.finish(reader, { status: 'CANCELED' });
  await begin(newId());
});

test('readers go together, also with a task that only looks', async () => {
  await started('file_refresh');
  await started('domain_restore');
  await started('file_verify');
  await catalogue.read('f');
  expect((await catalogue.idle('f')).id).toBe('f');
});

test('a writer keeps readers away', async () => {
  const writer = await started('domain_backup');
  await begin(writer);
  await expect(catalogue.read('f')).rejects.toMatchObject(busyBy(writer));
  await expect(catalogue.download('f')).rejects.toMatchObject(busyBy(writer));
});

test('one whose node is lost keeps no restore away, but other writers', async () => {
  const writer = await started('domain_backup');
  await begin(writer);
  await tasks.markLost('n');
  await catalogue.read('f');
  await expect(begin(newId())).rejects.toMatchObject(busyBy(writer));
});

test('what is being removed is not read', async () => {
  await begin(newId(), 'DELETING');
  await expect(catalogue.read('f')).rejects.toMatchObject({ msgKey: 'file_busy' });
});

test('downloads are counted', async () => {
  const [first, second] = [await catalogue.download('f'), await catalogue.download('f')];
  first();
  first();
  await expect(begin(newId())).rejects.toMatchObject({ msgKey: 'file_busy' });
  second();
  await begin(newId());
});

test('of a reader and a writer that start at the same time one is refused', async () => {
  const reader = await started('domain_restore');
  const writer = await started('file_remove');
  const outcomes = await Promise.allSettled([begin(writer, 'DELETING'), catalogue.read('f')]);
  expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
  await tasks.finish(reader, { status: 'CANCELED' });
});

test('what a task had in work is as before when it lets go', async () => {
  const writer = await started('domain_backup');
  await begin(writer);
  await catalogue.creating({
    id: 'new',
    operation: writer,
    poolId: 'p',
    domain: { id: 'd', name: 'd' },
    description: '',
    protected: false,
    compressed: false,
  });
  await catalogue.letGo(newId());
  expect((await catalogue.get('f')).status).toBe('UPDATING');
  await catalogue.letGo(writer);
  await catalogue.letGo(writer);
  expect((await catalogue.get('f')).status).toBe('ACTIVE');
  expect(await catalogue.find('new')).toBeUndefined();
});
