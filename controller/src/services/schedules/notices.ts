/** What people are told of runs, and once a day of all VMs. Raised under keys, so that nobody is told twice, whatever is raised again. */
import type { Logger } from '@virtkeep/shared/log';
import { type WallTime, ZoneTime } from '@virtkeep/shared/zone-time';
import type { Database, ScheduledPartRow, ScheduledRunRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import type { NotificationEvent, RunData, RunOutcome } from '../notifications/events.ts';
import type { ProtectionRecord } from '../protection/protection.ts';
import { ALARMING } from '../protection/rules.ts';
import type { TaskError } from '../tasks/record.ts';
import type { Clock } from './clock.ts';
import { definitionIn } from './definition.ts';

export interface NoticeDependencies {
  notifications: {
    raise(event: NotificationEvent, at: { key: string; now: Date }, db?: Database): Promise<number>;
  };
  backupFiles: BackupFiles;
  /** The protection of all VMs, and the days that a backup may be old. */
  protection: () => Promise<ProtectionRecord[]>;
  maxAgeDays: () => number;
  clock: Clock;
  /** HH:MM in the zone: when people are told of all VMs. */
  dailyAt: () => string;
  timeZone: string;
  log: Logger;
}

const SECONDS_IN_DAY = 86_400;
const DAY_BEGINS = '00:00';

export class Notices {
  readonly #dependencies: NoticeDependencies;
  /** The day that people were told of last. */
  #told = '';

  constructor(dependencies: NoticeDependencies) {
    this.#dependencies = dependencies;
  }

  /** A run has an outcome. */
  async ended(run: ScheduledRunRow, parts: readonly ScheduledPartRow[]): Promise<void> {
    const { notifications, clock } = this.#dependencies;
    const event = EVENT_OF[run.status];
    if (event === undefined) return;
    const data = await this.#runData(run, parts);
    await notifications.raise({ event, data }, { key: run.id, now: clock.now() });
  }

  /**
   * A run did not happen: told to those who are told of failed ones. Of all that are due while one run goes on, one a day is told: a task
   * may be due each minute.
   * @param former id of the run that goes on, when it was skipped for that
   * @param db the transaction that writes so
   */
  async notRun(run: ScheduledRunRow, former: string | undefined, db: Database): Promise<void> {
    const { notifications, clock } = this.#dependencies;
    const due = run.due_time ?? run.created;
    const times = run.missed_count > 1 ? ` (${run.missed_count} times)` : '';
    const data: RunData = {
      task: { id: run.scheduled_task_id, verbose_name: definitionIn(run).verbose_name },
      run: '',
      started: due,
      finished: run.finished ?? due,
      duration_s: 0,
      reason: `It did not run${times}: ${run.reason}`,
      counts: { total: 0, succeeded: 0, partial: 0, failed: 0, skipped: 0, canceled: 0 },
      vms: [],
    };
    const key = former === undefined ? run.id : `skipped for ${former} ${due.slice(0, 'YYYY-MM-DD'.length)}`;
    await notifications.raise({ event: 'run_failed', data }, { key, now: clock.now() }, db);
  }

  /** Once a day of all VMs. Never throws. */
  async tick(): Promise<void> {
    const { clock, log } = this.#dependencies;
    await this.#daily(clock.now()).catch((error: unknown) =>
      log.error('the daily summary could not be written', { error }),
    );
  }

  async #daily(now: Date): Promise<void> {
    const { dailyAt, timeZone, notifications, protection, maxAgeDays } = this.#dependencies;
    const present = new ZoneTime(timeZone).wallTime(now.getTime());
    const date = dayToTell(present, dailyAt());
    // of a day before the last one nobody is told: the hour was put off. One that is yet to come was told by a clock that was ahead.
    if (date <= this.#told && this.#told <= dayToTell(present, DAY_BEGINS)) return;
    const vms = await protection();
    const told = vms.map(vmOf);
    const counts = { protected: 0, late: 0, failing: 0, never: 0, excluded: 0 };
    for (const { state } of vms) counts[state] += 1;
    await notifications.raise(
      { event: 'summary', data: { date, counts, vms: told } },
      { key: `summary ${date}`, now },
    );
    const alarming = vms.filter(({ state }) => ALARMING.includes(state)).map(vmOf);
    if (alarming.length > 0)
      await notifications.raise(
        { event: 'protection_late', data: { days: maxAgeDays(), vms: alarming } },
        { key: `late ${date}`, now },
      );
    this.#told = date;
  }

  async #runData(run: ScheduledRunRow, parts: readonly ScheduledPartRow[]): Promise<RunData> {
    const { verbose_name } = definitionIn(run);
    const missing = JSON.parse(run.missing_json) as string[];
    const vms = [];
    for (const part of parts) vms.push(await this.#partData(part));
    const gone = missing.map(id => ({
      id,
      verbose_name: id,
      outcome: 'skipped' as const,
      reason: 'it is gone',
      file: '',
      size: 0,
      duration_s: 0,
    }));
    const all = [...vms, ...gone];
    const of = (outcome: RunOutcome) => all.filter(one => one.outcome === outcome).length;
    return {
      task: { id: run.scheduled_task_id, verbose_name },
      run: run.id,
      started: run.created,
      finished: run.finished ?? run.created,
      duration_s: secondsBetween(run.created, run.finished),
      reason: run.reason,
      counts: {
        total: all.length,
        succeeded: of('succeeded'),
        partial: of('partial'),
        failed: of('failed'),
        skipped: of('skipped'),
        canceled: of('canceled'),
      },
      vms: all,
    };
  }

  async #partData(part: ScheduledPartRow) {
    const file = part.file_id === null ? undefined : await this.#dependencies.backupFiles.find(part.file_id);
    // of one that is partial the notes say what has failed
    const isTold = part.error_json === null || part.status === 'PARTIAL';
    const error = isTold ? '' : (JSON.parse(part.error_json!) as TaskError).detail;
    const notes = JSON.parse(part.notes_json) as string[];
    return {
      id: part.entity_id,
      verbose_name: part.entity_name,
      outcome: OUTCOME_OF[part.status] ?? ('failed' as const),
      reason: [error, ...notes].filter(text => text !== '').join(' '),
      file: file?.filename ?? '',
      size: file?.size ?? 0,
      duration_s: secondsBetween(part.started, part.finished),
    };
  }
}

