import { expect, test } from '@jest/globals';
import type { CallOptions, ClientMiddlewareCall } from 'nice-grpc';
import { around } from './around.ts';

/** One call through the middleware, and what was done around it. */
function made(messages: () => AsyncGenerator<number, string, undefined>, refusal?: Error) {
  const log: string[] = [];
  const middleware = around(options => {
    log.push('begins');
    if (refusal) throw refusal;
    return {
      options: { ...options, onHeader: () => {} },
      failed: error => new Error(`instead of: ${(error as Error).message}`),
      ended: () => log.push('ended'),
    };
  });
  const next = (_request: unknown, options: CallOptions) => {
    log.push(`called with ${Object.keys(options)}`);
    return messages();
  };
  const call = { request: {}, next } as unknown as ClientMiddlewareCall<unknown, number>;
  return { log, stream: middleware(call, {}) };
}

async function* three(): AsyncGenerator<number, string, undefined> {
  yield 1;
  yield 2;
  yield 3;
  return 'all';
}

async function* failing(): AsyncGenerator<number, string, undefined> {
  yield 1;
  throw new Error('lost');
}

const CALLED = ['begins', 'called with onHeader'];

test('gives what the call gives, begins with the first question and ends once', async () => {
  const { log, stream } = made(three);
  expect(log).toEqual([]);
  expect(await stream.next()).toEqual({ done: false, value: 1 });
  expect(log).toEqual(CALLED);
  expect([await stream.next(), await stream.next()].map(({ value }) => value)).toEqual([2, 3]);
  expect(await stream.next()).toEqual({ done: true, value: 'all' });
  expect(await stream.next()).toEqual({ done: true, value: undefined });
  expect(log).toEqual([...CALLED, 'ended']);
});

test('a failure is another one, and the end', async () => {
  const { log, stream } = made(failing);
  await stream.next();
  await expect(stream.next()).rejects.toThrow('instead of: lost');
  expect(await stream.next()).toEqual({ done: true, value: undefined });
  expect(log).toEqual([...CALLED, 'ended']);
});

test('who stops early ends the call', async () => {
  let isEnded = false;
  async function* endless(): AsyncGenerator<number, string, undefined> {
    try {
      for (;;) yield 7;
    } finally {
      isEnded = true;
    }
  }
  const { log, stream } = made(endless);
  for await (const message of stream) {
    expect(message).toBe(7);
    break;
  }
  expect(isEnded).toBe(true);
  expect(log).toEqual([...CALLED, 'ended']);
});

test('what is thrown into it goes to the call', async () => {
  const { log, stream } = made(three);
  await stream.next();
  await expect(stream.throw(new Error('too many'))).rejects.toThrow('instead of: too many');
  expect(log).toEqual([...CALLED, 'ended']);
});

test.each(['return', 'throw'])('one that is ended by %s before it began does not begin', async how => {
  const { log, stream } = made(three);
  if (how === 'return') await stream.return(undefined);
  else await expect(stream.throw(new Error('no'))).rejects.toThrow('no');
  expect(await stream.next()).toEqual({ done: true, value: undefined });
  expect(log).toEqual([]);
});

test('what may not begin fails as it says', async () => {
  const refusal = new Error('not now');
  const { log, stream } = made(three, refusal);
  await expect(stream.next()).rejects.toBe(refusal);
  expect(await stream.next()).toEqual({ done: true, value: undefined });
  expect(log).toEqual(['begins']);
});
