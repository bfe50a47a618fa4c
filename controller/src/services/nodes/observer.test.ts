import { afterEach, expect, jest, test } from '@jest/globals';
import { SILENT } from '../schedules/test-kit.ts';
import { NodeObserver } from './observer.ts';

afterEach(() => {
  jest.useRealTimers();
});

const GRACE_MS = 1000;
const clients = { operations: { list: async () => ({ operations: [], sequence: 7n }) } } as never;
const never = new AbortController().signal;

/** An observer of one node, and the nodes whose tasks are lost. */
function observed() {
  jest.useFakeTimers();
  const lost: string[] = [];
  const observer = new NodeObserver();
  observer.attach({
    inventory: {
      nodes: new Map([['n', {}]]),
      node: () => ({ row: { operation_sequence: 0 } }),
      updateNode: async () => {},
    },
    clocks: { begin: () => {} },
    nodeTasks: { reattach: async () => {} },
    backupFiles: { busyOn: async () => [] },
    tasks: { markLost: async (nodeId: string) => lost.push(nodeId) },
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
