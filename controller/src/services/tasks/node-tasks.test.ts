import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { createLogger } from '@virtkeep/shared/log';
import type { AgentClients } from '../../agents/clients.ts';
import type { NodeLinks } from '../../agents/links.ts';
import { openDatabase } from '../../store/database.ts';
import type { Database } from '../../store/schema.ts';
import type { Inventory } from '../inventory/inventory.ts';
import { ChangeFeed } from '../journal/changes.ts';
import { EventService } from '../journal/events.ts';
import { NodeTasks } from './node-tasks.ts';
import { TaskService } from './tasks.ts';

const NODE = 'node-1';
const unreachable = new VirtkeepError('node_unreachable', { node: NODE, reason: 'test' });
/** A node that knows no operation. */
const clients = {
  operations: {
    get: async ({ id }: { id: string }) => {
      throw new VirtkeepError('operation_not_found', { id });
    },
  },
} as unknown as AgentClients;

let db: Database;
let tasks: TaskService;
let nodeTasks: NodeTasks;
let isConnected: boolean;

beforeEach(async () => {
  db = await openDatabase(':memory:');
  const changes = new ChangeFeed();
  tasks = new TaskService(db, changes, new EventService(db, changes));
  isConnected = true;
  const links = { isConnected: () => isConnected, clients: () => clients } as unknown as NodeLinks;
  const row = { service_mode: 0, verbose_name: NODE };
  const inventory = { node: () => ({ row }), nodes: new Map([[NODE, { row }]]) } as unknown as Inventory;
  const log = createLogger('test', 'error');
  nodeTasks = new NodeTasks({ tasks, links, inventory, log, draining: new AbortController().signal });
});
afterEach(() => db.destroy());

test('a node that returns while its start call is given up is asked once it is back', async () => {
  const action = {
    taskId: newId(),
    name: 'act',
    verboseName: 'Act',
    user: { id: newId(), username: 'someone' },
    nodeId: NODE,
    entities: [],
  };
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
});
