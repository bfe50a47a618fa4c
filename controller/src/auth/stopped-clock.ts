import { jest } from '@jest/globals';

const TIMERS = [
  'hrtime',
  'nextTick',
  'performance',
  'queueMicrotask',
  'setImmediate',
  'clearImmediate',
  'setInterval',
  'clearInterval',
  'setTimeout',
  'clearTimeout',
] as const;

/**
 * A test in which no time passes by the clock, while timers go on: whoever waits for a second to be over stays refused, however long a
 * busy machine takes for the hash of a password.
 */
export const clockStopped = (body: () => Promise<void>) => async (): Promise<void> => {
  jest.useFakeTimers({ now: Date.now(), doNotFake: [...TIMERS] });
  try {
    await body();
  } finally {
    jest.useRealTimers();
  }
};
