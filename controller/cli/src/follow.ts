import { setTimeout as sleep } from 'node:timers/promises';
import { Presets, SingleBar } from 'cli-progress';
import type { Client, Json } from './client.ts';
import { CliError, ExitCode, exitCodeFor } from './exit-codes.ts';
import { bytes, clean, note } from './output.ts';

export interface Task {
  id: string;
  verbose_name: string;
  status: 'IN_PROGRESS' | 'SUCCESS' | 'FAILED' | 'CANCELED' | 'LOST' | 'PARTIAL';
  progress: number;
  error_message: string;
  error: { code: string; detail: string } | null;
  entities: Record<string, string>;
  created: string;
  finished_time: string | null;
  detail: {
    phase: string;
    bytes_done: number;
    bytes_total: number;
    rate: number;
    message: string;
    steps: { phase: string; message: string; since: string }[];
  };
}

export interface Started {
  entity: string;
  _task: Task;
}

/** A task that takes long is asked for less often: many commands may wait at a time. */
const FIRST_POLL_MS = 400;
const MOST_POLL_MS = 3_000;
const slower = (pollMs: number): number => Math.min(MOST_POLL_MS, pollMs * 1.1);

/** So long is asked again when nobody answers: a controller that is upgraded, or one of several that goes, is back by then. */
const PATIENCE_MS = 300_000;

/** Prints how a task goes: a bar on a terminal, a line per phase in a pipe. */
export interface Reporter {
  update(task: Task): void;
  stop(): void;
}

function terminalReporter(): Reporter {
  const bar = new SingleBar(
    {
      format: '{name} {bar} {percentage}%  {amount}  {phase}',
      hideCursor: true,
      clearOnComplete: false,
      stream: process.stderr,
      linewrap: false,
    },
    Presets.shades_classic,
  );
  let started = false;
  return {
    update(task) {
      const { bytes_done, bytes_total, rate, phase } = task.detail;
      const amount = bytes_total > 0 ? `${bytes(bytes_done)} of ${bytes(bytes_total)}, ${bytes(rate)}/s` : '';
      const payload = { name: clean(task.verbose_name), amount, phase: clean(phase) };
      if (!started) bar.start(100, task.progress, payload);
      started = true;
      bar.update(task.progress, payload);
    },
    stop: () => bar.stop(),
  };
}

function plainReporter(): Reporter {
  let last = '';
  return {
    update(task) {
      if (task.detail.phase === last || task.detail.phase === '') return;
      last = task.detail.phase;
      note(`${clean(task.verbose_name)}: ${clean(last)}`);
    },
    stop() {},
  };
}

const goesOn = (id: string): string =>
  `The task ${id} goes on. Follow it with "virtkeep tasks wait ${id}", cancel it with "virtkeep tasks cancel ${id}".`;

/**
 * Follows a task to its end, and tells what people should know beside it. Ctrl-C stops following, not the task.
 * @throws CliError with the task's error when it fails, is cancelled or lost; unreachable when nobody says any more how it goes
 */
export async function follow(client: Client, id: string, quiet = false): Promise<Task> {
  const task = await atEnd(client, id, quiet);
  const { message } = task.detail;
  // of one whose node is gone it is what it told last
  if (message !== '' && task.status !== 'LOST') note(`warning: ${clean(message)}`);
  if (task.status === 'SUCCESS') return task;
  throw endError(task);
}

async function atEnd(client: Client, id: string, quiet: boolean): Promise<Task> {
  const reporter = quiet ? undefined : process.stderr.isTTY ? terminalReporter() : plainReporter();
  const interrupted = () => {
    reporter?.stop();
    note(goesOn(id));
    process.exit(ExitCode.interrupted);
  };
  process.once('SIGINT', interrupted);
  try {
    for (let poll = FIRST_POLL_MS; ; poll = slower(poll)) {
      const task = await patientlyGet(client, id);
      reporter?.update(task);
      if (task.status !== 'IN_PROGRESS') return task;
      await sleep(poll);
    }
  } finally {
    reporter?.stop();
    process.removeListener('SIGINT', interrupted);
  }
}

/** @throws CliError unreachable, that the task goes on: also when the login has ended meanwhile; not_found */
async function patientlyGet(client: Client, id: string): Promise<Task> {
  const deadline = performance.now() + PATIENCE_MS;
  for (let poll = FIRST_POLL_MS; ; poll = slower(poll))
    try {
      return await client.get<Task & Json>(`/api/tasks/${id}/`);
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      const { exitCode, message, retryAfterMs } = error;
      const isAway = exitCode === ExitCode.unreachable;
      if (!isAway && exitCode !== ExitCode.notAllowed) throw error;
      const wait = Math.max(poll, retryAfterMs ?? 0);
      if (!isAway || performance.now() + wait > deadline)
        throw new CliError(`${message}\n${goesOn(id)}`, ExitCode.unreachable);
      await sleep(wait);
    }
}

function endError(task: Task): CliError {
  const text = task.error ? `${clean(task.error.detail)} (${task.error.code})` : clean(task.error_message);
  if (task.status === 'CANCELED') return new CliError(`${task.verbose_name}: cancelled.`, ExitCode.canceled);
  if (task.status === 'LOST')
    return new CliError(
      `${task.verbose_name}: the node is gone, the outcome is not known.`,
      ExitCode.unreachable,
    );
  if (task.status === 'PARTIAL')
    return new CliError(
      `${task.verbose_name}: succeeded in part. What of it did not, "virtkeep tasks list --parent ${task.id}" shows; of a scheduled run, "virtkeep schedule runs TASK -o json" with the reasons.`,
      ExitCode.failed,
    );
  // the first three digits of a code are the HTTP status: the same exit code as if the request had been refused at once
  const exitCode = task.error ? exitCodeFor(Number(task.error.code.slice(0, 3))) : ExitCode.failed;
  return new CliError(`${task.verbose_name}: ${text || 'failed'}`, exitCode);
}

interface ActionOptions {
  /** Nothing is told of its progress. */
  quiet?: boolean | undefined;
  query?: Record<string, number>;
}

/** Starts a long action and follows it to its end. @throws as `follow`. */
export async function runAction(
  client: Client,
  path: string,
  body: Json,
  { quiet = false, query = {} }: ActionOptions = {},
): Promise<Task> {
  const started = await client.post<Started>(path, body, { ...query, async: 1 });
  return follow(client, started._task.id, quiet);
}

/** What the task made, by its class: a backup may turn out to be another file than the one that it began with. */
export function createdId(task: Task, entityClass: string): string {
  return Object.entries(task.entities).find(([, kind]) => kind === entityClass)?.[0] ?? '';
}
