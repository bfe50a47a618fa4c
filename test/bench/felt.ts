/**
 * What a guest feels of its disk while other things happen: how long it takes until what it wrote is on the disk, as QEMU counts it
 * (`block-latency-histogram-set`), and the longest time in which it wrote nothing, by its own clock.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AgentAlone } from '../e2e/agent-alone.ts';
import type { Guest } from '../lab/guest.ts';
import { type BenchRow, command, median, quietDisks } from './lib.ts';

/** Of its flushes: its writes wait in memory for them. */
export interface Latency {
  flushes: number;
  /** How many ended in a second. */
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
}

/** Each write is on the disk before the next. */
const WRITE = 'bs=65536 count=1 conv=notrunc,fsync';
/** On the guest's first disk, while it exists. */
const STEADY = '/mnt/vda/steady';
/** The number of a round of measuring, and that number with the longest gap of the round, in hundredths of a second. */
const ROUND = '/tmp/round';
const GAP = '/tmp/gap';
/** Where the classes of the histogram begin, ns: each a tenth longer than the one before, up to ten seconds. */
const CLASSES = Array.from({ length: 145 }, (_, index) => Math.round(10_000 * 1.1 ** index));
/** Fewer say nothing. */
const FEWEST_FLUSHES = 50;
/** The guest's first disk. */
const DEVICE = '/machine/peripheral/virtio-disk0/virtio-backend';

/** Lets a running guest write all the time to its first disk, which it has mounted. */
export async function startWriting(guest: Guest): Promise<void> {
  await guest.sh(`dd if=/dev/zero of=${STEADY} bs=65536 count=16 conv=fsync 2>/dev/null`);
  const clock = "IFS=' .' read seconds part _ </proc/uptime; now=$seconds$part";
  const loop = `n=0; gap=0; seen=0; ${clock}; last=$now; while [ -e ${STEADY} ]; do
    dd if=/dev/zero of=${STEADY} seek=$n ${WRITE} 2>/dev/null; n=$(( (n + 1) % 16 ))
    ${clock}; [ $(( now - last )) -gt $gap ] && gap=$(( now - last )); last=$now
    read round <${ROUND}; [ $round = $seen ] || { seen=$round; gap=0; }
    echo $seen $gap >${GAP}; done`;
  await guest.sh(`echo 0 >${ROUND}; ( ${loop} ) >/dev/null 2>&1 </dev/null &`);
}

let rounds = 0;

/** Between the ends of two writes in a row, ms, during the work. */
export async function longestGapMs(guest: Guest, work: () => Promise<unknown>): Promise<number> {
  rounds += 1;
  const told = `while read round gap <${GAP}; [ "$round" != ${rounds} ]; do sleep 0.05; done`;
  await guest.sh(`echo ${rounds} >${ROUND}; ${told}`);
  await work();
  return Number(await guest.sh(`${told}; echo $gap`)) * 10;
}

/**
 * Waits until the disks are quiet, meanwhile the guest stands still: what it writes all the time would keep them busy. Its own clock stands
 * still as well.
 */
export async function settle(guest: Guest): Promise<void> {
  await guest.node.virsh('suspend', guest.name);
  try {
    await command('sync', []);
    await quietDisks();
  } finally {
    await guest.node.virsh('resume', guest.name);
  }
}

const BUSY = 'while :; do :; done';

/** Keeps every core busy for so long, with what needs no disk. */
export async function onAllCores(durationMs: number): Promise<void> {
  const busy = Array.from({ length: availableParallelism() }, () => spawn('sh', ['-c', BUSY]));
  await sleep(durationMs);
  for (const one of busy) one.kill('SIGKILL');
}

/** How long VMs may wait for a disk of any pool, as a backup is told; 0: as long as it takes. */
export const latencyTargetsOf = ({ world }: AgentAlone, targetMs: number) =>
  targetMs > 0 ? world.node.pools.map(({ uuid: poolId }) => ({ poolId, targetMs })) : [];

/** How long the guest's flushes took during the work. @throws Error when it has hardly written */
export async function latencyDuring(guest: Guest, work: () => Promise<unknown>): Promise<Latency> {
  await monitor(guest, 'block-latency-histogram-set', { id: DEVICE, 'boundaries-flush': CLASSES });
  const start = performance.now();
  await work();
  const seconds = (performance.now() - start) / 1000;
  type Histogram = { bins: number[] };
  type Stats = { qdev?: string; stats: { flush_latency_histogram?: Histogram } };
  const devices = await monitor<Stats[]>(guest, 'query-blockstats', {});
  const bins = devices.flatMap(({ stats }) => stats.flush_latency_histogram?.bins ?? []);
  const flushes = bins.reduce((sum, count) => sum + count, 0);
  if (flushes < FEWEST_FLUSHES)
    throw new Error(`${guest.name} has made ${flushes} flushes: it does not write`);
  const quantile = (share: number) => {
    let seen = 0;
    const index = bins.findIndex(count => {
      seen += count;
      return seen >= share * flushes;
    });
    return (CLASSES[Math.min(index, CLASSES.length - 1)] ?? Number.POSITIVE_INFINITY) / 1e6;
  };
  return { flushes, perSecond: flushes / seconds, p50Ms: quantile(0.5), p99Ms: quantile(0.99) };
}

/** Medians of rounds, against those of a time in which nothing else happened. */
export function feltRow(name: string, found: readonly Latency[], quiet: readonly Latency[]): BenchRow {
  const [now, before] = [found, quiet].map(
    all => (what: keyof Latency) => median(all.map(one => one[what])),
  ) as [(what: keyof Latency) => number, (what: keyof Latency) => number];
  const pair = (what: keyof Latency, digits = 1) =>
    `${now(what).toFixed(digits)} against ${before(what).toFixed(digits)}`;
  return {
    name,
    value: now('p99Ms') / before('p99Ms'),
    unit: '×',
    note: `p99 ${pair('p99Ms')} ms, p50 ${pair('p50Ms')} ms, ${pair('perSecond', 0)} flushes a second`,
  };
}

async function monitor<T>(guest: Guest, execute: string, args: object): Promise<T> {
  const request = JSON.stringify({ execute, arguments: args });
  const answer = await guest.node.virsh('qemu-monitor-command', guest.name, request);
  return (JSON.parse(answer) as { return: T }).return;
}
