/**
 * Whether a controller's memory stays as it is: `NODES=100 VMS=100 HOURS=24 node test/scale/day.ts`. What a day brings comes in minutes, an
 * hour's work after the other: every VM changes, a tenth of the nodes are lost and come back, each VM is backed up once a day, people log in,
 * look at lists and records, and listen. After each hour, when nothing is left to do, the memory is measured; 1 is the exit code when after
 * the last it is a tenth more than it was after the first. What a clock alone brings (old records are forgotten) is not hastened.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type BenchRow, printTable } from '../bench/lib.ts';
import { idOf } from './seeded.ts';
import { ScaleWorld } from './world.ts';

const numberOf = (name: string, otherwise: number): number => Number(process.env[name] || otherwise);
const size = { nodes: numberOf('NODES', 100), vms: numberOf('VMS', 100) };
const HOURS = Math.max(2, numberOf('HOURS', 24));
const HOURS_OF_DAY = 24;
const CHANGE_SECONDS = 10;
const LISTENERS = 20;
const LOGINS = 20;
const PACE = { steps: 2, stepMs: 100 };
/** In per cent: how memory is cut into pages and classes of sizes differs from one hour to the next. */
const MAY_GROW = 10;
const MiB = 2 ** 20;
const LISTS = [
  '/api/domains/?limit=100&ordering=-modified',
  '/api/domains/?limit=100&name=99',
  '/api/vdisks/?limit=100&ordering=size',
  '/api/nodes/?limit=100&ordering=last_seen',
  '/api/data-pools/?limit=100',
  '/api/library/?limit=100&ordering=-created',
  '/api/tasks/?limit=100&ordering=-created',
  '/api/events/?limit=100',
  '/api/protection/?limit=100',
  '/api/overview/',
];

const world = new ScaleWorld(size);
const domains = Array.from({ length: size.nodes * size.vms }, (_, index) =>
  idOf('domain', index % size.nodes, Math.floor(index / size.nodes)),
);

/** The work of an hour of the day. */
async function pass(hour: number): Promise<void> {
  const ends = Array.from({ length: LISTENERS }, () => world.listen());
  const perSecond = Math.ceil(domains.length / world.children.length / CHANGE_SECONDS);
  await world.tellAgents({ do: 'churn', perSecond, seconds: CHANGE_SECONDS });
  await world.tellAgents({ do: 'reconnect', oneOf: 10, turn: hour });
  await world.untilComplete();
  await world.startBackups(domains.filter((_, index) => index % HOURS_OF_DAY === hour % HOURS_OF_DAY));
  for (const path of LISTS) await world.get(path);
  for (let record = 0; record < size.nodes; record += 1)
    await world.get(`/api/domains/${idOf('domain', record, hour % size.vms)}/`);
  for (let login = 0; login < LOGINS; login += 1) await world.controller.admin();
  await world.untilIdle();
  for (const end of ends) end();
  await world.untilQuiet();
}

async function run(rows: BenchRow[]): Promise<void> {
  await world.makeController();
  await world.startController();
  await world.enrol();
  await world.controller.daemon.stop();
  await world.tellAgents({ do: 'listen' });
  await world.startController();
  await world.untilComplete();
  await world.tellAgents({ do: 'pace', pace: PACE });
  const kept: { heap: number; rss: number }[] = [];
  for (let hour = 0; hour < HOURS; hour += 1) {
    await pass(hour);
    // connections that were ended are forgotten a little later
    await sleep(5000);
    const { heapBytes, rssBytes } = await world.keptMemory();
    kept.push({ heap: heapBytes / MiB, rss: rssBytes / MiB });
    process.stderr.write(
      `hour ${hour + 1}: heap ${kept.at(-1)!.heap.toFixed(1)}, all ${kept.at(-1)!.rss.toFixed(1)} MiB\n`,
    );
  }
  for (const kind of ['heap', 'rss'] as const) {
    const [first, last] = [kept[0]![kind], kept.at(-1)![kind]];
    rows.push({ name: `${kind}: after the first hour`, value: first, unit: 'MiB' });
    rows.push({ name: `${kind}: after the last`, value: last, unit: 'MiB' });
    rows.push({
      name: `${kind}: growth`,
      value: (100 * (last - first)) / first,
      unit: '%',
      target: MAY_GROW,
    });
  }
  rows.push({
    name: 'tasks that failed',
    value: await world.count('/api/tasks/?status=FAILED'),
    unit: '',
    target: 0,
  });
}

const rows: BenchRow[] = [];
let isGood = false;
try {
  await run(rows);
  isGood = printTable(`${HOURS} hours of ${size.nodes} nodes with ${size.vms} VMs each`, rows);
} catch (error) {
  console.error(error);
  console.error(world.controller?.daemon.log().slice(-4000));
} finally {
  if (!process.env.KEEP) await world.end();
}
process.exit(isGood ? 0 : 1);
