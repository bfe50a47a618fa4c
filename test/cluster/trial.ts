/** Clients at work while things happen to the controllers, and what is wrong in the end. */
import { setTimeout as sleep } from 'node:timers/promises';
import { mapLimited } from '@virtkeep/shared/limit';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { happen } from './chaos.ts';
import { Client, isEnded, judge, Notes, type TaskNote, timeOf } from './clients.ts';
import type { ClusterWorld, StartedOperation } from './world.ts';

const MARKS = 3;
const READERS = 3;
const WRITERS_PAUSE_MS = 200;
const BACKUPS_PAUSE_MS = 300;
/** Between two things that happen. */
const QUIET_MS = 6000;
const END_MS = 300_000;
const READ_AT_ONCE = 8;
/** Why a backup fails that no node has begun. */
const NOT_BEGUN = new Set(['operation_unknown', 'database_unavailable', 'interrupted']);

export interface TrialOptions {
  durationMs: number;
  seed: number;
  say?: (text: string) => void;
}

export interface Trial {
  notes: Notes;
  /** Empty: nothing is wrong. */
  faults: string[];
  happened: Happened[];
  /** Calls that were sent again more than once though no more than one thing happened meanwhile, or twice though two, and so on. */
  impatient: string[];
}

interface Happened {
  what: string;
  beganMs: number;
}

export async function runTrial(
  world: ClusterWorld,
  { durationMs, seed, say = () => {} }: TrialOptions,
): Promise<Trial> {
  const notes = new Notes();
  const client = () => new Client({ url: world.admin.url, ca: world.ca, token: world.admin.token!, notes });
  const marks = await makeMarks(world);
  const domains = (await world.admin.list<{ id: string }>('/api/domains/')).map(({ id }) => id);
  const over = new AbortController();
  const busy = [
    ...marks.map(mark => countUp(client(), mark, over.signal)),
    ...Array.from({ length: READERS }, () => readAll(client(), marks, over.signal)),
    ...[0, 1].map(half =>
      backUp(
        client(),
        domains.filter((_, index) => index % 2 === half),
        over.signal,
      ),
    ),
  ];
  const happened: Happened[] = [];
  const random = seededRandom(seed);
  const untilMs = performance.now() + durationMs;
  while (performance.now() < untilMs) {
    await sleep(QUIET_MS);
    const beganMs = performance.now();
    const what = await happen(world, random);
    happened.push({ what, beganMs });
    say(`${what}; ${notes.calls} calls, ${notes.backups.length} backups`);
  }
  over.abort();
  await Promise.allSettled(busy);
  const ends = await endsOf(client(), notes);
  const begun = (await world.startedOperations()).filter(({ kind }) => kind === 'backup');
  const succeeded = new Set(ends.filter(({ status }) => status === 'SUCCESS').map(({ task }) => task));
  const written = notes.backups.filter(({ task }) => succeeded.has(task)).map(({ domain }) => domain);
  const onRealNodes = await world.faultsOfRealNodes(written);
  const faults = [...judge(notes), ...judgeBackups(notes, ends, begun), ...onRealNodes];
  return { notes, happened, faults, impatient: impatientOf(notes, happened) };
}

/** What happens is felt until the next thing does: each may cost a call one more attempt. */
function impatientOf({ repeated }: Notes, happened: readonly Happened[]): string[] {
  const isMet = (number: number, { beganMs, endedMs }: { beganMs: number; endedMs: number }) =>
    happened[number]!.beganMs <= endedMs && (happened[number + 1]?.beganMs ?? Infinity) > beganMs;
  return repeated.flatMap(call => {
    const met = happened.filter((_, number) => isMet(number, call));
    if (call.attempts - 1 <= met.length) return [];
    const between = `${timeOf(call.beganMs)} to ${timeOf(call.endedMs)}`;
    return [
      `${call.what}, ${between}: ${call.met.join(', ')}; meanwhile ${met.map(({ what }) => what).join(', ')}`,
    ];
  });
}

async function makeMarks({ admin }: ClusterWorld): Promise<string[]> {
  const names = Array.from({ length: MARKS }, (_, number) => `mark-${number}`);
  return Promise.all(
    names.map(async verbose_name => {
      const tag = await admin.ok<{ id: string }>('POST', '/api/tags/', { verbose_name, description: '0' });
      return tag.id;
    }),
  );
}

async function countUp(client: Client, mark: string, over: AbortSignal): Promise<void> {
  for (let value = 1; !over.aborted; value += 1) {
    await client.write(mark, value);
    await sleep(WRITERS_PAUSE_MS);
  }
}

async function readAll(client: Client, marks: readonly string[], over: AbortSignal): Promise<void> {
  while (!over.aborted) for (const mark of marks) await client.read(mark);
}

/** One VM after the other; a second backup of one begins when the first has ended. */
async function backUp(client: Client, domains: readonly string[], over: AbortSignal): Promise<void> {
  const running = new Map<string, string>();
  while (!over.aborted)
    for (const domain of domains) {
      if (over.aborted) return;
      const task = running.get(domain);
      if (task === undefined || isEnded(await client.readTask(task)))
        running.set(domain, await client.backUp(domain));
      await sleep(BACKUPS_PAUSE_MS);
    }
}

/** The ends of all backups; a task that does not end is given up after a while. */
async function endsOf(client: Client, notes: Notes): Promise<TaskNote[]> {
  const untilMs = performance.now() + END_MS;
  return mapLimited(notes.backups, READ_AT_ONCE, async ({ task }) => {
    let seen = await client.readTask(task);
    while (!isEnded(seen) && performance.now() < untilMs) {
      await sleep(WRITERS_PAUSE_MS);
      seen = await client.readTask(task);
    }
    return seen;
  });
}

/**
 * Each backup was begun once on its node and succeeded; or it never was, since the controller was lost right before, and its task
 * says just that. None was begun that nobody asked for.
 */
function judgeBackups(notes: Notes, ends: readonly TaskNote[], begun: readonly StartedOperation[]): string[] {
  const asked = new Map(notes.backups.map(({ task, domain }) => [task, domain]));
  const askedAt = new Map(notes.backups.map(({ task, beganMs }) => [task, beganMs]));
  const ids = new Set(begun.map(({ id }) => id));
  return [
    ...(asked.size === notes.backups.length ? [] : ['two requests got the same task']),
    ...begun
      .filter(({ id, domain }) => asked.get(id) !== domain)
      .map(({ id, domain }) => `${id} of ${domain} was begun, and nobody asked for it`),
    ...ends
      .filter(({ task, status, errorKey }) =>
        ids.has(task) ? status !== 'SUCCESS' : !NOT_BEGUN.has(errorKey!),
      )
      .map(
        ({ task, status, errorKey }) =>
          `task ${task} of ${timeOf(askedAt.get(task)!)} is ${status} ${errorKey}, begun: ${ids.has(task)}`,
      ),
  ];
}
