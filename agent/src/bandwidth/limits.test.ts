import { beforeEach, describe, expect, test } from '@jest/globals';
import { BandwidthLimits, type JoinedLimits } from './limits.ts';

const MB = 1_000_000;
const signal = new AbortController().signal;
let clock: SteppedClock;
let limits: BandwidthLimits;
beforeEach(() => {
  clock = new SteppedClock();
  limits = new BandwidthLimits(clock);
});

/** Time goes on to the next sleeper when all others sleep. */
class SteppedClock {
  #nowMs = 0;
  #sleepers: { atMs: number; wake: () => void }[] = [];

  nowMs = () => this.#nowMs;

  sleep(ms: number, aborted: AbortSignal): Promise<void> {
    return new Promise(wake => {
      this.#sleepers.push({ atMs: this.#nowMs + ms, wake });
      aborted.addEventListener('abort', () => wake());
    });
  }

  /** Until nobody sleeps any more. */
  async run(work: Promise<unknown>): Promise<number> {
    let isOver = false;
    void work.finally(() => {
      isOver = true;
    });
    while (!isOver) {
      for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
      const next = this.#sleepers.toSorted((a, b) => a.atMs - b.atMs)[0];
      if (isOver || !next) continue;
      this.#sleepers = this.#sleepers.filter(sleeper => sleeper !== next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.wake();
    }
    return this.#nowMs;
  }
}

const join = (...keys: [key: string, bytesPerSecond: number][]) =>
  limits.join(keys.map(([key, bytesPerSecond]) => ({ key, bytesPerSecond })));
/** Reads in blocks, as a backup does. @returns when it was over */
const read = async (by: JoinedLimits, bytes: number) => {
  for (let left = bytes; left > 0; left -= MB) await by.take(Math.min(left, MB), signal);
  return clock.nowMs();
};
/** Of what flows from the beginning. */
const expectAbout = (ms: number, seconds: number) => {
  expect(ms).toBeGreaterThanOrEqual(seconds * 1000 - 200);
  expect(ms).toBeLessThanOrEqual(seconds * 1000 + 200);
};

describe('what is read', () => {
  test('alone takes as long as the rate says', async () => {
    expectAbout(await clock.run(read(join(['a', 10 * MB]), 50 * MB)), 5);
  });

  test('by two operations of one key shares its rate', async () => {
    const reads = [join(['a', 10 * MB]), join(['a', 10 * MB])].map(by => read(by, 30 * MB));
    expectAbout(await clock.run(Promise.all(reads)), 6);
    const [one, other] = await Promise.all(reads);
    expect(Math.abs(one! - other!)).toBeLessThan(400);
  });

  test('goes by the smallest of several rates, and takes from all', async () => {
    const slow = join(['own', 2 * MB], ['pool', 10 * MB]);
    const fast = join(['pool', 10 * MB]);
    const reads = [read(slow, 10 * MB), read(fast, 40 * MB)];
    expectAbout(await clock.run(reads[1]!), 5);
    // it waits for its own rate, and for its turn
    expect(await clock.run(reads[0]!)).toBeGreaterThanOrEqual(4700);
    expect(await reads[0]!).toBeLessThan(6000);
  });

  test('goes by the rate that was told last', async () => {
    const first = join(['a', 10 * MB]);
    const reads = [read(first, 10 * MB).then(() => join(['a', MB])), undefined];
    await clock.run(reads[0]!);
    const begun = clock.nowMs();
    expectAbout((await clock.run(read(first, 5 * MB))) - begun, 5);
  });

  test('without limits does not wait', async () => {
    expect(await clock.run(read(join(), 500 * MB))).toBe(0);
  });

  test('makes up for no long pause', async () => {
    const by = join(['a', 10 * MB]);
    await clock.run(clock.sleep(60_000, signal));
    expectAbout((await clock.run(read(by, 20 * MB))) - 60_000, 2);
  });

  test('that is cancelled does not wait any more', async () => {
    const stop = new AbortController();
    const taking = join(['a', 1]).take(MB, stop.signal);
    stop.abort();
    await taking;
  });
});

describe('what keeps to a rate by itself', () => {
  /** What the work was told, which lasts so long. */
  const fixed = async (by: JoinedLimits, ms: number) => {
    let told = 0;
    await by.atFixedRate(async bytesPerSecond => {
      told = bytesPerSecond;
      await clock.sleep(ms, signal);
    });
    return told;
  };

  test.each([0, 1000])('leaves half to another one that comes %d ms later', async ms => {
    const lasting = fixed(join(['a', 10 * MB]), 60_000);
    await clock.run(clock.sleep(ms, signal));
    const reading = read(join(['a', 10 * MB]), 20 * MB);
    expectAbout((await clock.run(reading)) - ms, 4);
    await clock.run(lasting);
    expect(await lasting).toBe(5 * MB);
  });

  test('never exceeds the rate together, and gives back what it had', async () => {
    const by = join(['own', 100 * MB], ['pool', 8 * MB]);
    const several = [fixed(by, 10_000), fixed(join(['pool', 8 * MB]), 20_000), fixed(by, 20_000)];
    const reading = read(join(['pool', 8 * MB]), 10 * MB);
    expectAbout(await clock.run(reading), 10);
    await clock.run(Promise.all(several));
    expect(await Promise.all(several)).toEqual([4 * MB, 2 * MB, MB]);
    const begun = clock.nowMs();
    expectAbout((await clock.run(read(by, 16 * MB))) - begun, 2);
  });

  test('has no limit where there is none', async () => {
    const lasting = fixed(join(), 10);
    await clock.run(lasting);
    expect(await lasting).toBe(0);
  });
});

test('a key is there while somebody uses it', () => {
  const [one, other] = [join(['a', 1], ['b', 1]), join(['a', 2])];
  expect(limits.keys).toEqual(['a', 'b']);
  one.leave();
  one.leave();
  expect(limits.keys).toEqual(['a']);
  other.leave();
  expect(limits.keys).toEqual([]);
});
