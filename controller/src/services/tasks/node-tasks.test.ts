import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { createLogger } from '@virtkeep/shared/log';
import type { AgentClients } from '../../agents/clients.ts';
import type { NodeLinks } from '../../agents/links.ts';
import type { Principal } from '../../auth/principal.ts';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { NodeClocks } from '../inventory/node-clocks.ts';
import { ChangeFeed } from '../journal/changes.ts';
import { EventService } from '../journal/events.ts';
import { NodeTasks } from './node-tasks.ts';
import { TaskService } from './tasks.ts';

const NODE = 'node-1';
const unreachable = new VirtkeepError('node_unreachable', { node: NODE, reason: 'test' });
/** The operation that the node knows; at first none. */
let known: Operation | undefined;
/** Cancel calls that the node took. */
let cancelled: string[];
/** Ids that the node was told never to begin. */
let refused: string[];
const toldOf = ({ id, refuseUnknown = false }: { id: string; refuseUnknown?: boolean }): Operation => {
  if (known?.id === id) return known;
  if (refuseUnknown) refused.push(id);
  throw new VirtkeepError('operation_not_found', { id });
};
const clients = {
  operations: {
    get: async (request: { id: string; refuseUnknown?: boolean }) => toldOf(request),
    cancel: async (request: { id: string }) => {
      toldOf(request);
      cancelled.push(request.id);
      return { ...known!, cancellable: false };
    },
  },
} as unknown as AgentClients;
const running = (id: string): Operation =>
  Operation.fromPartial({ id, state: OperationState.RUNNING, cancellable: true });
const user = { id: newId(), username: 'someone' };
const administrator = { ...user, role: 'administrator' } as unknown as Principal;
const newAction = () => ({
  taskId: newId(),
  name: 'act',
  verboseName: 'Act',
  user,
  nodeId: NODE,
  entities: [],
});

let db: Database;
let tasks: TaskService;
let nodeTasks: NodeTasks;
let isConnected: boolean;
/** The wait for the inventory. */
let seen: () => Promise<void>;

beforeEach(async () => {
  db = await openTestDatabase();
  const changes = new ChangeFeed();
  tasks = new TaskService(db, changes, new EventService(db, changes));
  isConnected = true;
  known = undefined;
  cancelled = [];
  refused = [];
  const connected = () => {
    if (!isConnected) throw unreachable;
    return clients;
  };
  const links = { isConnected: () => isConnected, clients: connected } as unknown as NodeLinks;
  const row = { service_mode: 0, verbose_name: NODE };
  const inventory = { node: () => ({ row }), nodes: new Map([[NODE, { row }]]) } as unknown as Inventory;
  const log = createLogger('test', 'error');
  seen = async () => {};
  const clocks = { seen: () => seen() } as unknown as NodeClocks;
  nodeTasks = new NodeTasks({
    tasks,
    links,
    inventory,
    clocks,
    log,
    draining: new AbortController().signal,
  });
});
afterEach(() => db.destroy());

test('a node that returns while its start call is given up is asked once it is back', async () => {
  const action = newAction();
  const { row } = await nodeTasks.start({
    ...action,
    send: async () => {
      isConnected = false;
      // the next session has begun, and leaves the task to its start call
      await nodeTasks.reattach(NODE, clients);
      throw unreachable;
    },
  });
  expect(row.status).toBe('IN_PROGRESS');
  isConnected = true;
  await nodeTasks.connected(NODE);
  const { status, error_json } = (await tasks.get(row.id)).row;
  expect([status, JSON.parse(error_json!).msg_key]).toEqual(['FAILED', 'operation_unknown']);
  // the start call may arrive yet, out of the connection that broke
  expect(refused).toEqual([row.id]);
});