const EVENT_OF: Record<string, 'run_succeeded' | 'run_partial' | 'run_failed' | undefined> = {
  SUCCESS: 'run_succeeded',
  PARTIAL: 'run_partial',
  FAILED: 'run_failed',
  CANCELED: 'run_failed',
};

const OUTCOME_OF: Record<string, RunOutcome | undefined> = {
  SUCCESS: 'succeeded',
  PARTIAL: 'partial',
  FAILED: 'failed',
  SKIPPED: 'skipped',
  CANCELED: 'canceled',
};

/** The last day, as YYYY-MM-DD, whose hour has come: up to that hour it is the day before, which may have passed while nobody looked. */
function dayToTell({ year, month, day, hour, minute }: WallTime, dailyAt: string): string {
  const two = (value: number) => String(value).padStart(2, '0');
  const isEarly = `${two(hour)}:${two(minute)}` < dailyAt;
  return new Date(Date.UTC(year, month - 1, isEarly ? day - 1 : day)).toISOString().slice(0, 10);
}

function secondsBetween(from: string | null, to: string | null): number {
  if (from === null || to === null) return 0;
  return Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000);
}

function vmOf({ domain, node, state, last_good, age, reason }: ProtectionRecord) {
  const age_days = age === null ? null : age / SECONDS_IN_DAY;
  return { ...domain, node: node.verbose_name, state, last_good, age_days, reason };
}
