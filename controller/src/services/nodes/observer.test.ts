import { afterEach, expect, jest, test } from '@jest/globals';
import { SILENT } from '../schedules/test-kit.ts';
import { NodeObserver } from './observer.ts';

afterEach(() => {
  jest.useRealTimers();
});

const GRACE_MS = 1000;
const clients = { operations: { list: async () => ({ operations: [], sequence: 7n }) } } as never;
const never = new AbortController().signal;

/**
 * An observer of one node, and the nodes whose tasks are lost.
 * @param write what is waited for at each write
 */
function observed(write: () => Promise<void> = async () => {}) {
  jest.useFakeTimers();
  const lost: string[] = [];
  const observer = new NodeObserver();
  observer.attach({
    inventory: {
      nodes: new Map([['n', {}]]),
      node: () => ({ row: { operation_sequence: 0 } }),
      nodeAway: async () => {},
      updateNode: write,
    },
    clocks: { begin: () => {} },
    nodeTasks: { reattach: async () => {} },
    backupFiles: { busyOn: async () => [] },
    tasks: { markLost: (nodeId: string) => write().then(() => lost.push(nodeId)) },
    log: SILENT,
    graceMs: GRACE_MS,
  } as never);
  return { observer, lost };
}

test('the time of a node that is not there begins with the first attempt to reach it', async () => {
  const { observer, lost } = observed();
  await jest.advanceTimersByTimeAsync(10 * GRACE_MS);
  expect(lost).toEqual([]);
  observer.begins('n');
  await jest.advanceTimersByTimeAsync(GRACE_MS / 2);
  observer.begins('n');
  await jest.advanceTimersByTimeAsync(GRACE_MS / 2);
  expect(lost).toEqual(['n']);
});

test('a node that has answered has its time anew while the inventories of others are taken over', async () => {
  const { observer, lost } = observed();
  observer.begins('n');
  await jest.advanceTimersByTimeAsync(GRACE_MS - 1);
  observer.answered('n');
  await jest.advanceTimersByTimeAsync(GRACE_MS - 1);
  observer.answered('n');
  await observer.reattach('n', clients, never);
  await jest.advanceTimersByTimeAsync(GRACE_MS - 1);
  expect(lost).toEqual([]);
  await jest.advanceTimersByTimeAsync(1);
  expect(lost).toEqual(['n']);
});

test('a node that answers has its time once more until it is connected, and not again and again', async () => {
  const { observer, lost } = observed();
  observer.begins('n');
  await jest.advanceTimersByTimeAsync(GRACE_MS - 1);
  await observer.reattach('n', clients, never);
  await jest.advanceTimersByTimeAsync(GRACE_MS - 1);
  await observer.reattach('n', clients, never);
  expect(lost).toEqual([]);
  await jest.advanceTimersByTimeAsync(1);
  expect(lost).toEqual(['n']);
});

test('a node that is lost while nothing can be written has its time, too', async () => {
  let isFull = false;
  const { observer, lost } = observed(async () => {
    if (isFull) throw new Error('full');
  });
  await observer.reattach('n', clients, never);
  isFull = true;
  await expect(observer.lost('n', 'gone')).rejects.toThrow('full');
  isFull = false;
  await jest.advanceTimersByTimeAsync(GRACE_MS);
  expect(lost).toEqual(['n']);
});

test('tasks that cannot be marked as lost are tried again', async () => {
  let tries = 0;
  const { observer, lost } = observed(async () => {
    tries += 1;
    if (tries < 3) throw new Error('full');
  });
  observer.begins('n');
  await jest.advanceTimersByTimeAsync(2 * GRACE_MS);
  expect({ tries, lost }).toEqual({ tries: 2, lost: [] });
  await jest.advanceTimersByTimeAsync(GRACE_MS);
  expect({ tries, lost }).toEqual({ tries: 3, lost: ['n'] });
  await jest.advanceTimersByTimeAsync(10 * GRACE_MS);
  expect(tries).toBe(3);
});

test('tasks that cannot be marked as lost are not tried again when their node is back meanwhile', async () => {
  const written = Promise.withResolvers<void>();
  let tries = 0;
  const { observer } = observed(() => {
    tries += 1;
    return written.promise;
  });
  observer.begins('n');
  await jest.advanceTimersByTimeAsync(GRACE_MS);
  observer.stop();
  written.reject(new Error('full'));
  await jest.advanceTimersByTimeAsync(10 * GRACE_MS);
  expect(tries).toBe(1);
});