test.each([true, false])(
  'what ends while its node returns and its start call is answered has ended; the node is back by then: %s',
  async isBack => {
    const { row } = await nodeTasks.start({
      ...newAction(),
      send: async (_clients, id) => {
        known = { ...running(id), state: OperationState.SUCCEEDED };
        isConnected = false;
        // the next session has begun, and tells what comes after that end
        await nodeTasks.reattach(NODE, clients);
        isConnected = isBack;
        if (isBack) await nodeTasks.connected(NODE);
        return running(id);
      },
    });
    isConnected = true;
    if (!isBack) await nodeTasks.connected(NODE);
    expect((await tasks.waitFor(row.id, 60_000)).row.status).toBe('SUCCESS');
  },
);

const busy = new VirtkeepError('domain_busy', { domain: 'x', operation: 'y', kind: 'z' });

test('what is refused after an answer was lost has not begun only when the node will not begin it', async () => {
  const action = newAction();
  let calls = 0;
  const send = async (): Promise<Operation> => {
    calls += 1;
    throw calls === 1 ? unreachable : busy;
  };
  await expect(nodeTasks.start({ ...action, send })).rejects.toBe(busy);
  expect([calls, refused]).toEqual([2, [action.taskId]]);
  const { status, error_json } = (await tasks.get(action.taskId)).row;
  expect([status, JSON.parse(error_json!).msg_key]).toEqual(['FAILED', 'domain_busy']);
});

test('what is refused after an answer was lost goes on when the lost call has begun it', async () => {
  let calls = 0;
  const send = async (_clients: AgentClients, id: string): Promise<Operation> => {
    calls += 1;
    if (calls === 1) throw unreachable;
    known = running(id);
    throw busy;
  };
  const { row } = await nodeTasks.start({ ...newAction(), send });
  expect([row.status, refused]).toEqual(['IN_PROGRESS', []]);
});

test('what is refused while the node is away again is decided by its return', async () => {
  let calls = 0;
  const send = async (): Promise<Operation> => {
    calls += 1;
    if (calls === 1) throw unreachable;
    isConnected = false;
    throw busy;
  };
  const { row } = await nodeTasks.start({ ...newAction(), send });
  expect([row.status, refused]).toEqual(['IN_PROGRESS', []]);
  isConnected = true;
  await nodeTasks.connected(NODE);
  expect([(await tasks.get(row.id)).row.status, refused]).toEqual(['FAILED', [row.id]]);
});

test('an answer that cannot be noted is no refusal', async () => {
  const update = tasks.update.bind(tasks);
  tasks.update = async () => {
    throw new VirtkeepError('database_unavailable', { reason: 'test' });
  };
  const send = async (_clients: AgentClients, id: string) => {
    known = running(id);
    return known;
  };
  const { row } = await nodeTasks.start({ ...newAction(), send });
  tasks.update = update;
  expect((await tasks.get(row.id)).row.status).toBe('IN_PROGRESS');
  await nodeTasks.reattach(NODE, clients);
  await nodeTasks.apply(NODE, succeeded(row.id));
  expect((await tasks.get(row.id)).row.status).toBe('SUCCESS');
});

test('a task that has ended before its start call leaves is not begun', async () => {
  const prepared = Promise.withResolvers<void>();
  let sent = 0;
  const action = { ...newAction(), prepare: () => prepared.promise };
  await nodeTasks.begin({
    ...action,
    send: async (_clients, id) => {
      sent += 1;
      return running(id);
    },
  });
  await tasks.finish(action.taskId, { status: 'FAILED', error: new VirtkeepError('interrupted') });
  prepared.resolve();
  await new Promise(setImmediate);
  await tasks.get(action.taskId);
  expect(sent).toBe(0);
});

test('a task that is cancelled while its start call is under way is cancelled when the node has taken it', async () => {
  const action = newAction();
  const { row } = await nodeTasks.start({
    ...action,
    send: async (_clients, id) => {
      expect((await tasks.cancel(id, administrator)).row.status).toBe('IN_PROGRESS');
      known = running(id);
      return known;
    },
  });
  await nodeTasks.apply(NODE, running(row.id));
  expect(cancelled).toEqual([row.id]);
});

