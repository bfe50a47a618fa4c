/**
 * What one controller takes: `NODES=1000 VMS=100 node test/scale/scale.ts`. Simulated agents are connected to it over the real protocol, and
 * what it costs is printed beside what it may cost; 1 is the exit code when it costs more. Processor time per request holds on any machine,
 * times hold on one that does nothing else. TASKS: how many old tasks there are for the second half; KEEP=1 leaves the directory.
 */

import { readFileSync } from 'node:fs';
import { get as httpsGet } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDatabase } from '../../controller/src/store/database.ts';
import { type BenchRow, printTable } from '../bench/lib.ts';
import { DISKS, idOf } from './seeded.ts';
import { ScaleWorld } from './world.ts';

const numberOf = (name: string, otherwise: number): number => Number(process.env[name] || otherwise);
const size = { nodes: numberOf('NODES', 100), vms: numberOf('VMS', 100) };
const OLD_TASKS = numberOf('TASKS', 100_000);
const REQUESTS = 40;
const LISTENERS = 20;
const CHURN_SECONDS = 20;
const BACKUPS = Math.min(1000, size.nodes * size.vms);
const BACKUPS_AFTER = Math.min(200, BACKUPS);
const IDLE_SECONDS = 10;
const PACE = { steps: 8, stepMs: 500 };
const GiB = 2 ** 30;

const world = new ScaleWorld(size);
const rows: BenchRow[] = [];
interface Limit {
  target?: number | undefined;
  note?: string;
}

function row(name: string, value: number, unit: string, { target, note }: Limit = {}): void {
  rows.push({
    name,
    value,
    unit,
    ...(target !== undefined && { target }),
    ...(note !== undefined && { note }),
  });
  process.stderr.write(`${name}: ${value.toFixed(2)} ${unit}\n`);
}

/** Processor time of the controller for one of these requests, ms. */
async function cpuPer(path: (round: number) => string, requests = REQUESTS): Promise<number> {
  await world.get(path(0));
  const from = world.cpuMs();
  for (let round = 0; round < requests; round += 1) await world.get(path(round));
  return (world.cpuMs() - from) / requests;
}

async function measureStart(name: string, limits: { listening: number; complete: number }): Promise<void> {
  const before = await world.losses().catch(() => 0);
  const from = performance.now();
  row(`${name}: until it listens`, (await world.startController()) / 1000, 's', { target: limits.listening });
  await world.untilComplete();
  row(`${name}: until all are connected and known`, (performance.now() - from) / 1000, 's', {
    target: limits.complete,
  });
  // what follows the connection: scans whose results are as they were known
  await world.untilQuiet();
  const { worstDelayMs, rssBytes } = await world.measured();
  row(`${name}: worst delay of the event loop`, worstDelayMs, 'ms', { target: 250 });
  row(`${name}: memory`, rssBytes / GiB, 'GiB', { target: 1 });
  row(`${name}: nodes lost`, (await world.losses()) - before, '', { target: 0 });
}

