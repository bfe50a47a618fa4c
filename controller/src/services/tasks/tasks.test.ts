import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Principal } from '../../auth/principal.ts';
import type { Database } from '../../store/schema.ts';
import {
  loseNextAnswer,
  makeTestDatabase,
  refuseInserts,
  type TestDatabase,
} from '../../store/test-database.ts';
import { ChangeFeed } from '../journal/changes.ts';
import { EventService } from '../journal/events.ts';
import { failureOfRow } from './record.ts';
import { TaskService } from './tasks.ts';

let database: TestDatabase;
let db: Database;
let tasks: TaskService;

async function open(): Promise<void> {
  db = await database.open();
  const changes = new ChangeFeed();
  tasks = new TaskService(db, changes, new EventService(db, changes));
}

beforeEach(async () => {
  database = await makeTestDatabase();
  await open();
});

afterEach(async () => {
  await db.destroy();
  await database.release();
});

const user = { id: newId(), username: 'someone' };
const create = (values: object = {}) =>
  tasks.create({ name: 'act', verboseName: 'Act', user, entities: [], nodeId: newId(), ...values });

test('a task whose connection broke when it was written does not stay open', async () => {
  loseNextAnswer(db);
  const id = newId();
  await expect(create({ id })).rejects.toMatchObject({ msgKey: 'database_unavailable' });
  const ended = await tasks.waitFor(id, 60_000);
  expect([ended.row.status, JSON.parse(ended.row.error_json!).msg_key]).toEqual(['FAILED', 'interrupted']);
});

test('a part whose connection broke when it was written tells that, for who looks after the whole', async () => {
  loseNextAnswer(db);
  const id = newId();
  await expect(create({ id, parent: newId() })).rejects.toMatchObject({ msgKey: 'database_unavailable' });
  const { row } = await tasks.waitFor(id, 60_000);
  expect([row.status, failureOfRow(row)?.msgKey]).toEqual(['FAILED', 'database_unavailable']);
});

test('a task that could not be written goes on when it is made again under its id', async () => {
  const madeAgain = Promise.withResolvers<void>();
  const find = tasks.find.bind(tasks);
  let looked: Promise<unknown> | undefined;
  tasks.find = id => {
    const found = madeAgain.promise.then(() => find(id));
    looked = found;
    return found;
  };
  const transaction = () => {
    Reflect.deleteProperty(db, 'transaction');
    throw new VirtkeepError('database_unavailable', { reason: 'it is locked' });
  };
  Object.assign(db, { transaction });
  const id = newId();
  await expect(create({ id })).rejects.toMatchObject({ msgKey: 'database_unavailable' });
  await create({ id });
  madeAgain.resolve();
  await looked;
  await tasks.update(id, { progress: 10 });
  expect((await tasks.get(id)).row).toMatchObject({ status: 'IN_PROGRESS', progress: 10 });
});

describe('waiting', () => {
  test('ends with the task', async () => {
    const { row } = await create();
    const waiting = tasks.waitFor(row.id, 60_000);
    await tasks.finish(row.id, { status: 'SUCCESS', result: 7 });
    expect(await waiting).toMatchObject({ row: { status: 'SUCCESS' }, result: 7 });
    expect((await tasks.waitFor(row.id, 60_000)).row.status).toBe('SUCCESS');
  });

  test('ends with its time, its signal, or the loss of the node', async () => {
    const { row } = await create();
    expect((await tasks.waitFor(row.id, 5)).row.status).toBe('IN_PROGRESS');
    expect((await tasks.waitFor(row.id, 60_000, AbortSignal.abort())).row.status).toBe('IN_PROGRESS');
    const waiting = tasks.waitFor(row.id, 60_000);
    await tasks.markLost(row.node_id!);
    expect((await waiting).row.status).toBe('LOST');
  });

  test('ends, and so hears who is to hear of it, also when no event can be written', async () => {
    const heard: string[] = [];
    tasks.onEnd(async ended => heard.push(ended.row.status));
    const { row } = await create();
    const waiting = tasks.waitFor(row.id, 60_000);
    const allow = await refuseInserts(db, 'events');
    await expect(tasks.finish(row.id, { status: 'SUCCESS' })).rejects.toThrow('full');
    expect((await waiting).row.status).toBe('SUCCESS');
    expect(heard).toEqual(['SUCCESS']);
    await allow();
  });

  test('for nothing is refused', async () => {
    await expect(tasks.waitFor(newId(), 1000)).rejects.toMatchObject({ msgKey: 'task_not_found' });
  });
});

