import { beforeEach, expect, jest, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import type { Candidate, LeaseRow, LeaseTable } from '../store/lease-table.ts';
import { HeldLease, leaseTimes, type SteadyClock, takeLease } from './lease.ts';

const LEASE_MS = 15_000;
const STEP_MS = 50;
const TIMES = leaseTimes(LEASE_MS);
const log = createLogger('test', 'error');

/** Stands still but for `pass`. */
class Clock implements SteadyClock {
  #ms = 0;
  readonly #sleepers = new Set<{ atMs: number; wake: () => void }>();

  now = () => this.#ms;

  pause = (ms: number, signal: AbortSignal) =>
    new Promise<void>(resolve => {
      const sleeper = { atMs: this.#ms + ms, wake: resolve };
      this.#sleepers.add(sleeper);
      if (signal.aborted) resolve();
      signal.addEventListener('abort', () => resolve());
    });

  async pass(ms: number): Promise<void> {
    for (const untilMs = this.#ms + ms; this.#ms < untilMs; ) {
      this.#ms += STEP_MS;
      for (const sleeper of [...this.#sleepers].filter(({ atMs }) => atMs <= this.#ms)) {
        this.#sleepers.delete(sleeper);
        sleeper.wake();
      }
      await new Promise(setImmediate);
    }
  }
}

/** The row as the database has it. */
class Row {
  row: LeaseRow = { holder: null, name: '', address: '', epoch: 0, beat: 0, away: [], claim: null };

  /** @param isReached whether this controller reaches the database */
  tableOf(isReached: () => boolean): LeaseTable {
    const ask = <T>(work: () => T) => {
      if (!isReached()) throw new Error('the database is away');
      return work();
    };
    const change = (holder: string, epoch: number, changes: Partial<LeaseRow>) =>
      ask(() => {
        if (this.row.holder !== holder || this.row.epoch !== epoch) return false;
        this.row = { ...this.row, ...changes, beat: this.row.beat + 1 };
        return true;
      });
    const table: Partial<LeaseTable> = {
      read: async () => ask(() => this.row),
      take: async ({ holder, name }: Candidate, seen: LeaseRow) =>
        ask(() => {
          if (seen.epoch !== this.row.epoch || seen.beat !== this.row.beat) return undefined;
          const [epoch, beat] = [seen.epoch + 1, seen.beat + 1];
          this.row = { holder, name, address: '', epoch, beat, away: [], claim: null };
          return this.row.epoch;
        }),
      renew: async (holder, epoch, away) => {
        const claim = away.length === 0 ? null : this.row.claim;
        return change(holder, epoch, { away: [...away], claim }) ? { claim } : undefined;
      },
      claim: async ({ holder }, epoch) =>
        ask(() => {
          if (this.row.epoch === epoch && this.row.claim === null && this.row.away.length > 0)
            this.row = { ...this.row, claim: holder };
        }),
      announce: async (holder, epoch, address) => change(holder, epoch, { address }),
      raise: async (holder, epoch, above) =>
        change(holder, epoch, { epoch: Math.max(epoch, above) + 1 }) ? this.row.epoch : undefined,
      release: async (holder, epoch) => void change(holder, epoch, { holder: null, address: '' }),
    };
    return table as LeaseTable;
  }
}

const HELD_BY_OTHER: LeaseRow = {
  holder: 'two',
  name: 'two',
  address: '',
  epoch: 2,
  beat: 99,
  away: [],
  claim: null,
};

/** A controller that stands by, and acts when it may. */
class Controller {
  held: HeldLease | undefined;
  lostAtMs: number | undefined;
  reason: string | undefined;
  isReached = true;

  constructor(name: string) {
    const base = {
      table: row.tableOf(() => this.isReached),
      candidate: { holder: name, name },
      log,
      times: TIMES,
      clock,
    };
    const lost = (reason: string) => {
      this.lostAtMs ??= clock.now();
      this.reason ??= reason;
    };
    void takeLease(base, () => {}, new AbortController().signal).then(taken => {
      if (taken) this.held = new HeldLease({ ...base, lost }, taken);
    });
  }
}

let clock: Clock;
let row: Row;

beforeEach(() => {
  clock = new Clock();
  row = new Row();
});

test('one of two acts, as long as it renews the lease', async () => {
  const one = new Controller('one');
  await clock.pass(STEP_MS);
  const two = new Controller('two');
  await clock.pass(10 * LEASE_MS);
  expect([one.held?.mustAct(), two.held, one.lostAtMs]).toEqual([1, undefined, undefined]);
});

test('a lease that was given back is taken without waiting', async () => {
  const one = new Controller('one');
  await clock.pass(STEP_MS);
  const two = new Controller('two');
  await clock.pass(LEASE_MS);
  await one.held?.release();
  await clock.pass(2 * TIMES.lookMs);
  expect(two.held?.mustAct()).toBe(2);
  expect(() => one.held?.mustAct()).toThrow('has taken over');
});

test('one that does not reach the database ends before another one takes over', async () => {
  const one = new Controller('one');
  await clock.pass(STEP_MS);
  const two = new Controller('two');
  await clock.pass(LEASE_MS);
  one.isReached = false;
  for (let at = 0; at < 20 && !two.held; at += 1) {
    expect(one.lostAtMs !== undefined || two.held === undefined).toBe(true);
    await clock.pass(LEASE_MS / 10);
  }
  expect([two.held?.mustAct(), one.reason]).toEqual([2, 'the lease was not renewed in time']);
  expect(one.lostAtMs!).toBeLessThan(clock.now());
});

test('while nobody reaches the database nobody acts; whoever does first goes on', async () => {
  const one = new Controller('one');
  await clock.pass(STEP_MS);
  const two = new Controller('two');
  await clock.pass(LEASE_MS);
  one.isReached = false;
  two.isReached = false;
  await clock.pass(3 * LEASE_MS);
  expect([one.lostAtMs !== undefined, two.held]).toEqual([true, undefined]);
  two.isReached = true;
  await clock.pass(1.2 * LEASE_MS);
  expect(two.held?.mustAct()).toBe(2);
});

test('one that was stopped while another took over learns it from the clock before it does anything', async () => {
  const one = new Controller('one');
  await clock.pass(STEP_MS);
  row.row = HELD_BY_OTHER;
  await clock.pass(2 * TIMES.renewMs);
  expect(one.reason).toBe('another controller has taken over');
});

test('of two that see a lease end at once one gets it', async () => {
  row.row = { ...HELD_BY_OTHER, epoch: 4 };
  const all = ['one', 'two', 'three'].map(name => new Controller(name));
  await clock.pass(1.2 * LEASE_MS);
  expect(all.filter(({ held }) => held !== undefined)).toHaveLength(1);
  expect(row.row.epoch).toBe(5);
});

test('an epoch that nodes have seen is passed by, in a database that was put back', async () => {
  const one = new Controller('one');
  await clock.pass(STEP_MS);
  // by two nodes at once
  one.held?.sawHigher(41);
  one.held?.sawHigher(41);
  await clock.pass(STEP_MS);
  expect([one.held?.mustAct(), row.row.epoch]).toEqual([42, 42]);
  one.held?.sawHigher(7);
  one.held?.sawHigher(999_999_999_999_999);
  await clock.pass(LEASE_MS);
  expect([one.held?.mustAct(), one.lostAtMs]).toEqual([42, undefined]);
});

/** @param away what the one that acts misses */
async function cutOff(away: () => string[]) {
  const one = new Controller('one');
  await clock.pass(STEP_MS);
  const yielded = jest.fn();
  one.held?.watchReach({ away, yields: yielded });
  await clock.pass(LEASE_MS);
  return { one, yielded, table: row.tableOf(() => true) };
}

test('one that does not reach the nodes gives its turn to the one that does', async () => {
  const { one, yielded, table } = await cutOff(() => ['node1:9443']);
  expect(row.row.away).toEqual(['node1:9443']);
  expect(yielded).not.toHaveBeenCalled();
  // stands by before the one with a claim does
  const other = new Controller('three');
  await table.claim({ holder: 'two', name: 'two' }, 1);
  await table.claim({ holder: 'three', name: 'three' }, 1);
  await clock.pass(LEASE_MS);
  expect(yielded).toHaveBeenCalledTimes(1);
  const two = new Controller('two');
  await one.held?.release();
  await clock.pass(2 * TIMES.lookMs);
  expect([two.held?.mustAct(), other.held]).toEqual([2, undefined]);
  expect([row.row.away, row.row.claim]).toEqual([[], null]);
});

test('when the one with a claim is gone by then, another one takes over', async () => {
  const { one, table } = await cutOff(() => ['node1:9443']);
  const other = new Controller('three');
  await table.claim({ holder: 'two', name: 'two' }, 1);
  await clock.pass(LEASE_MS);
  await one.held?.release();
  await clock.pass(LEASE_MS / 2);
  expect(other.held).toBeUndefined();
  await clock.pass(LEASE_MS);
  expect(other.held?.mustAct()).toBe(2);
});

test('a claim to nodes that are back is worth nothing', async () => {
  let away = ['node1:9443'];
  const { one, yielded, table } = await cutOff(() => away);
  away = [];
  await table.claim({ holder: 'two', name: 'two' }, 1);
  await clock.pass(10 * LEASE_MS);
  expect([one.held?.mustAct(), yielded.mock.calls, row.row.claim]).toEqual([1, [], null]);
});
