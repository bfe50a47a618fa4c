import { expect, test } from '@jest/globals';
import { type CallContext, Metadata, type ServerMiddlewareCall } from 'nice-grpc-common';
import { epochMiddleware } from './epochs.ts';

/** A node whose journal holds this. */
function node(kept: Map<string, unknown> = new Map()) {
  const middleware = epochMiddleware({
    get: key => kept.get(key),
    set: (key, value) => kept.set(key, value),
  });
  const call = async (epoch: string | undefined, role = 'controller') => {
    const peer = encodeURIComponent(JSON.stringify({ subject: 'x', role }));
    const metadata = Metadata({ 'virtkeep-internal-peer': peer, ...(epoch && { 'virtkeep-epoch': epoch }) });
    const served = {
      request: {},
      async *next() {
        yield* [];
        return 'served';
      },
    } as unknown as ServerMiddlewareCall<unknown, unknown>;
    return (await middleware(served, { metadata } as CallContext).next()).value;
  };
  return { call, kept };
}

const superseded = (epoch: string, highest: string) =>
  expect.objectContaining({ msgKey: 'controller_superseded', params: { epoch, highest } });

test('a controller that another one took over from may call nothing any more, also after the agent started again', async () => {
  const { call, kept } = node();
  expect(await call('3')).toBe('served');
  expect(await call('3')).toBe('served');
  expect(await call('5')).toBe('served');
  await expect(call('4')).rejects.toEqual(superseded('4', '5'));
  expect(await call('5')).toBe('served');
  await expect(node(kept).call('4')).rejects.toEqual(superseded('4', '5'));
});

test('a controller that is alone has no epoch; where another one has called it may not', async () => {
  const { call } = node();
  expect(await call(undefined)).toBe('served');
  await call('2');
  await expect(call(undefined)).rejects.toEqual(superseded('0', '2'));
});

test('what is no epoch is refused, and another service has none', async () => {
  const { call, kept } = node();
  for (const text of ['0', '-1', '1e3', '99999999999999999999', 'x'])
    await expect(call(text)).rejects.toEqual(superseded(text, '0'));
  expect(await call('7', 'operator')).toBe('served');
  expect(kept.size).toBe(0);
});