const operator: Principal = {
  id: 'o',
  number: 1,
  username: 'o',
  role: 'operator',
  jti: 'j',
  kind: 'session',
  family: 'j',
  expiresOn: new Date(),
  familyEndsOn: new Date(),
};

test('a task survives the process', async () => {
  const { row } = await create({ entities: [{ id: newId(), class: 'file' }] });
  await db.destroy();
  await open();
  const [found] = await tasks.unfinished(row.node_id!);
  expect(found?.row).toEqual(row);
  expect(found?.entities).toHaveLength(1);
});

test('why a task failed is kept with its numbers, for who goes on after it; people are told the text', async () => {
  const { row } = await create();
  const error = new VirtkeepError('pool_no_space', { pool: 'bulk', free_bytes: 1, needed_bytes: 300 });
  await tasks.finish(row.id, { status: 'FAILED', error });
  const state = await tasks.get(row.id);
  expect(failureOfRow(state.row)).toMatchObject({
    msgKey: 'pool_no_space',
    message: error.message,
    params: { needed_bytes: '300' },
  });
  const told = { code: error.code, detail: error.message, msg_key: 'pool_no_space' };
  expect(tasks.record(state, null).error).toStrictEqual(told);
});

test('a lost task that is heard of goes on', async () => {
  const { row } = await create();
  await tasks.markLost(row.node_id!);
  await tasks.update(row.id, { progress: 10 });
  expect((await tasks.get(row.id)).row).toMatchObject({ status: 'IN_PROGRESS', progress: 10 });
});

test('a lost task of whose node more is known before it is connected stays lost', async () => {
  const { row } = await create();
  await tasks.markLost(row.node_id!);
  await tasks.update(row.id, { progress: 10, staysLost: true });
  expect((await tasks.get(row.id)).row).toMatchObject({ status: 'LOST', progress: 10 });
  const { row: other } = await create();
  await tasks.update(other.id, { staysLost: true });
  expect((await tasks.get(other.id)).row.status).toBe('IN_PROGRESS');
});

test('a lost task that is heard of keeps its locks, although somebody releases them just then', async () => {
  const { row } = await create();
  await tasks.markLost(row.node_id!);
  const released: string[] = [];
  tasks.setReleaser(async id => void released.push(id));
  const heard = tasks.update(row.id, { progress: 10 });
  await expect(tasks.releaseLocks(row.id)).rejects.toMatchObject({ msgKey: 'not_cancellable' });
  await heard;
  expect([released, (await tasks.get(row.id)).row.status]).toEqual([[], 'IN_PROGRESS']);
});

test('a parent is cancelled with its parts', async () => {
  const parent = await create({ multitask: true });
  const parts = [await create({ parent: parent.row.id }), await create({ parent: parent.row.id })];
  const asked: string[] = [];
  tasks.setCanceller(async task => {
    asked.push(task.row.id);
  });
  await tasks.cancel(parent.row.id, operator);
  expect(asked.sort()).toEqual([parent.row.id, ...parts.map(part => part.row.id)].sort());
});

test('what cannot be stopped is not asked to', async () => {
  const { row } = await create({ cancellable: false });
  await expect(tasks.cancel(row.id, operator)).rejects.toMatchObject({ msgKey: 'not_cancellable' });
});

test('old outcomes are forgotten, running tasks never', async () => {
  const done = await create();
  const running = await create();
  const error = new VirtkeepError('timed_out', { operation: 'x', seconds: 1 });
  await tasks.finish(done.row.id, { status: 'FAILED', error });
  expect(await tasks.prune(new Date(Date.now() + 1000))).toBe(1);
  expect(await tasks.find(done.row.id)).toBeUndefined();
  expect(await tasks.find(running.row.id)).toBeDefined();
});

test.each([true, false])(
  'an outcome is final whenever the last progress comes (told first: %s)',
  async first => {
    for (let moment = 0; moment < 40; moment += 1) {
      const { row } = await create();
      const calls = [
        () => tasks.update(row.id, { progress: 10 }),
        () => tasks.finish(row.id, { status: 'SUCCESS', result: 7 }),
      ];
      const [before, after] = first ? calls : calls.reverse();
      const begun = before!();
      for (let turn = 0; turn < moment; turn += 1) await Promise.resolve();
      await Promise.all([begun, after!()]);
      expect((await tasks.get(row.id)).row.status).toBe('SUCCESS');
    }
  },
);
