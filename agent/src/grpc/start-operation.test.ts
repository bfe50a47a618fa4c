import { expect, test } from '@jest/globals';
import type { OperationRunner } from '../operations/runner.ts';
import { type OperationPlan, startOperation } from './start-operation.ts';

test('a call that was given up while its request was looked at starts nothing', async () => {
  const started: string[] = [];
  const runner = {
    replay: () => undefined,
    start: ({ id }: { id: string }) => started.push(id),
  } as unknown as OperationRunner;
  const caller = new AbortController();
  const looked = Promise.withResolvers<OperationPlan>();
  const call = { kind: 'backup', request: { operationId: 'o' }, signal: caller.signal };
  const starting = startOperation(runner, call, () => looked.promise);
  caller.abort();
  looked.resolve({} as OperationPlan);
  await expect(starting).rejects.toMatchObject({ msgKey: 'canceled' });
  expect(started).toEqual([]);
  await startOperation(runner, { ...call, signal: new AbortController().signal }, () => looked.promise);
  expect(started).toEqual(['o']);
});
