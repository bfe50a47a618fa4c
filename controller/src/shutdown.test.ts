import { expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { Shutdown } from './shutdown.ts';

const log = createLogger('test', 'error');
const never = () => new Promise<void>(() => {});

test('drains, closes, stops', async () => {
  const steps: string[] = [];
  const step = (name: string) => async () => {
    steps.push(name);
  };
  const shutdown = new Shutdown({ log, drainTimeoutMs: 60_000, drain: step('drain'), close: step('close') });
  expect(shutdown.state).toBe('serving');
  shutdown.signal('SIGTERM');
  await shutdown.stopped;
  expect([steps, shutdown.state]).toEqual([['drain', 'close'], 'stopped']);
});

test('a second signal, or the end of the time, closes what does not drain', async () => {
  const hurried = new Shutdown({ log, drainTimeoutMs: 60_000, drain: never, close: async () => {} });
  hurried.signal('SIGTERM');
  expect(hurried.state).toBe('draining');
  hurried.signal('SIGINT');
  await hurried.stopped;
  const late = new Shutdown({ log, drainTimeoutMs: 5, drain: never, close: async () => {} });
  late.signal('SIGTERM');
  await late.stopped;
});

test('a close that fails is told', async () => {
  const close = async () => {
    throw new Error('disk gone');
  };
  const shutdown = new Shutdown({ log, drainTimeoutMs: 5, drain: async () => {}, close });
  shutdown.signal('SIGTERM');
  await expect(shutdown.stopped).rejects.toThrow('disk gone');
});
