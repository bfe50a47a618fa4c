import { afterEach, expect, jest, test } from '@jest/globals';
import { QuietScans } from './quiet-scans.ts';

afterEach(() => {
  jest.useRealTimers();
});

function scans() {
  jest.useFakeTimers();
  const begun: string[] = [];
  const away = new Set<string>();
  const refusing = new Set<string>();
  const quiet = new QuietScans(
    {
      isShared: poolId => poolId === 'shared',
      isConnected: nodeId => !away.has(nodeId),
      nodeFor: () => ['n1', 'n2'].find(nodeId => !away.has(nodeId)),
      start: async (poolId, nodeId) => {
        begun.push(`${poolId} by ${nodeId}`);
        return refusing.has(nodeId) ? undefined : `o${begun.length}`;
      },
    },
    1000,
  );
  return { quiet, begun, away, refusing };
}

test('a pool of one node is scanned at each of its returns', async () => {
  const { quiet, begun } = scans();
  for (let times = 0; times < 2; times += 1) await quiet.ask('own', 'n1');
  expect(begun).toEqual(['own by n1', 'own by n1']);
});

test('a shared pool is scanned by one of those that return together, and once more later', async () => {
  const { quiet, begun } = scans();
  for (const nodeId of ['n1', 'n2', 'n3']) await quiet.ask('shared', nodeId);
  quiet.ended('o1');
  await quiet.ask('shared', 'n4');
  expect(begun).toEqual(['shared by n1']);
  await jest.advanceTimersByTimeAsync(1000);
  expect(begun).toEqual(['shared by n1', 'shared by n1']);
  await jest.advanceTimersByTimeAsync(10_000);
  expect(begun).toHaveLength(2);
});

test('a scan that was refused, or whose node was lost under way, holds nobody up', async () => {
  const { quiet, begun, away, refusing } = scans();
  refusing.add('n1');
  await quiet.ask('shared', 'n1');
  await quiet.ask('shared', 'n2');
  away.add('n2');
  await quiet.ask('shared', 'n3');
  quiet.ended('o3');
  away.add('n3');
  await quiet.ask('shared', 'n4');
  expect(begun).toEqual(['shared by n1', 'shared by n2', 'shared by n3']);
});
