/**
 * What a running guest feels of its own backups: `node test/bench/guest-feels.ts [--quick] [--rounds N]`.
 *
 * A guest that writes and flushes all the time, before, during and after a full backup and an increment with a merge: how long its flushes
 * take, how many there are, and how long its file systems are frozen beyond what the guest's agent needs to freeze and thaw them.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { AgentAlone, fileOf } from '../e2e/agent-alone.ts';
import { makeDataDisk } from '../lab/disks.ts';
import type { Guest } from '../lab/guest.ts';
import { writeQcow2 } from './archive-data.ts';
import {
  feltRow,
  type Latency,
  latencyDuring,
  latencyTargetsOf,
  longestGapMs,
  onAllCores,
  settle,
  startWriting,
} from './felt.ts';
import { CHANGE_MIB, changeDisk, QUICK_CHANGE_MIB } from './guest-change.ts';
import { alternate, type BenchCase, type BenchRow, benchOptions, median, printTable } from './lib.ts';

const { quick, rounds, dataMiB } = benchOptions(2);
const imageBytes = dataMiB({ usualMiB: 1024, quickMiB: 256 }) * MiB;
const changeMiB = quick ? QUICK_CHANGE_MIB : CHANGE_MIB;
const QUIET_MS = quick ? 3_000 : 5_000;
/** Enough writes to tell a gap in them. */
const GAP_MS = 2_500;
/** How long VMs may wait for a disk, where backups give way. */
const TARGET_MS = 2;
/** Increments until each further one merges the oldest state (the current one and two before it stay). */
const UNTIL_MERGE = 3;

/** The guest's first disk is the one that it writes to, the second what there is to back up. */
async function startGuest({ world }: AgentAlone): Promise<Guest> {
  const { path } = world.node.pool(0);
  const [written, full] = [join(path, 'written.qcow2'), join(path, 'full.qcow2')];
  await makeDataDisk(written, { sizeMiB: 64 });
  await writeQcow2(full, imageBytes);
  const disks = [written, full].map(disk => ({ path: disk, format: 'qcow2' as const }));
  const guest = await world.defineTiny({ name: 'felt', disks });
  await (await guest.start()).waitForAgent();
  await startWriting(guest);
  return guest;
}

const change = (guest: Guest): Promise<void> =>
  changeDisk(guest, { device: '/dev/vdb', diskMiB: imageBytes / MiB, changeMiB });

class Backups {
  readonly #lab: AgentAlone;
  readonly #guest: Guest;
  #archive: { id: string; filename: string } | undefined;
  #last: string | undefined;

  constructor(lab: AgentAlone, guest: Guest) {
    this.#lab = lab;
    this.#guest = guest;
  }

  /** A full backup, whose saved state is merged at its end. */
  async full(targetMs: number): Promise<void> {
    this.#last = (await this.#made(targetMs, { requireConsistency: true })).path;
  }

