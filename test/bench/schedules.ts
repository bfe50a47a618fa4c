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

/** How long it took, and what of that this process was at work: others share the machine. */
interface Spent {
  ms: number;
  cpuMs: number;
}

async function spent(work: () => Promise<void>): Promise<Spent> {
  const [from, cpuFrom] = [performance.now(), process.cpuUsage()];
  await work();
  const { user, system } = process.cpuUsage(cpuFrom);
  return { ms: performance.now() - from, cpuMs: (user + system) / 1000 };
}

/** The middle one of some times. */
async function medianSpent(times: number, work: (time: number) => Promise<void>): Promise<Spent> {
  const all: Spent[] = [];
  for (let time = 0; time < times; time += 1) all.push(await spent(() => work(time)));
  return { ms: median(all.map(({ ms }) => ms)), cpuMs: median(all.map(({ cpuMs }) => cpuMs)) };
}

const ticksOf = (world: ScheduleWorld, from: number): Promise<Spent> =>
  medianSpent(TICKS, time => world.tick(from + time * 10_000));

/** One that runs ends, with all that follows from it. */
async function endOne(world: ScheduleWorld, number: number): Promise<void> {
  await world.tasks.finish(world.begun[number]!.taskId, { status: 'SUCCESS' });
  await world.scheduler.settled();
}

function planTime(): Promise<Spent> {
  const files: RetentionFile[] = Array.from({ length: FILES }, (_, number) => ({
    id: `f${number}`,
    domainId: `vm${number % (FILES / 100)}`,
    newest: START - number * 600_000,
    newestWhole: START - number * 600_000,
    isGood: number % 50 > 0,
    isProtected: number % 70 === 0,
    isRead: false,
    isBusy: false,
    isExtendable: false,
    size: 1,
  }));
  const keep = { last: 3, hourly: 5, daily: 13, weekly: 8, monthly: 11, yearly: 9 };
  const rules = { keepCount: null, limitDays: 900, keep, timeZone: 'Europe/Berlin' };
  return medianSpent(ROUNDS, async () => void planRetention(files, rules, START));
}

const plan = await planTime();
const world = await ScheduleWorld.open(new Date(START).toISOString());
world.vms.splice(1);
world.limits = { perNode: AT_ONCE, perPool: 0 };
await fill(world);
await world.restart();
const before = used();
const idle = await ticksOf(world, START);
const grownMiB = used() - before;

const due = await spent(() => world.tick(DUE));
const runs = await world.store.running();
const taken = world.scheduler.queue().length + world.begun.length;
const dueMiB = used() - before;
const { length: queued } = world.scheduler.queue();
const waiting = await ticksOf(world, DUE + 10_000);
const ends = await medianSpent(TICKS, time => endOne(world, time));
const ofCpu = ({ cpuMs }: Spent) => `${cpuMs.toFixed(1)} ms of CPU`;

const rows: BenchRow[] = [
  {
    name: 'a tick, nothing due',
    value: idle.ms,
    unit: 'ms',
    target: 50,
    note: `${TASKS} tasks, ${ofCpu(idle)}`,
  },
  { name: 'growth by the ticks', value: grownMiB, unit: 'MiB', target: 50 },
  { name: 'all due at once: taken', value: taken, unit: '', target: TASKS, sense: 'at least' },
  { name: 'with a run each', value: runs.length, unit: '', target: TASKS, sense: 'at least' },
  {
    name: 'within',
    value: due.ms / 1000,
    unit: 's',
    target: 60,
    note: `${AT_ONCE} begun, the others queued`,
  },
  { name: 'of CPU', value: due.cpuMs / 1000, unit: 's', target: 20 },
  {
    name: 'a tick while they wait',
    value: waiting.ms,
    unit: 'ms',
    target: 50,
    note: `${queued} parts, ${ofCpu(waiting)}`,
  },
  { name: 'one ends, another begins', value: ends.ms, unit: 'ms', note: ofCpu(ends) },
  { name: 'growth with all of them open', value: dueMiB, unit: 'MiB', target: 50 },
  {
    name: `a retention plan over ${FILES} files`,
    value: plan.ms,
    unit: 'ms',
    target: 200,
    note: ofCpu(plan),
  },
];
if (!printTable(`${TASKS} scheduled tasks`, rows)) process.exitCode = 1;
await world.close();
