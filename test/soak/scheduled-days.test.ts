/**
 * Forty nights of the worked pattern of scheduled tasks, on a real libvirt: full on Sundays, increments else, a limit of increments, what is
 * older than thirty days goes. The clocks of controller and agent are moved from night to night (libfaketime). In some nights the pool
 * of the backups has no room, or the run is cancelled: nothing of them is left, and the next night goes on. At the end every restore point
 * that is left is restored, and has what was written before it.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { fileInside } from '../integration/archives/archive-tools.ts';
import { Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import type { SmallDisk } from '../lab/small-disk.ts';
import { startWorld, type World } from '../lab/world.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

interface Night {
  /** Before the run is due. */
  before?: () => Promise<unknown>;
  /** While it runs. @param runId also that of its task */
  meanwhile?: (runId: string) => Promise<unknown>;
  /** When it has ended. */
  after?: () => Promise<unknown>;
  /** How it ends, with the error of web and off, and leaves everything as it was; absent: both are backed up. */
  fails?: { status: 'FAILED' | 'CANCELED'; key: string };
}

const NIGHTS = Number(process.env.VIRTKEEP_NIGHTS ?? 40);
const KEPT_DAYS = 30;
const INCREMENT_LIMIT = 7;
const PATIENCE_MS = 300_000;
const DAY_MS = 86_400_000;
/** Two in the morning of the first Thursday that is to come, in UTC. */
const FIRST_MS = firstThursday();
const POOL_MIB = 256;
/** Each full backup is larger than what is left on the pool that is to be tidied. */
const DATA_MIB = 6;
const LEFT_MIB = 2;

/**
 * The first night is a Thursday: the fourth, the eleventh and so on are Sundays, on which a full backup is due. Where that one fails, the
 * increments go on, and reach their limit.
 */
const SPECIAL: Record<number, Night> = {
  2: noRoom({ mayDelete: true }), // but the only backups there are
  5: noRoom({ mayDelete: false }),
  6: cancelled(),
  8: runsFull(),
  11: roomIsMade(),
  12: roomIsMade({ moreMiB: 4 }),
  18: cancelled(),
  25: noRoom({ mayDelete: false }),
  30: runsFull(),
  32: runsFull(),
  39: roomIsMade(),
};

let world: World;
let pool: SmallDisk;
let web: Guest;
let off: Guest;
/** Has no agent, and so no consistent backup. The last one by name: two at a time are backed up. */
let deaf: Guest;
let clock: string;
let faults: string;
let taskId: string;

beforeAll(async () => {
  world = await startWorld({ controller: true, smallDisks: { 'n1/pools/bulk': POOL_MIB } });
  pool = world.smallDisks.get('n1/pools/bulk')!;
  clock = join(world.dir, 'clock');
  faults = join(world.dir, 'faults');
  writeFileSync(faults, '');
  const { stdout } = await run(['dpkg-query', '-L', 'libfaketime']);
  const env = {
    LD_PRELOAD: stdout.split('\n').find(path => path.endsWith('/libfaketime.so.1'))!,
    FAKETIME_TIMESTAMP_FILE: clock,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  };
  setClock(0);
  // a login would be over by the first night
  const { token } = await world.rest.ok<Json>('POST', '/api/tokens/', {
    name: 'nights',
    days: 365,
    password: world.controller.password,
  });
  world.rest.token = token;
  await world.controller.daemon.restart(env);
  await world.agent.daemon.restart({ ...env, VIRTKEEP_FAULTS: `@${faults}` });
  await world.connected();
  const data = randomBytes(DATA_MIB * MiB);
  web = await world.defineTiny({ name: 'web', dataDisks: [{ sizeMiB: 16, files: { data } }] });
  off = await world.defineTiny({ name: 'off', dataDisks: [{ files: { night: 'off', data } }] });
  deaf = await world.defineTiny({
    name: 'without-agent',
    dataDisks: [{ sizeMiB: 8 }],
    agent: false,
    idle: true,
  });
  await (await web.start()).waitForAgent();
  await deaf.start();
  const entities = [];
  for (const guest of [web, off, deaf]) entities.push(await world.known(guest));
  const made = await world.rest.ok<Json>('POST', '/api/scheduled-tasks/', {
    verbose_name: 'nightly',
    entities,
    start_date: new Date(nightOf(1)).toISOString(),
    time_zone: 'UTC',
    options: {
      increment: true,
      hash_sum: true,
      require_consistency: true,
      datapool: world.node.pool(1).uuid,
    },
    full_weekdays: ['sun'],
    increment_limit: INCREMENT_LIMIT,
    limit_days: KEPT_DAYS,
  });
  taskId = made.id;
});
afterAll(() => world?.stop());