test('a node that was away when a task was cancelled is told when it returns, and once', async () => {
  const send = async (_clients: AgentClients, id: string) => {
    known = running(id);
    return known;
  };
  const { row } = await nodeTasks.start({ ...newAction(), send });
  isConnected = false;
  await tasks.cancel(row.id, administrator);
  expect(cancelled).toEqual([]);
  isConnected = true;
  await nodeTasks.reattach(NODE, clients);
  await nodeTasks.apply(NODE, running(row.id));
  expect(cancelled).toEqual([row.id]);
});

test('a node that refuses to cancel a task is not asked again of itself', async () => {
  const send = async (_clients: AgentClients, id: string) => running(id);
  const { row } = await nodeTasks.start({ ...newAction(), send });
  const refusal = new VirtkeepError('not_cancellable', { id: row.id, status: 'RUNNING' });
  const cancel = clients.operations.cancel;
  clients.operations.cancel = async () => {
    throw refusal;
  };
  await expect(tasks.cancel(row.id, administrator)).rejects.toBe(refusal);
  clients.operations.cancel = cancel;
  known = running(row.id);
  await nodeTasks.apply(NODE, known);
  expect(cancelled).toEqual([]);
});

test('a part begins no work when the larger task was cancelled before its start call left', async () => {
  const parent = await tasks.create({
    name: 'multi',
    verboseName: 'Many',
    user,
    entities: [],
    multitask: true,
  });
  const prepared = Promise.withResolvers<void>();
  let sent = 0;
  const action = {
    ...newAction(),
    user: { ...user, parent: parent.row.id },
    prepare: () => prepared.promise,
  };
  await nodeTasks.begin({
    ...action,
    send: async (_clients, id) => {
      sent += 1;
      return running(id);
    },
  });
  await tasks.cancel(parent.row.id, administrator);
  prepared.resolve();
  expect((await tasks.waitFor(action.taskId, 120_000)).row.status).toBe('CANCELED');
  expect(sent).toBe(0);
  // one that comes into being only now
  const late = { ...newAction(), user: action.user };
  const { row } = await nodeTasks.start({ ...late, send: async (_clients, id) => running(id) });
  expect(row.status).toBe('CANCELED');
});

const succeeded = (id: string): Operation =>
  Operation.fromPartial({ id, kind: 'act', state: OperationState.SUCCEEDED });

test('the end of an operation is taken over once the inventory shows it', async () => {
  const shown = Promise.withResolvers<void>();
  seen = () => shown.promise;
  const taken: string[] = [];
  nodeTasks.ends.succeeded({ act: async ({ operation }) => void taken.push(operation.id) });
  const { row } = await nodeTasks.start({ ...newAction(), send: async (_clients, id) => running(id) });
  const applied = nodeTasks.apply(NODE, succeeded(row.id));
  await new Promise(setImmediate);
  expect([taken, (await tasks.get(row.id)).row.status]).toEqual([[], 'IN_PROGRESS']);
  shown.resolve();
  await applied;
  expect([taken, (await tasks.get(row.id)).row.status]).toEqual([[row.id], 'SUCCESS']);
});

test('an end that is lost while it waits for the inventory is heard again when the node returns', async () => {
  const { row } = await nodeTasks.start({ ...newAction(), send: async (_clients, id) => running(id) });
  known = succeeded(row.id);
  seen = async () => {
    throw unreachable;
  };
  await expect(nodeTasks.apply(NODE, known)).rejects.toBe(unreachable);
  expect((await tasks.get(row.id)).row.status).toBe('IN_PROGRESS');
  seen = async () => {};
  await nodeTasks.reattach(NODE, clients);
  expect((await tasks.get(row.id)).row.status).toBe('SUCCESS');
});