async function measureLists(): Promise<void> {
  const domains = size.nodes * size.vms;
  const lists: [string, string, number][] = [
    ...[
      'verbose_name',
      '-verbose_name',
      'created',
      '-modified',
      'status',
      'user_power_state',
      'memory_count',
      '-cpu_count',
    ].map((order): [string, string, number] => [
      `domains by ${order}`,
      `/api/domains/?limit=100&ordering=${order}`,
      domains - 100,
    ]),
    ['domains, in full', '/api/domains/?limit=100&all_content=1', domains - 100],
    ['domains called …99…', '/api/domains/?limit=100&name=99', 0],
    ['domains that are templates', '/api/domains/?limit=100&template=true', 0],
    ['domains that are off', '/api/domains/?limit=100&user_power_state=1', 0],
    ['domains of a node', `/api/domains/?limit=100&node=${idOf('node', 0)}`, 0],
    ['domains never protected', '/api/domains/?limit=100&protection=never', 0],
    ...['verbose_name', 'size', '-used', 'status', 'domain', 'datapool'].map(
      (order): [string, string, number] => [
        `vdisks by ${order}`,
        `/api/vdisks/?limit=100&ordering=${order}`,
        domains * DISKS - 100,
      ],
    ),
    ['vdisks of a pool', `/api/vdisks/?limit=100&datapool=${idOf('pool', 0)}`, 0],
    ...['verbose_name', 'status', '-domains_count', 'last_seen'].map((order): [string, string, number] => [
      `nodes by ${order}`,
      `/api/nodes/?limit=100&ordering=${order}`,
      Math.max(0, size.nodes - 100),
    ]),
    ...['verbose_name', '-file_count', 'free_space'].map((order): [string, string, number] => [
      `data pools by ${order}`,
      `/api/data-pools/?limit=100&ordering=${order}`,
      0,
    ]),
    ...['-created', 'filename', '-size', 'status', 'type'].map((order): [string, string, number] => [
      `files by ${order}`,
      `/api/library/?limit=100&ordering=${order}`,
      domains * 3 - 100,
    ]),
    ['files of a pool', `/api/library/?limit=100&datapool=${idOf('pool', 0)}`, 0],
    ['files that can be extended', '/api/library/?limit=100&can_be_incremental=true', 0],
    ['protection of all', '/api/protection/?limit=100', 0],
    ['overview', '/api/overview/', 0],
  ];
  for (const [name, path, last] of lists) {
    const offsets = [0, Math.floor(last / 2), last];
    const value = await cpuPer(round =>
      last > 0 ? `${path}&offset=${offsets[round % offsets.length]}` : path,
    );
    row(name, value, 'ms', { target: 10 });
  }
  const any = (kind: 'domain' | 'disk' | 'node' | 'pool' | 'file') => (round: number) =>
    idOf(kind, round % size.nodes, kind === 'node' || kind === 'pool' ? 0 : round % size.vms);
  for (const [name, path, kind] of [
    ['one domain', '/api/domains/', 'domain'],
    ['one vdisk', '/api/vdisks/', 'disk'],
    ['one node', '/api/nodes/', 'node'],
    ['one data pool', '/api/data-pools/', 'pool'],
    ['one file', '/api/library/', 'file'],
  ] as const)
    row(name, await cpuPer(round => `${path}${any(kind)(round)}/`, 200), 'ms', { target: 1 });
}

async function measureChurn(): Promise<void> {
  const changes = new Map<string, number>();
  const arrived = new Map<string, number>();
  world.changed = told => {
    for (const [domain, description, atMs] of told) changes.set(`${domain} ${description}`, atMs);
  };
  // one of them is read: each costs this process as much as the controller
  const others = Array.from({ length: LISTENERS - 1 }, () => world.listen());
  const ends = [
    ...others,
    world.listen((domain, description) => arrived.set(`${domain} ${description}`, Date.now())),
  ];
  await sleep(1000);
  world.measureAnew();
  const perSecond = Math.max(1, Math.floor((size.nodes * size.vms) / 100 / world.children.length));
  const cpuFrom = world.cpuMs();
  const from = performance.now();
  await world.tellAgents({ do: 'churn', perSecond, seconds: CHURN_SECONDS });
  const tookMs = performance.now() - from;
  const cpu = world.cpuMs() - cpuFrom;
  await sleep(2000);
  for (const end of ends) end();
  world.changed = () => {};
  const lags = [...arrived]
    .flatMap(([key, atMs]) => (changes.has(key) ? [atMs - changes.get(key)!] : []))
    .sort((a, b) => a - b);
  row('churn of 1 % a second: processor', (100 * cpu) / tookMs, '%', {
    target: 40,
    note: `${changes.size} changes, ${lags.length} heard`,
  });
  row(
    'churn: lag of the stream, p99',
    lags[Math.floor(lags.length * 0.99)] ?? Number.POSITIVE_INFINITY,
    'ms',
    { target: 100 },
  );
  row('churn: worst delay of the event loop', (await world.measured()).worstDelayMs, 'ms', { target: 250 });
}

