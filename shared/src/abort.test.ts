import { expect, test } from '@jest/globals';
import { abortReason, orAborted, sleep, withTimeout } from './abort.ts';
import { VirtkeepError } from './errors.ts';

test('the reason of an abort is the VirtkeepError given, else canceled', () => {
  const draining = new VirtkeepError('draining');
  expect(abortReason(AbortSignal.abort(draining))).toBe(draining);
  expect(abortReason(AbortSignal.abort())).toMatchObject({ msgKey: 'canceled' });
});

test('sleep ends early with the reason', async () => {
  await sleep(1);
  const abort = new AbortController();
  const sleeping = sleep(60_000, abort.signal);
  abort.abort();
  await expect(sleeping).rejects.toMatchObject({ msgKey: 'canceled' });
  await expect(sleep(60_000, abort.signal)).rejects.toMatchObject({ msgKey: 'canceled' });
});

test('orAborted settles like the promise unless the signal is first', async () => {
  const { signal } = new AbortController();
  expect(await orAborted(Promise.resolve(1), signal)).toBe(1);
  await expect(orAborted(Promise.reject(new Error('x')), signal)).rejects.toThrow('x');
  await expect(orAborted(new Promise(() => {}), AbortSignal.abort())).rejects.toMatchObject({
    msgKey: 'canceled',
  });
});

test('withTimeout rejects with timed_out, with the outer reason, or gives the result', async () => {
  const { signal } = new AbortController();
  expect(await withTimeout('work', 1000, signal, async () => 1)).toBe(1);
  const never = (inner: AbortSignal) => orAborted(new Promise(() => {}), inner);
  await expect(withTimeout('work', 5, signal, never)).rejects.toMatchObject({ msgKey: 'timed_out' });
  const outer = AbortSignal.abort(new VirtkeepError('interrupted'));
  await expect(withTimeout('work', 1000, outer, never)).rejects.toMatchObject({ msgKey: 'interrupted' });
});
