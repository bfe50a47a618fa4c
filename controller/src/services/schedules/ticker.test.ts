/** Whatever a clock shows, time passes. Under a zone whose clocks are changed as well: `TZ=Europe/Berlin`. */
import { afterEach, expect, jest, test } from '@jest/globals';
import { Ticker } from './create.ts';
import { SILENT } from './test-kit.ts';

const HOUR_MS = 3_600_000;
const quiet = async () => {};

let ticker: Ticker | undefined;
afterEach(async () => {
  await ticker?.stop();
  jest.useRealTimers();
});

/** @param clock what the clock shows at first @returns how many ticks pass in so many seconds */
function ticking(clock: string, tick: () => Promise<void> = quiet) {
  jest.useFakeTimers({ now: Date.parse(clock) });
  let ticks = 0;
  const counted = async () => {
    ticks += 1;
    await tick();
  };
  const others = { coverage: { refresh: quiet }, notices: { tick: quiet }, log: SILENT };
  ticker = new Ticker({ scheduler: { tick: counted, stop: quiet }, ...others });
  ticker.start();
  return async (seconds: number) => {
    const before = ticks;
    await jest.advanceTimersByTimeAsync(seconds * 1000);
    return ticks - before;
  };
}

test.each([
  ['behind', -HOUR_MS],
  ['ahead', HOUR_MS],
  ['years ahead', 50 * 365 * 24 * HOUR_MS],
])('a clock that is %s for a moment stops no tick', async (_how, jumpMs) => {
  const ticksIn = ticking('2026-03-01T12:00:00Z');
  expect(await ticksIn(20)).toBeGreaterThanOrEqual(3);
  jest.setSystemTime(Date.now() + jumpMs);
  expect(await ticksIn(20)).toBeGreaterThanOrEqual(3);
  jest.setSystemTime(Date.now() - jumpMs);
  expect(await ticksIn(20)).toBeGreaterThanOrEqual(3);
});

test('no tick is left out while the clocks of the zone are put back', async () => {
  const ticksIn = ticking('2026-10-24T23:59:55Z');
  expect(await ticksIn(600)).toBeGreaterThan(110);
});

test('a tick that takes long has no other beside it, and the end waits for it', async () => {
  const end = Promise.withResolvers<void>();
  const ticksIn = ticking('2026-03-01T12:00:00Z', () => end.promise);
  expect(await ticksIn(60)).toBe(1);
  let hasStopped = false;
  const stopped = ticker!.stop().then(() => {
    hasStopped = true;
  });
  expect([await ticksIn(60), hasStopped]).toEqual([0, false]);
  end.resolve();
  await stopped;
  expect(await ticksIn(60)).toBe(0);
});
