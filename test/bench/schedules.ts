/**
 * What scheduled tasks cost: a tick with many of them of which none is due, the memory that this takes, all of them due in one minute, and
 * a retention plan over many files. Backups are scripted steps that end at once or never. `node test/bench/schedules.ts [--quick]`
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { planRetention, type RetentionFile } from '../../controller/src/services/retention/plan.ts';
import { ScheduleWorld } from '../../controller/src/services/schedules/test-kit.ts';
import { type BenchRow, benchOptions, median, printTable } from './lib.ts';

const { quick } = benchOptions();
const TASKS = quick ? 1000 : 10_000;
const FILES = quick ? 10_000 : 100_000;
const TICKS = 20;
const ROUNDS = 5;
const AT_ONCE = 100;
const HOUR_MS = 3_600_000;
const MIB = 2 ** 20;
const START = Date.parse('2026-03-01T00:00:00Z');
const DUE = START + HOUR_MS;
const ZONES = ['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Kathmandu', 'Australia/Lord_Howe'];

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** All due at the same instant. */
async function fill(world: ScheduleWorld): Promise<void> {
  for (let number = 0; number < TASKS; number += 1)
    await world.add({
      verbose_name: `task ${number}`,
      time_zone: ZONES[number % ZONES.length]!,
      start_date: new Date(DUE).toISOString(),
    });
}

/** Without the database, which is not in memory elsewhere. */
function used(): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / MIB;
}

async function ticksOf(world: ScheduleWorld): Promise<number> {
  const times: number[] = [];
  for (let tick = 0; tick < TICKS; tick += 1) {
    const from = performance.now();
    await world.tick(START + tick * 10_000);
    times.push(performance.now() - from);
  }
  return median(times);
}

function planTime(): number {
  const files: RetentionFile[] = Array.from({ length: FILES }, (_, number) => ({
    id: `f${number}`,
    domainId: `vm${number % (FILES / 100)}`,
    newest: START - number * 600_000,
    isGood: number % 50 > 0,
    isProtected: number % 70 === 0,
    isRead: false,
    isBusy: false,
    isExtendable: false,
    size: 1,
  }));
  const keep = { last: 3, hourly: 5, daily: 13, weekly: 8, monthly: 11, yearly: 9 };
  const rules = { keepCount: null, limitDays: 900, keep, timeZone: 'Europe/Berlin' };
  const times = Array.from({ length: ROUNDS }, () => {
    const from = performance.now();
    planRetention(files, rules, START);
    return performance.now() - from;
  });
  return median(times);
}

const planMs = planTime();
const world = await ScheduleWorld.open(new Date(START).toISOString());
world.vms.splice(1);
world.limits = { perNode: AT_ONCE, perPool: 0 };
await fill(world);
await world.restart();
const before = used();
const tickMs = await ticksOf(world);
const grownMiB = used() - before;

const from = performance.now();
await world.tick(DUE);
const dueMs = performance.now() - from;
const runs = await world.store.running();
const taken = world.scheduler.queue().length + world.begun.length;
const dueMiB = used() - before;
const againFrom = performance.now();
await world.tick(DUE + 10_000);
const againMs = performance.now() - againFrom;

const rows: BenchRow[] = [
  { name: 'a tick, nothing due', value: tickMs, unit: 'ms', target: 50, note: `${TASKS} tasks` },
  { name: 'growth by the ticks', value: grownMiB, unit: 'MiB', target: 50 },
  { name: 'all due at once: taken', value: taken, unit: '', target: TASKS, sense: 'at least' },
  { name: 'with a run each', value: runs.length, unit: '', target: TASKS, sense: 'at least' },
  { name: 'within', value: dueMs / 1000, unit: 's', target: 60, note: `${AT_ONCE} begun, the others queued` },
  { name: 'a tick while they wait', value: againMs, unit: 'ms' },
  { name: 'growth with all of them open', value: dueMiB, unit: 'MiB', target: 50 },
  { name: `a retention plan over ${FILES} files`, value: planMs, unit: 'ms', target: 200 },
];
if (!printTable(`${TASKS} scheduled tasks`, rows)) process.exitCode = 1;
await world.close();
