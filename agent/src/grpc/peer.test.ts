import { expect, jest, test } from '@jest/globals';
import { type CallContext, Metadata, type ServerMiddlewareCall } from 'nice-grpc-common';
import type { Revocations } from '../enroll/revocations.ts';
import { permissionMiddleware, revocationMiddleware, roleOf } from './peer.ts';

test.each([
  ['URI:urn:virtkeep:role:controller, DNS:controller.example', 'controller'],
  ['DNS:x, URI:urn:virtkeep:role:reader, URI:urn:virtkeep:role:operator', 'operator'],
  ['URI:urn:virtkeep:node:6f8a9f0e-0000-4000-8000-000000000000, DNS:node', undefined],
  ['URI:urn:virtkeep:role:root', undefined],
  ['URI:"urn:x:y, URI:urn:virtkeep:role:controller"', undefined],
  ['DNS:urn:virtkeep:role:controller', undefined],
  ['', undefined],
])('%s → %s', (names, role) => {
  expect(roleOf(names)).toBe(role);
});

async function called(role: string, request: object): Promise<unknown> {
  const peer = encodeURIComponent(JSON.stringify({ subject: 'service', role }));
  const call = {
    method: { path: '/virtkeep.agent.v1.DiskService/Attach' },
    requestStream: false,
    responseStream: false,
    request,
    async *next() {
      yield* [];
      return 'attached';
    },
  } as unknown as ServerMiddlewareCall<unknown, unknown>;
  const context = { metadata: Metadata({ 'virtkeep-internal-peer': peer }) } as CallContext;
  return (await permissionMiddleware(call, context).next()).value;
}

test('an operator attaches disks of the node, and names no file of another', async () => {
  const source = { poolId: 'p', pathInPool: 'backups/other.tar' };
  expect(await called('operator', { diskId: 'd', source: undefined })).toBe('attached');
  expect(await called('controller', { diskId: 'd', source })).toBe('attached');
  await expect(called('operator', { diskId: 'd', source })).rejects.toEqual(
    expect.objectContaining({ msgKey: 'peer_not_allowed' }),
  );
});

/** A call whose answers are these, through the check for certificates that count no more. */
function answersOf(
  answers: () => AsyncGenerator<unknown>,
  revocations: Partial<Revocations> = {},
  peer: object = { subject: '', serial: '' },
) {
  const check = revocationMiddleware({
    unreadable: false,
    isRevoked: () => false,
    whenRevoked: () => () => {},
    ...revocations,
  } as Revocations);
  const call = { request: {}, next: answers } as never;
  const told = encodeURIComponent(JSON.stringify(peer));
  const context = { metadata: { get: () => told }, signal: new AbortController().signal } as never;
  return check(call, context) as AsyncGenerator<unknown>;
}

test('a stream that its reader leaves is closed, with what it holds', async () => {
  let isClosed = false;
  const stream = answersOf(async function* () {
    try {
      for (let i = 0; ; i++) yield i;
    } finally {
      isClosed = true;
    }
  });
  await stream.next();
  await stream.return(undefined);
  expect(isClosed).toBe(true);
});

test('a call that never answers ends when its certificate is revoked', async () => {
  let revoke = () => {};
  const stream = answersOf(
    async function* () {
      yield await new Promise(() => {});
    },
    {
      whenRevoked: (_serial, told) => {
        revoke = told;
        return () => {};
      },
    },
  );
  const ended = expect(stream.next()).rejects.toMatchObject({ msgKey: 'peer_revoked' });
  revoke();
  await ended;
});

async function* oneAnswer() {
  yield 'answer';
  await new Promise(() => {});
}

test('a certificate that has ended is refused on a connection that is older, and one that ends later is not', async () => {
  const peer = { subject: 'service', serial: 'aa' };
  const late = answersOf(oneAnswer, {}, { ...peer, endsAt: Date.now() - 1 });
  await expect(late.next()).rejects.toMatchObject({ msgKey: 'peer_ended' });
  const farAway = answersOf(oneAnswer, {}, { ...peer, endsAt: Date.now() + 365 * 86_400_000 });
  expect((await farAway.next()).value).toBe('answer');
});

test('a stream ends with the certificate of who reads it, though that is longer than a timer waits', async () => {
  jest.useFakeTimers();
  try {
    const lifeMs = 40 * 86_400_000;
    const peer = { subject: 'service', serial: 'aa', endsAt: Date.now() + lifeMs };
    const stream = answersOf(oneAnswer, {}, peer);
    expect((await stream.next()).value).toBe('answer');
    const ended = expect(stream.next()).rejects.toMatchObject({ msgKey: 'peer_ended' });
    await jest.advanceTimersByTimeAsync(lifeMs);
    await ended;
  } finally {
    jest.useRealTimers();
  }
});
