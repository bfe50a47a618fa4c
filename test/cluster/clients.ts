/**
 * Clients of several controllers, and what they noted: which calls they made, what was answered, and when. What must hold of it, whatever
 * happened to the controllers meanwhile, is judged by `judge`.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf } from '@virtkeep/shared/errors';
import { Rest, type RestAnswer } from '../lab/rest.ts';

const AGAIN_MS = 100;
/** A call that takes longer is stuck. */
const LONGEST_MS = 180_000;

interface Asked {
  what: string;
  beganMs: number;
  endedMs: number;
  /** 1: it was answered the first time. */
  attempts: number;
}

export interface BackupNote extends Asked {
  task: string;
  domain: string;
}

/** Of a value that one client counts up and all read. */
export interface MarkNote extends Asked {
  mark: string;
  value: number;
  isWrite: boolean;
}

export interface TaskNote {
  task: string;
  status: string;
  /** Why it failed. */
  errorKey: string | undefined;
  atMs: number;
}

export interface Repeated extends Asked {
  /** Of each attempt but the last. */
  met: string[];
}

export class Notes {
  readonly backups: BackupNote[] = [];
  readonly marks: MarkNote[] = [];
  readonly tasks: TaskNote[] = [];
  readonly faults: string[] = [];
  /** Calls that were sent again more than once. */
  readonly repeated: Repeated[] = [];
  calls = 0;
  mostAttempts = 0;
  slowestMs = 0;
}

export class Client {
  readonly #rest: Rest;
  readonly #notes: Notes;

  constructor(options: { url: string; ca: string; token: string; notes: Notes }) {
    this.#rest = new Rest(options.url, options.ca, options.token);
    this.#notes = options.notes;
  }

  /** As a script would: once more when the connection broke or it was told to; the same key makes it one backup. */
  async backUp(domain: string): Promise<string> {
    const body = { domain, idempotency_key: randomUUID() };
    const { answer, asked } = await this.#ask('POST', '/api/domains/backup/?async=1', body);
    const { id } = (answer.body as { _task: { id: string } })._task;
    this.#notes.backups.push({ ...asked, task: id, domain });
    return id;
  }

  async readTask(id: string): Promise<TaskNote> {
    const { answer, asked } = await this.#ask('GET', `/api/tasks/${id}/`);
    const { status, error } = answer.body as { status: string; error: { msg_key: string } | null };
    const note = { task: id, status, errorKey: error?.msg_key, atMs: asked.endedMs };
    this.#notes.tasks.push(note);
    return note;
  }

  async write(mark: string, value: number): Promise<void> {
    // the first copy of a request that is sent again may arrive after what was written since: the key makes it one
    const body = { description: String(value), idempotency_key: randomUUID() };
    const { asked } = await this.#ask('PUT', `/api/tags/${mark}/`, body);
    this.#notes.marks.push({ ...asked, mark, value, isWrite: true });
  }

  async read(mark: string): Promise<number> {
    const { answer, asked } = await this.#ask('GET', `/api/tags/${mark}/`);
    const value = Number((answer.body as { description: string }).description);
    this.#notes.marks.push({ ...asked, mark, value, isWrite: false });
    return value;
  }

  async #ask(method: string, path: string, body?: unknown): Promise<{ answer: RestAnswer; asked: Asked }> {
    const beganMs = performance.now();
    const notes = this.#notes;
    notes.calls += 1;
    const met: string[] = [];
    for (let attempts = 1; ; attempts += 1) {
      const answer = await this.#rest.send(method, path, body).catch((error: unknown) => {
        met.push(reasonOf(error));
      });
      const endedMs = performance.now();
      if (answer && answer.status < 500) {
        notes.mostAttempts = Math.max(notes.mostAttempts, attempts);
        notes.slowestMs = Math.max(notes.slowestMs, endedMs - beganMs);
        const what = `${method} ${path}`;
        if (attempts > 2) notes.repeated.push({ what, beganMs, endedMs, attempts, met });
        if (answer.status > 299) {
          notes.faults.push(`${what}: ${answer.status} ${JSON.stringify(answer.body)}`);
          throw new Error(notes.faults.at(-1));
        }
        return { answer, asked: { what, beganMs, endedMs, attempts } };
      }
      if (answer) met.push(`${answer.status} ${JSON.stringify(answer.body)}`.slice(0, 120));
      if (endedMs - beganMs > LONGEST_MS) {
        notes.faults.push(`${method} ${path}: no answer in time, the last was ${answer?.status}`);
        throw new Error(notes.faults.at(-1));
      }
      await sleep(AGAIN_MS);
    }
  }
}

const ENDED = new Set(['SUCCESS', 'FAILED', 'CANCELED', 'PARTIAL']);

/**
 * What is wrong in what the clients saw.
 * - A value that is read is at least the newest one that was written before, and none that nobody began to write by then.
 * - A value that is read is not older than one that was read before.
 * - A task that has ended stays as it ended.
 */
export function judge(notes: Notes): string[] {
  return [...notes.faults, ...judgeMarks(notes.marks), ...judgeTasks(notes.tasks)];
}

function judgeMarks(all: readonly MarkNote[]): string[] {
  const faults: string[] = [];
  for (const mark of new Set(all.map(note => note.mark))) {
    const notes = all.filter(note => note.mark === mark);
    const newestEnded = newestBefore(notes, note => note.endedMs);
    const newestBegun = newestBefore(
      notes.filter(note => note.isWrite),
      note => note.beganMs,
    );
    for (const read of notes.filter(note => !note.isWrite)) {
      const least = newestEnded(read.beganMs);
      const most = newestBegun(read.endedMs);
      if (read.value < least || read.value > most)
        faults.push(`${read.what} at ${timeOf(read.beganMs)}: ${read.value}, not ${least} to ${most}`);
    }
  }
  return faults;
}

/** The highest value of the notes whose time is before one that is asked for; there are too many to look at all of them for each. */
function newestBefore(notes: readonly MarkNote[], at: (note: MarkNote) => number): (ms: number) => number {
  let value = 0;
  const sorted = notes
    .map(note => ({ ms: at(note), value: note.value }))
    .sort((one, other) => one.ms - other.ms);
  const newest = sorted.map(note => {
    value = Math.max(value, note.value);
    return { ms: note.ms, value };
  });
  return ms => {
    let [from, to] = [0, newest.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (newest[middle]!.ms < ms) from = middle + 1;
      else to = middle;
    }
    return newest[from - 1]?.value ?? 0;
  };
}

function judgeTasks(all: readonly TaskNote[]): string[] {
  const ends = new Map<string, string>();
  return [...all]
    .sort((one, other) => one.atMs - other.atMs)
    .flatMap(({ task, status }) => {
      const end = ends.get(task);
      if (ENDED.has(status)) ends.set(task, status);
      return end !== undefined && end !== status ? [`task ${task}: ${end}, and later ${status}`] : [];
    });
}

/** For people, as the logs of the controllers have it. */
export const timeOf = (ms: number): string =>
  new Date(performance.timeOrigin + ms).toISOString().slice(11, 23);

export const isEnded = ({ status }: TaskNote): boolean => ENDED.has(status);
