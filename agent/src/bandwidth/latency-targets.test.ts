import { expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { MiB } from '@virtkeep/shared/units';
import type { DiskCounters } from './latency-control.ts';
import { LatencyTargets } from './latency-targets.ts';
import type { JoinedLimits } from './limits.ts';

const signal = new AbortController().signal;
const place = (id: string) => ({ id, name: id, path: `/${id}`, outside: false });
const [FAST, SLOW, EMPTY] = [place('fast'), place('slow'), place('empty')];
const log = createLogger('test', 'error');
const turn = () => new Promise(setImmediate);

/** Samples are taken one by one; the VMs of each pool have waited so long for each of a hundred operations until then. */
class Lab {
  readonly said: string[] = [];
  readonly targets: LatencyTargets;
  questions = 0;
  /** What libvirt does: answers, fails, or says nothing. */
  libvirt: 'well' | 'away' | 'hung' = 'well';
  readonly #disks = new Map<string, Pick<DiskCounters, 'writes'>>();
  #nowMs = 0;
  #sleepers: (() => void)[] = [];

  constructor() {
    this.targets = new LatencyTargets({
      log,
      counters: async pools => {
        this.questions += 1;
        if (this.libvirt === 'away') throw new Error('libvirt is away');
        if (this.libvirt === 'hung') await new Promise(() => {});
        const none = { operations: 0, waitedNs: 0 };
        const of = (id: string) =>
          new Map([['disk', { reads: none, writes: none, flushes: none, ...this.#disks.get(id) }]]);
        return new Map(pools.map(({ id }) => [id, of(id)]));
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

  join(options: { pools?: (typeof FAST)[]; other?: JoinedLimits; said?: string[] } = {}): JoinedLimits {
    const { pools = [FAST], other, said = this.said } = options;
    const targets = pools.map(pool => ({ pool, targetMs: 10 }));
    return this.targets.join({ targets, places: [FAST, SLOW], other, say: text => void said.push(text) });
  }

  async sample(fastMs: number, slowMs = 0, seconds = 1): Promise<void> {
    for (const [id, ms] of [
      ['fast', fastMs],
      ['slow', slowMs],
    ] as const) {
      const { operations, waitedNs } = this.#disks.get(id)?.writes ?? { operations: 0, waitedNs: 0 };
      this.#disks.set(id, { writes: { operations: operations + 100, waitedNs: waitedNs + 100 * ms * 1e6 } });
    }
    this.#nowMs += seconds * 1000;
    // until the next question; and before that until it gives up waiting for the answer of the last
    for (let round = this.libvirt === 'hung' ? 0 : 1; round < 2; round += 1) {
      for (const wake of this.#sleepers.splice(0)) wake();
      await turn();
    }
  }
}

test('who keeps to a target is told when it is slowed, and when it is free again', async () => {
  const lab = new Lab();
  const joined = lab.join();
  await turn();
  void joined.take(200 * MiB, signal);
  await lab.sample(30);
  expect(lab.said).toEqual([
    'Reading at most 32 MiB/s: VMs wait 30.0 ms for disks of fast, whose target is 10 ms.',
  ]);
  // another one hears of it at once
  const others: string[] = [];
  const other = lab.join({ said: others });
  expect(others).toEqual(lab.said);
  await lab.sample(1);
  expect(lab.said.at(-1)).toBe('');
  joined.leave();
  joined.leave();
  other.leave();
  expect(lab.targets.pools).toEqual([]);
});

test('the pool that slows most is named, and another one does not take that back', async () => {
  const lab = new Lab();
  const joined = lab.join({ pools: [FAST, SLOW] });
  await turn();
  for (let samples = 0; samples < 3; samples += 1) {
    void joined.take(200 * MiB, signal);
    await lab.sample(1, 30);
  }
  expect(lab.said.at(-1)).toContain('disks of slow');
  joined.leave();
});

test('who comes is slowed at once, and what it keeps to besides ends with it', async () => {
  const lab = new Lab();
  const first = lab.join();
  await turn();
  void first.take(200 * MiB, signal);
  await lab.sample(30);
  const taken: number[] = [];
  let hasLeft = false;
  const other: JoinedLimits = {
    take: async bytes => void taken.push(bytes),
    atFixedRate: work => work(60 * MiB),
    leave: () => {
      hasLeft = true;
    },
  };
  const second = lab.join({ other });
  let isThrough = false;
  const taking = second.take(50 * MiB, signal).then(() => {
    isThrough = true;
  });
  await turn();
  // what qemu-img reads has half of what holds now
  expect([isThrough, taken, await second.atFixedRate(async rate => rate)]).toEqual([
    false,
    [50 * MiB],
    16 * MiB,
  ]);
  while (!isThrough) await lab.sample(9);
  await taking;
  second.leave();
  expect([hasLeft, lab.targets.pools]).toEqual([true, ['fast']]);
  first.leave();
  // and the next begins to sample anew
  const third = lab.join();
  expect(lab.targets.pools).toEqual(['fast']);
  third.leave();
});

test.each(['away', 'hung'] as const)(
  'libvirt is %s: nobody stays slow for that, and it is asked once',
  async how => {
    const lab = new Lab();
    const joined = lab.join();
    await turn();
    void joined.take(200 * MiB, signal);
    await lab.sample(30);
    expect(lab.said.at(-1)).toMatch(/at most 32 MiB/);
    lab.libvirt = how;
    const before = lab.questions;
    await lab.sample(30);
    expect(lab.said.at(-1)).toMatch(/at most 32 MiB/);
    for (let samples = 0; samples < 60; samples += 1) await lab.sample(30, 0, 11);
    expect(lab.said.at(-1)).toBe('');
    await joined.take(2000 * MiB, signal);
    if (how === 'hung') expect(lab.questions).toBeLessThanOrEqual(before + 1);
    joined.leave();
  },
);

test('a backup begins slowly, is let go step by step, and is not told that it is slow', async () => {
  const lab = new Lab();
  const joined = lab.join();
  await turn();
  // what could not be raised later does not begin slowly
  expect(await joined.atFixedRate(async rate => rate)).toBe(0);
  let isThrough = false;
  void joined.take(600 * MiB, signal).then(() => {
    isThrough = true;
  });
  for (let samples = 0; samples < 3; samples += 1) {
    expect(isThrough).toBe(false);
    await lab.sample(1);
    void joined.take(MiB, signal);
  }
  for (; !isThrough; await lab.sample(1)) void joined.take(MiB, signal);
  expect(lab.said).toEqual([]);
  joined.leave();
});

test('what reads at a fixed rate is told a whole number of bytes', async () => {
  const lab = new Lab();
  const joined = lab.join();
  await turn();
  void joined.take(MiB * 10 + 1, signal);
  await lab.sample(30, 0, 0.503);
  const rate = await joined.atFixedRate(async told => told);
  expect([rate > MiB, Number.isInteger(rate)]).toEqual([true, true]);
  joined.leave();
});

test('only what running VMs have disks beside is read and written in pieces', async () => {
  const lab = new Lab();
  const joined = lab.join();
  const elsewhere = lab.join({ pools: [EMPTY] });
  await turn();
  await lab.sample(1);
  expect(joined.pieceBytes!()! % 4096).toBe(0);
  expect(elsewhere.pieceBytes!()).toBeUndefined();
  lab.libvirt = 'away';
  for (let samples = 0; samples < 3; samples += 1) await lab.sample(1, 0, 11);
  expect(joined.pieceBytes!()).toBeUndefined();
  joined.leave();
  elsewhere.leave();
});

test.each(['away', 'hung'] as const)(
  'libvirt is %s from the start: nobody stays slow for that',
  async how => {
    const lab = new Lab();
    lab.libvirt = how;
    const joined = lab.join();
    await turn();
    for (let samples = 0; samples < 3; samples += 1) await lab.sample(1, 0, 11);
    await joined.take(2000 * MiB, signal);
    joined.leave();
  },
);
