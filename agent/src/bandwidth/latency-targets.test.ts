import { expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { MiB } from '@virtkeep/shared/units';
import { LatencyTargets, nextRate, type Waits, waitedSince } from './latency-targets.ts';
import type { JoinedLimits } from './limits.ts';

const signal = new AbortController().signal;
const POOL = { id: 'pool', name: 'fast', path: '/fast', outside: false };
const log = createLogger('test', 'error');

test('down from what was read, up from what was allowed, and never to nothing', () => {
  const seen = { rate: 1e12, readRate: 400 * MiB, targetMs: 10 };
  expect(nextRate({ ...seen, waitedMs: 15 })).toBe(300 * MiB);
  expect(nextRate({ ...seen, waitedMs: 25 })).toBe(200 * MiB);
  expect(nextRate({ ...seen, waitedMs: 25, readRate: 0 })).toBe(4 * MiB);
  expect(nextRate({ ...seen, rate: 100 * MiB, waitedMs: 25 })).toBe(50 * MiB);
  // near the target it stays
  expect(nextRate({ ...seen, rate: 100 * MiB, waitedMs: 9 })).toBe(100 * MiB);
  expect(nextRate({ ...seen, rate: 100 * MiB, waitedMs: 5 })).toBe(125 * MiB);
  expect(nextRate({ ...seen, rate: 100 * MiB, waitedMs: undefined })).toBe(125 * MiB);
  expect(nextRate({ ...seen, waitedMs: 1 })).toBe(1e12);
});

test('only what disks did between two looks counts', () => {
  const waits = (operations: number, ms: number): Waits => ({ operations, waitedNs: ms * 1e6 });
  const before = new Map([
    ['a', waits(100, 5000)],
    ['anew', waits(100, 100)],
  ]);
  const now = new Map([
    ['a', waits(110, 5200)],
    // its VM was started again, and this one just now
    ['anew', waits(10, 90_000)],
    ['new', waits(1000, 90_000)],
  ]);
  expect(waitedSince(before, now)).toBe(20);
  expect(waitedSince(before, before)).toBeUndefined();
});

/** Looks are made one by one; the disk's VM has waited so long for each of so many operations until then. */
class Lab {
  readonly said: string[] = [];
  readonly targets: LatencyTargets;
  #waits: Waits = { operations: 0, waitedNs: 0 };
  #nowMs = 0;
  #sleepers: (() => void)[] = [];
  #isBroken = false;

  constructor() {
    this.targets = new LatencyTargets({
      log,
      waits: async pools => {
        if (this.#isBroken) throw new Error('libvirt is away');
        return new Map(pools.map(({ id }) => [id, new Map([['disk', this.#waits]])]));
      },
      clock: {
        nowMs: () => this.#nowMs,
        sleep: (_ms, ended) =>
          new Promise(resolve => {
            this.#sleepers.push(resolve);
            ended.addEventListener('abort', () => resolve(), { once: true });
          }),
      },
    });
  }

  join(other?: JoinedLimits): JoinedLimits {
    return this.targets.join([{ pool: POOL, targetMs: 10 }], other, text => void this.said.push(text));
  }

  async look(waitedMs: number): Promise<void> {
    const { operations, waitedNs } = this.#waits;
    this.#waits = { operations: operations + 100, waitedNs: waitedNs + 100 * waitedMs * 1e6 };
    this.#nowMs += 1000;
    for (const wake of this.#sleepers.splice(0)) wake();
    await new Promise(setImmediate);
  }

  set isBroken(value: boolean) {
    this.#isBroken = value;
  }
}

test('who keeps to a target is told when it is slowed, and when it is free again', async () => {
  const lab = new Lab();
  const joined = lab.join();
  await new Promise(setImmediate);
  await joined.take(200 * MiB, signal);
  await lab.look(30);
  expect(lab.said).toEqual([
    'Reading at most 100 MiB/s: VMs wait 30.0 ms for disks of fast, whose target is 10 ms.',
  ]);
  // nobody knows anything: it stays
  lab.isBroken = true;
  await lab.look(30);
  lab.isBroken = false;
  expect(lab.said).toHaveLength(1);
  for (let looks = 0; looks < 60; looks += 1) await lab.look(1);
  expect(lab.said.at(-1)).toBe('');
  joined.leave();
  joined.leave();
  expect(lab.targets.pools).toEqual([]);
});

test('others that come are slowed at once, and what they keep to besides ends with them', async () => {
  const lab = new Lab();
  const first = lab.join();
  await new Promise(setImmediate);
  await first.take(200 * MiB, signal);
  await lab.look(30);
  const taken: number[] = [];
  let hasLeft = false;
  const second = lab.join({
    take: async bytes => void taken.push(bytes),
    atFixedRate: work => work(7),
    leave: () => {
      hasLeft = true;
    },
  });
  let isThrough = false;
  const taking = second.take(50 * MiB, signal).then(() => {
    isThrough = true;
  });
  await new Promise(setImmediate);
  expect([isThrough, taken, await second.atFixedRate(async rate => rate)]).toEqual([false, [50 * MiB], 7]);
  while (!isThrough) await lab.look(9);
  await taking;
  second.leave();
  expect([hasLeft, lab.targets.pools]).toEqual([true, [POOL.id]]);
  first.leave();
  // and the next begins to look anew
  const third = lab.join();
  expect(lab.targets.pools).toEqual([POOL.id]);
  third.leave();
});