async function measureBackups(name: string, count: number): Promise<void> {
  await world.tellAgents({ do: 'pace', pace: PACE });
  const failedBefore = await world.count('/api/tasks/?status=FAILED');
  world.measureAnew();
  const domains = Array.from({ length: count }, (_, index) =>
    idOf('domain', index % size.nodes, 1 + (Math.floor(index / size.nodes) % Math.max(1, size.vms - 1))),
  );
  const cpuFrom = world.cpuMs();
  const from = performance.now();
  const started = await world.startBackups(domains);
  const startedMs = performance.now() - from;
  row(`${name}: until all are started`, startedMs / 1000, 's', {
    target: (10 * started) / 1000,
    note: `${started} backups`,
  });
  row(`${name}: processor for the start of each`, (world.cpuMs() - cpuFrom) / started, 'ms', { target: 10 });
  await world.untilIdle();
  row(`${name}: processor for each until its end`, (world.cpuMs() - cpuFrom) / started, 'ms');
  row(`${name}: worst delay of the event loop`, (await world.measured()).worstDelayMs, 'ms', { target: 250 });
  const failed = (await world.count('/api/tasks/?status=FAILED')) - failedBefore;
  row(`${name}: tasks that failed`, failed, '', { target: 0 });
}

async function addOldTasks(): Promise<void> {
  const db = await openDatabase({ kind: 'sqlite', path: world.databaseFile });
  const AT_ONCE = 500;
  const user = await db.selectFrom('users').selectAll().executeTakeFirstOrThrow();
  for (let from = 0; from < OLD_TASKS; from += AT_ONCE) {
    const numbers = Array.from({ length: Math.min(AT_ONCE, OLD_TASKS - from) }, (_, index) => from + index);
    const time = (number: number) => new Date(Date.now() - 86_400_000 - number * 1000).toISOString();
    const old = (number: number) => `00000009-0000-4000-8000-${String(number).padStart(12, '0')}`;
    await db.transaction().execute(async trx => {
      await trx
        .insertInto('tasks')
        .values(
          numbers.map(number => ({
            id: old(number),
            name: 'domain_backup',
            verbose_name: `Back up vm ${number}`,
            status: number % 50 === 0 ? 'FAILED' : 'SUCCESS',
            progress: 100,
            created: time(number),
            finished_time: time(number),
            error_json: null,
            is_cancellable: 0,
            is_multitask: 0,
            parent: null,
            node_id: idOf('node', number % size.nodes),
            user_id: user.id,
            username: user.username,
            detail_json: '{"phase":"","bytes_done":0,"bytes_total":0,"rate":0,"message":""}',
            result_json: '{}',
            cancel_requested: 0,
            locks_released: 0,
            noted: 1,
            leaves_out: 0,
          })),
        )
        .execute();
      await trx
        .insertInto('task_entities')
        .values(
          numbers.map(number => ({
            task_id: old(number),
            position: 0,
            entity_id: idOf('domain', number % size.nodes, Math.floor(number / size.nodes) % size.vms),
            entity_class: 'domain',
          })),
        )
        .execute();
      await trx
        .insertInto('events')
        .values(
          numbers.map(number => ({
            id: old(number),
            sequence: 1_000_000 + number,
            type: number % 50 === 0 ? 'error' : 'info',
            message: `Back up vm ${number} succeeded`,
            detail_message: '',
            user: user.username,
            created: time(number),
            task_id: old(number),
          })),
        )
        .execute();
    });
  }
  await db.destroy();
}