  /** Removes the last full backup. */
  removeFull(): void {
    if (this.#last !== undefined) rmSync(this.#last, { force: true });
  }

  /** Makes the archive that grows, with as many increments as it takes until each further one merges a state. */
  async begin(): Promise<void> {
    this.#archive = await this.#made(0, { canBeIncremental: true });
    for (let number = 0; number < UNTIL_MERGE; number += 1) {
      await change(this.#guest);
      await this.#extend(0);
    }
  }

  /** An increment of the one archive that grows. @throws Error unless it merges a state */
  async increment(targetMs: number): Promise<void> {
    const before = await this.#guest.snapshots();
    await this.#extend(targetMs);
    const after = await this.#guest.snapshots();
    if (after.length !== before.length)
      throw new Error(`it had ${before.length} states, now ${after.length}`);
  }

  async #extend(targetMs: number): Promise<void> {
    const { id, filename } = this.#archive!;
    const extend = { poolId: this.#lab.world.node.pool(1).uuid, filename };
    await this.#made(targetMs, { extend, extendFileId: id, requireConsistency: true });
  }

  async #made(targetMs: number, request: object) {
    const latencyTargets = latencyTargetsOf(this.#lab, targetMs);
    const started = await this.#lab.startBackup(this.#guest, { fileId: newId(), latencyTargets, ...request });
    return fileOf(await this.#lab.heard(started)) as { id: string; filename: string; path: string };
  }
}

/** What was felt of one kind of backup. */
class Felt {
  readonly during: Latency[] = [];
  readonly gapsMs: number[] = [];

  /** @returns how long the work took, ms */
  async feel(guest: Guest, work: () => Promise<unknown>): Promise<number> {
    let elapsed = 0;
    const timed = async () => {
      const start = performance.now();
      await work();
      elapsed = performance.now() - start;
    };
    const felt = async () => void this.during.push(await latencyDuring(guest, timed));
    this.gapsMs.push(await longestGapMs(guest, felt));
    return elapsed;
  }
}

async function measure(lab: AgentAlone): Promise<BenchRow[]> {
  const guest = await startGuest(lab);
  const backups = new Backups(lab, guest);
  const quiet = async () => {
    backups.removeFull();
    await settle(guest);
  };
  const changed = async () => {
    await change(guest);
    await quiet();
  };
  const felts = new Map<string, Felt>();
  const case_ = (name: string, prepare: () => Promise<void> | void, work: () => Promise<unknown>) => {
    const felt = new Felt();
    felts.set(name, felt);
    return { name, prepare, run: () => felt.feel(guest, work) };
  };
  const once = (one: BenchCase) => ({ ...one, once: true });
  const nothing = () => sleep(QUIET_MS);
  const computing = () => onAllCores(QUIET_MS);
  const freezing = () => guest.node.virsh(`domfsfreeze ${guest.name}; domfsthaw ${guest.name}`);
  await backups.begin();
  const times = await alternate(rounds, [
    case_('before', quiet, nothing),
    case_('frozen by hand', quiet, async () => {
      await freezing();
      await sleep(GAP_MS);
    }),
    once(case_('cores busy with something else', quiet, computing)),
    once(case_('full', quiet, () => backups.full(0))),
    case_('full that gives way', quiet, () => backups.full(TARGET_MS)),
    once(case_('increment', changed, () => backups.increment(0))),
    case_('increment that gives way', changed, () => backups.increment(TARGET_MS)),
    once(case_('after', () => {}, nothing)),
  ]);
  const of = (name: string) => felts.get(name)!;
  const latency = (name: string, target?: number): BenchRow => ({
    ...feltRow(`p99 of its flushes, ${name} / before`, of(name).during, of('before').during),
    ...(target !== undefined && { target }),
  });
  const byHand = median(of('frozen by hand').gapsMs);
  // of all rounds: one long freeze is one too many
  const frozen = (name: string): BenchRow => {
    const gap = Math.max(...of(name).gapsMs);
    const note = `longest without a write ${gap.toFixed(0)} ms; frozen and thawed by hand ${byHand.toFixed(0)} ms`;
    return {
      name: `frozen beyond freeze and thaw, ${name}`,
      value: gap - byHand,
      unit: 'ms',
      target: 300,
      note,
    };
  };
  const longer = (name: string): BenchRow => {
    const [slow, fast] = [`${name} that gives way`, name].map(one => median(times.get(one)!)) as [
      number,
      number,
    ];
    const note = `${slow.toFixed(0)} ms against ${fast.toFixed(0)} ms`;
    return { name: `time of the ${name} that gives way`, value: slow / fast, unit: '×', note };
  };
  return [
    // an emulated guest and all that serves its disk share the cores with whatever computes: less than this no backup can reach here
    latency('cores busy with something else'),
    latency('full'),
    latency('full that gives way', 1.5),
    latency('increment'),
    latency('increment that gives way', 1.5),
    latency('after'),
    frozen('full'),
    frozen('full that gives way'),
    frozen('increment'),
    frozen('increment that gives way'),
    longer('full'),
    longer('increment'),
  ];
}

async function main(): Promise<boolean> {
  const lab = await AgentAlone.start();
  try {
    const rows = await measure(lab);
    const title = `what a guest feels, VM of ${imageBytes / MiB} MiB, increments of ${changeMiB} MiB, target ${TARGET_MS} ms, median of ${rounds} alternating rounds; what does not give way, in one of them`;
    return printTable(title, rows);
  } finally {
    await lab.stop();
  }
}

process.exitCode = (await main()) ? 0 : 1;