function firstThursday(): number {
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const days = [1, 2, 3, 4, 5, 6, 7].map(ahead => today + ahead * DAY_MS);
  return days.find(day => new Date(day).getUTCDay() === 4)! + 7_200_000;
}

/** Two in the morning. @returns ms since 1970 */
const nightOf = (night: number): number => FIRST_MS + (night - 1) * DAY_MS;
const isSunday = (night: number): boolean => new Date(nightOf(night)).getUTCDay() === 0;

/** To two in the morning of this night, and some seconds. */
function setClock(night: number): void {
  const ahead = night === 0 ? 0 : Math.ceil((nightOf(night) - Date.now()) / 1000) + 2;
  writeFileSync(clock, `+${ahead}s\n`);
}

/** @param mayDelete old backups may go for it, if there are any that may go at all */
function noRoom({ mayDelete }: { mayDelete: boolean }): Night {
  return {
    before: () => allowDeletions(mayDelete).then(() => pool.fill(0)),
    after: () => allowDeletions(false),
    fails: { status: 'FAILED', key: 'pool_no_space' },
  };
}

/** There is room only when the oldest backups are gone. @param moreMiB so much more is written than in any night before */
function roomIsMade({ moreMiB = 0 } = {}): Night {
  let before: Json[];
  return {
    before: async () => {
      await web.sh(`dd if=/dev/urandom of=/mnt/vda/more bs=1M count=${moreMiB}; sync`);
      before = await backups();
      await allowDeletions(true);
      pool.fill(LEFT_MIB);
    },
    after: async () => {
      await allowDeletions(false);
      const left = new Set((await backups()).map(({ id }) => id));
      const gone = before.filter(({ id }) => !left.has(id));
      expect(gone.length).toBeGreaterThan(0);
      for (const guest of [web, off]) {
        const newestFirst = before.filter(({ domain }) => domain.verbose_name === guest.name);
        // the oldest ones; the one that was the newest may go once there is a newer one
        const isLeft = newestFirst.map(({ id }) => left.has(id));
        expect(isLeft).toEqual(isLeft.toSorted((a, b) => Number(b) - Number(a)));
      }
    },
  };
}

/** After the space was asked for, and before the first byte is copied. */
function runsFull(): Night {
  return {
    ...heldBefore('copy', async () => pool.fill(0)),
    fails: { status: 'FAILED', key: 'disk_full' },
  };
}

/** Both archives are written to their end, but for the commit; the third VM waits for its turn. */
function cancelled(): Night {
  return {
    ...heldBefore('publish', runId => world.rest.ok('PUT', `/api/tasks/${runId}/cancel/`, {})),
    fails: { status: 'CANCELED', key: 'canceled' },
  };
}

/** Does something while both backups are held before one of their steps. */
function heldBefore(step: string, work: (runId: string) => Promise<unknown>): Night {
  const gate = () => join(world.dir, 'gate');
  const areHeld = async (runId: string) => {
    const { results: parts } = await world.rest.get<Json>(`/api/tasks/?parent=${runId}`);
    return parts.filter(({ detail }: Json) => detail.phase === step).length === 2;
  };
  return {
    before: async () => {
      for (const path of [gate(), `${gate()}.reached`]) rmSync(path, { force: true });
      writeFileSync(faults, `backup.${step}.before=pause:${gate()}`);
    },
    meanwhile: async runId => {
      await waitFor(`two backups before ${step}`, () => areHeld(runId), PATIENCE_MS);
      await work(runId);
      writeFileSync(gate(), '');
    },
  };
}

const allowDeletions = (free_space_cleanup: boolean): Promise<unknown> =>
  world.rest.ok('PUT', `/api/scheduled-tasks/${taskId}/`, { free_space_cleanup });

const runs = async (): Promise<Json[]> =>
  (await world.rest.get<Json>(`/api/scheduled-tasks/${taskId}/runs/?limit=100`)).results;

/** The newest first. */
const backups = async (): Promise<Json[]> =>
  (await world.rest.get<Json>('/api/library/?limit=100&ordering=-created')).results;