async function measureOldTasks(): Promise<void> {
  const lists: [string, string][] = [
    ...['-created', 'finished_time', 'status', 'name', '-verbose_name', 'progress'].map(
      (order): [string, string] => [`tasks by ${order}`, `/api/tasks/?limit=100&ordering=${order}`],
    ),
    ['tasks that failed', '/api/tasks/?limit=100&status=FAILED'],
    ['tasks of a node', `/api/tasks/?limit=100&node=${idOf('node', 0)}`],
    ['tasks of a VM', `/api/tasks/?limit=100&entity=${idOf('domain', 0, 0)}`],
    ['events', '/api/events/?limit=100'],
    ['events that are errors', '/api/events/?limit=100&type=error'],
    ['events of a VM', `/api/events/?limit=100&entity=${idOf('domain', 0, 0)}`],
  ];
  for (const [name, path] of lists) {
    row(`${name}, ${OLD_TASKS} old ones`, await cpuPer(() => path), 'ms', { target: 5 });
    row(`${name}, the last page`, await cpuPer(() => `${path}&offset=${OLD_TASKS - 100}`), 'ms', {
      target: 5,
    });
  }
  row('/metrics', await cpuMetrics(), 'ms');
}

async function cpuMetrics(): Promise<number> {
  const ca = readFileSync(world.controller.caFile, 'utf8');
  const once = () =>
    new Promise<void>((resolve, reject) => {
      httpsGet(new URL('/metrics', world.controller.url), { ca }, response => {
        response.resume();
        response.on('end', resolve);
      }).on('error', reject);
    });
  await once();
  const from = world.cpuMs();
  for (let round = 0; round < 3; round += 1) await once();
  return (world.cpuMs() - from) / 3;
}

async function measureLoss(): Promise<void> {
  const [frozen, killed] = world.children;
  const active = async () =>
    (await world.get('/api/nodes/?limit=1000')).results.filter(
      (node: { status: string }) => node.status === 'ACTIVE',
    ).length;
  if (!frozen) return;
  world.measureAnew();
  let from = performance.now();
  frozen.kill('SIGSTOP');
  await world.until(async () => (await active()) === size.nodes - world.nodesOf(frozen), 500);
  row('agents that are stopped: noticed after', (performance.now() - from) / 1000, 's', { target: 30 });
  from = performance.now();
  frozen.kill('SIGCONT');
  await world.until(async () => (await active()) === size.nodes, 500);
  row('agents that go on: connected after', (performance.now() - from) / 1000, 's', { target: 60 });
  if (killed) {
    from = performance.now();
    killed.kill('SIGKILL');
    await world.until(async () => (await active()) === size.nodes - world.nodesOf(killed), 500);
    row('agents that are killed: noticed after', (performance.now() - from) / 1000, 's', { target: 30 });
  }
  row('loss: worst delay of the event loop', (await world.measured()).worstDelayMs, 'ms', { target: 250 });
}

async function run(): Promise<void> {
  await world.makeController();
  await world.startController();
  const cpuFrom = world.cpuMs();
  const enrolMs = await world.enrol();
  row('enrolment of a node', enrolMs / size.nodes, 'ms');
  row('enrolment: processor for each', (world.cpuMs() - cpuFrom) / size.nodes, 'ms');
  await world.controller.daemon.stop();
  await world.tellAgents({ do: 'listen' });

  await measureStart('first start', { listening: 3, complete: 120 });
  const idleFrom = world.cpuMs();
  await sleep(IDLE_SECONDS * 1000);
  row('idle', (world.cpuMs() - idleFrom) / IDLE_SECONDS / 10, '%', { target: 2 });
  await measureLists();
  await measureChurn();
  await measureBackups('backups at once', BACKUPS);
  row('database', world.databaseBytes() / GiB, 'GiB');

  await world.controller.daemon.stop();
  await addOldTasks();
  await measureStart('restart', { listening: 3, complete: 60 });
  await measureOldTasks();
  await measureBackups(`backups at once, after ${OLD_TASKS} others`, BACKUPS_AFTER);
  await measureLoss();
}

let isGood = false;
try {
  await run();
} catch (error) {
  console.error(error);
  console.error(world.controller?.daemon.log().slice(-4000));
  process.exitCode = 1;
} finally {
  isGood = printTable(`${size.nodes} nodes with ${size.vms} VMs each`, rows);
  if (!process.env.KEEP) await world.end();
}
process.exit(isGood && !process.exitCode ? 0 : 1);
