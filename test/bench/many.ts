/**
 * Eight backups at once on one node: `node test/bench/many.ts [--quick] [--rounds N]`.
 *
 * Against one alone, in alternating rounds: bytes a second of all together, how fair it is between them, the agent's memory, and what a
 * guest feels that is not being backed up: how long it takes until what it wrote is on the disk, as QEMU counts it
 * (`block-latency-histogram-set`), while it writes and flushes all the time.
 */
import { cpSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { MiB } from '@virtkeep/shared/units';
import { AgentAlone } from '../e2e/agent-alone.ts';
import type { Guest } from '../lab/guest.ts';
import { writeQcow2 } from './archive-data.ts';
import { feltRow, type Latency, latencyDuring, latencyTargetsOf, settle, startWriting } from './felt.ts';
import { alternate, type BenchRow, benchOptions, median, peakMiB, printTable } from './lib.ts';

const { quick, rounds, dataMiB } = benchOptions(2);
const imageBytes = dataMiB({ usualMiB: 384, quickMiB: 64, leastMiB: 256 }) * MiB;
const AT_ONCE = 8;
const QUIET_SECONDS = quick ? 3 : 6;
/** How long VMs may wait for a disk, where backups give way. */
const TARGET_MS = 2;
/** Eight guests whose disks hold what system disks hold; they run no system, for it would take the cores. */
async function startGuests(lab: AgentAlone): Promise<Guest[]> {
  const { world } = lab;
  const image = join(world.dir, 'image.qcow2');
  await writeQcow2(image, imageBytes);
  const guests: Guest[] = [];
  for (let number = 1; number <= AT_ONCE; number += 1) {
    const disk = join(world.node.pool(0).path, `many${number}.qcow2`);
    cpSync(image, disk);
    const disks = [{ path: disk, format: 'qcow2' as const }];
    guests.push(await (await world.defineTiny({ name: `many${number}`, idle: true, disks })).start());
  }
  rmSync(image);
  return guests;
}

/** A guest that writes all the time, and is not backed up. */
async function startNeighbour(lab: AgentAlone): Promise<Guest> {
  const guest = await lab.world.defineTiny({ name: 'neighbour', dataDisks: [{ sizeMiB: 64 }] });
  await (await guest.start()).waitForAgent();
  await startWriting(guest);
  return guest;
}

/**
 * Backs these up, all at once.
 * @param targetMs how long VMs may wait for the disks of these pools; 0: as long as it takes
 * @returns when each had ended, ms after the beginning of all
 */
async function backUp(lab: AgentAlone, guests: readonly Guest[], targetMs = 0): Promise<number[]> {
  const latencyTargets = latencyTargetsOf(lab, targetMs);
  const from = performance.now();
  return Promise.all(
    guests.map(async guest => {
      await lab.heard(await lab.startBackup(guest, { latencyTargets }));
      return performance.now() - from;
    }),
  );
}

async function measure(lab: AgentAlone): Promise<BenchRow[]> {
  const guests = await startGuests(lab);
  const neighbour = await startNeighbour(lab);
  const backups = join(lab.world.node.pool(1).path, 'backups');
  const prepare = async () => {
    rmSync(backups, { recursive: true, force: true });
    mkdirSync(backups);
    await settle(neighbour);
  };
  await backUp(lab, guests.slice(0, 1));
  const quiet: Latency[] = [];
  const busy: Latency[] = [];
  const yielding: Latency[] = [];
  const fairness: number[] = [];
  const times = await alternate(rounds, [
    {
      name: 'nothing',
      prepare,
      run: async () => {
        quiet.push(await latencyDuring(neighbour, () => sleep(QUIET_SECONDS * 1000)));
        return undefined;
      },
    },
    {
      name: 'one',
      prepare,
      run: async () => Math.max(...(await backUp(lab, guests.slice(0, 1)))),
    },
    {
      name: 'eight',
      prepare,
      run: async () => {
        let ends: number[] = [];
        const during = async () => {
          ends = await backUp(lab, guests);
        };
        busy.push(await latencyDuring(neighbour, during));
        fairness.push(Math.max(...ends) / Math.min(...ends));
        return Math.max(...ends);
      },
    },
    {
      name: 'eight that give way',
      once: true,
      prepare,
      run: async () => {
        yielding.push(await latencyDuring(neighbour, () => backUp(lab, guests, TARGET_MS)));
        return undefined;
      },
    },
  ]);
  await prepare();
  const [one, eight, slow] = ['one', 'eight', 'eight that give way'].map(name =>
    median(times.get(name)!),
  ) as [number, number, number];
  const felt = (how: string, found: readonly Latency[]) =>
    feltRow(`p99 of a neighbour's flushes, during / before: ${how}`, found, quiet);
  return [
    {
      name: 'throughput of eight together / of one alone',
      value: (AT_ONCE * one) / eight,
      unit: '×',
      sense: 'at least',
      target: 0.95,
      note: `${eight.toFixed(0)} ms against ${one.toFixed(0)} ms`,
    },
    { name: 'the last to end / the first', value: median(fairness), unit: '×', target: 1.25 },
    {
      name: 'peak memory of the agent',
      value: peakMiB(lab.agent.daemon.pid!),
      unit: 'MiB',
      target: 200 + 40 * AT_ONCE,
    },
    felt('as fast as they can', busy),
    { ...felt(`with a target of ${TARGET_MS} ms`, yielding), target: 1.5 },
    { name: 'time of eight that give way', value: slow / eight, unit: '× that of eight' },
  ];
}

async function main(): Promise<boolean> {
  const lab = await AgentAlone.start({ limits: { concurrent_operations: AT_ONCE } });
  try {
    const rows = await measure(lab);
    const title = `eight backups at once, ${imageBytes / MiB} MiB of data each, median of ${rounds} alternating rounds; those that give way, in one of them`;
    return printTable(title, rows);
  } finally {
    await lab.stop();
  }
}

process.exitCode = (await main()) ? 0 : 1;