/** What a night that fails leaves as it was: states and disks of the VMs, files on the pools, the records of backups. */
async function picture() {
  const guests = [];
  for (const guest of [web, off])
    guests.push({ states: await guest.snapshots(), disks: await guest.disks() });
  const kept = (path: string) => (existsSync(path) ? readdirSync(path).sort() : []);
  const archives = join(pool.path, 'backups');
  return {
    guests,
    frozen: await web.agent('guest-fsfreeze-status'),
    disks: kept(world.node.pool(0).path),
    archives: kept(archives).map(name => [name, statSync(join(archives, name)).size]),
    records: (await backups()).map(({ id, status, states }) => [id, status, states.length]),
  };
}

const partOf = (ended: Json, guest: Guest): Json =>
  ended.parts.find((part: Json) => part.verbose_name === guest.name);

/** @returns its run, when it has ended */
async function night(number: number): Promise<Json> {
  const { before, meanwhile, after, fails } = SPECIAL[number] ?? {};
  await web.sh(`echo night ${number} > /mnt/vda/night; sync`);
  const former = await picture();
  await before?.();
  setClock(number);
  const look = async () => {
    const all = await runs();
    return all.length >= number ? all[0] : undefined;
  };
  const { id } = await waitFor(`the run of night ${number}`, look, PATIENCE_MS, 500);
  await meanwhile?.(id);
  const isOver = async () => {
    const seen = await look();
    return seen.status !== 'RUNNING' && seen;
  };
  const ended = await waitFor(`the end of night ${number}`, isOver, PATIENCE_MS, 500);
  pool.free();
  writeFileSync(faults, '');
  const statusOf = (guest: Guest) => partOf(ended, guest).status;
  const statuses = [ended.status, ...[web, off, deaf].map(statusOf)];
  if (!fails) expect([number, ...statuses]).toEqual([number, 'PARTIAL', 'SUCCESS', 'SUCCESS', 'FAILED']);
  else {
    const { status, key } = fails;
    expect([number, ...statuses]).toEqual([number, status, status, status, status]);
    for (const guest of [web, off]) expect(partOf(ended, guest).error.msg_key).toBe(key);
    expect(await picture()).toEqual(former);
    const { results: tasks } = await world.rest.get<Json>(`/api/tasks/?parent=${id}`);
    for (const task of tasks) expect(task.status).toBe(status);
  }
  await after?.();
  return ended;
}

/** Restore points of each VM's archive that grows; 0: the limit of increments was reached, or there is none yet. */
const points = new Map<Guest, number>();

/** A full backup or an increment, by what was made so far. */
async function expectMode(number: number, guest: Guest, { mode }: Json): Promise<void> {
  const before = points.get(guest) ?? 0;
  const isFull = before === 0 || isSunday(number);
  expect([number, guest.name, mode]).toEqual([number, guest.name, isFull ? 'full' : 'increment']);
  const now = isFull ? 1 : before + 1;
  const isLast = now > INCREMENT_LIMIT;
  points.set(guest, isLast ? 0 : now);
  if (isLast) expect(await guest.snapshots()).toEqual([]);
}

test('every restore point that is left after forty nights can be restored', async () => {
  const nightsOfStates = new Map<string, number>();
  for (let number = 1; number <= NIGHTS; number += 1) {
    const ended = await night(number);
    if (SPECIAL[number]?.fails) continue;
    for (const guest of [web, off]) await expectMode(number, guest, partOf(ended, guest));
    const file = await world.rest.get<Json>(`/api/library/${partOf(ended, web).file}/`);
    nightsOfStates.set(`${file.id} ${file.states.at(-1).number}`, number);
  }
  const history = await runs();
  expect(history).toHaveLength(NIGHTS);
  const { results: files } = await world.rest.get<Json>(`/api/library/?domain=${await web.uuid()}&limit=100`);
  const oldest = Math.max(0, NIGHTS - KEPT_DAYS);
  for (const file of files) {
    const newest = nightsOfStates.get(`${file.id} ${file.states.at(-1).number}`)!;
    expect(newest).toBeGreaterThanOrEqual(oldest);
    for (const state of file.states) {
      const name = `again-${randomUUID().slice(0, 8)}`;
      const body = {
        file: file.id,
        node: world.agent.nodeId,
        state: String(state.number),
        verbose_name: name,
        flatten: true,
      };
      await world.rest.ok('POST', '/api/domains/automated-restore/', body);
      const restored = new Guest(world.node, name);
      const number = nightsOfStates.get(`${file.id} ${state.number}`)!;
      expect(await fileInside((await restored.disks()).vda!, 'night')).toBe(`night ${number}\n`);
      await world.rest.ok('POST', `/api/domains/${await restored.uuid()}/remove/`, { full: true });
    }
  }
});
