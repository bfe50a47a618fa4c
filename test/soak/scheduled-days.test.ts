/**
 * Forty nights of the worked pattern of scheduled tasks, on a real libvirt: full on Sundays, increments else, a limit of increments, what is
 * older than thirty days goes. The clocks of controller and agent are moved from night to night (libfaketime). At the end every restore
 * point that is left is restored, and has what was written before it.
 */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { fileInside } from '../integration/archives/archive-tools.ts';
import { Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

const NIGHTS = Number(process.env.VIRTKEEP_NIGHTS ?? 40);
const KEPT_DAYS = 30;
const PATIENCE_MS = 300_000;
const DAY_MS = 86_400_000;

let world: World;
let web: Guest;
let off: Guest;
/** Has no agent, and so no consistent backup. */
let deaf: Guest;
let clock: string;
let taskId: string;

beforeAll(async () => {
  world = await startWorld({ controller: true });
  clock = join(world.dir, 'clock');
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
  await world.agent.daemon.restart(env);
  await world.connected();
  web = await world.defineTiny({ name: 'web', dataDisks: [{ sizeMiB: 16 }] });
  off = await world.defineTiny({ name: 'off', dataDisks: [{ files: { night: 'off' } }] });
  deaf = await world.defineTiny({ name: 'deaf', dataDisks: [{ sizeMiB: 8 }], agent: false, idle: true });
  await (await web.start()).waitForAgent();
  await deaf.start();
  const entities = [];
  for (const guest of [web, off, deaf]) entities.push(await world.known(guest));
  const made = await world.rest.ok<Json>('POST', '/api/scheduled-tasks/', {
    verbose_name: 'nightly',
    entities,
    start_date: new Date(nightOf(1)).toISOString(),
    time_zone: 'UTC',
    options: { increment: true, hash_sum: true, require_consistency: true },
    full_weekdays: ['sun'],
    increment_limit: 7,
    limit_days: KEPT_DAYS,
  });
  taskId = made.id;
});
afterAll(() => world?.stop());

/** Midnight of today, and so many days later. */
const nightOf = (night: number): number =>
  Math.floor(Date.now() / DAY_MS) * DAY_MS + night * DAY_MS + 7_200_000;

/** To two in the morning of this night, and some seconds. */
function setClock(night: number): void {
  const ahead = night === 0 ? 0 : Math.ceil((nightOf(night) - Date.now()) / 1000) + 2;
  writeFileSync(clock, `+${ahead}s\n`);
}

const runs = async (): Promise<Json[]> =>
  (await world.rest.get<Json>(`/api/scheduled-tasks/${taskId}/runs/?limit=100`)).results;

async function night(number: number): Promise<Json> {
  await web.sh(`echo night ${number} > /mnt/vda/night; sync`);
  setClock(number);
  const ended = async () => {
    const all = await runs();
    return all.length >= number && all.every(one => one.status !== 'RUNNING') ? all[0] : undefined;
  };
  return waitFor(`the run of night ${number}`, ended, PATIENCE_MS, 500);
}

test('every restore point that is left after forty nights can be restored', async () => {
  const nightsOfStates = new Map<string, number>();
  for (let number = 1; number <= NIGHTS; number += 1) {
    const ended = await night(number);
    const part = (guest: Guest) => ended.parts.find((one: Json) => one.verbose_name === guest.name);
    expect([ended.status, part(web).status, part(off).status, part(deaf).status]).toEqual([
      'PARTIAL',
      'SUCCESS',
      'SUCCESS',
      'FAILED',
    ]);
    const file = await world.rest.get<Json>(`/api/library/${part(web).file}/`);
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