test('a result that could not be taken over is taken over later', async () => {
  const action = newAction();
  let isFull = true;
  const taken: string[] = [];
  nodeTasks.ends.succeeded({
    act: async ({ operation }) => {
      if (isFull) throw new Error('no space in the database');
      taken.push(operation.id);
      return {};
    },
  });
  const ended = Operation.fromPartial({
    ...{ id: action.taskId, kind: 'act', state: OperationState.SUCCEEDED },
  });
  await nodeTasks.start({ ...action, send: async () => ended });
  expect((await tasks.get(action.taskId)).row.status).toBe('SUCCESS');
  expect(taken).toEqual([]);
  isFull = false;
  // as whoever finds the file busy at the node's return
  await nodeTasks.takeOver(NODE, ended);
  // once more, if it was tried again by then, as it is after some seconds
  expect(new Set(taken)).toEqual(new Set([action.taskId]));
});

test('a task that was marked as lost while its node came back goes on', async () => {
  const action = newAction();
  await nodeTasks.start({ ...action, send: async () => running(action.taskId) });
  known = running(action.taskId);
  await tasks.markLost(NODE);
  expect((await tasks.get(action.taskId)).row.status).toBe('LOST');
  await nodeTasks.connected(NODE);
  expect((await tasks.get(action.taskId)).row.status).toBe('IN_PROGRESS');
});

test('a task that is lost stays so until its node is connected: none but the loss of that gives it a time again', async () => {
  const action = newAction();
  await nodeTasks.start({ ...action, send: async () => running(action.taskId) });
  known = running(action.taskId);
  const statusNow = async () => (await tasks.get(action.taskId)).row.status;
  await tasks.markLost(NODE);
  isConnected = false;
  // sessions that end before the inventory has come
  for (let session = 0; session < 2; session += 1) {
    await nodeTasks.reattach(NODE, clients);
    expect(await statusNow()).toBe('LOST');
  }
  isConnected = true;
  await nodeTasks.reattach(NODE, clients);
  await nodeTasks.connected(NODE);
  expect(await statusNow()).toBe('IN_PROGRESS');
});

test('a lost task whose end cannot be written before its node is connected stays lost, and ends later', async () => {
  const action = newAction();
  const file = { id: newId(), class: 'file' };
  nodeTasks.ends.succeeded({ act: async ended => void (await ended.nameEntities([file])) });
  await nodeTasks.start({ ...action, send: async () => running(action.taskId) });
  known = { ...succeeded(action.taskId), progress: { phase: 'x' } as never };
  await tasks.markLost(NODE);
  isConnected = false;
  const finish = tasks.finish.bind(tasks);
  tasks.finish = async () => {
    throw new VirtkeepError('database_unavailable', { reason: 'test' });
  };
  await expect(nodeTasks.reattach(NODE, clients)).rejects.toMatchObject({ msgKey: 'database_unavailable' });
  expect(await tasks.get(action.taskId)).toMatchObject({ row: { status: 'LOST' }, entities: [file] });
  tasks.finish = finish;
  await nodeTasks.reattach(NODE, clients);
  expect((await tasks.get(action.taskId)).row.status).toBe('SUCCESS');
});

test('the end of a task that nobody tells again is written later when it cannot be written now', async () => {
  const finish = tasks.finish.bind(tasks);
  const refused: string[] = [];
  tasks.finish = async (id, outcome) => {
    if (refused.includes(id)) return finish(id, outcome);
    refused.push(id);
    throw new Error('full');
  };
  nodeTasks.ends.followUp({ act: async (_task, outcome) => outcome });
  const { row } = await nodeTasks.start({ ...newAction(), send: async (_clients, id) => running(id) });
  await nodeTasks.apply(NODE, succeeded(row.id));
  const { nodeId: _nodeId, ...local } = newAction();
  await nodeTasks.runLocal(local, async () => undefined);
  const ends = [row.id, local.taskId].map(async id => (await tasks.waitFor(id, 60_000)).row.status);
  expect(await Promise.all(ends)).toEqual(['SUCCESS', 'SUCCESS']);
  expect(refused).toHaveLength(2);
});
