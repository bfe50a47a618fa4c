/** How well a VM is protected: a function of what is known of its backups and of the instant; pure. */

export const PROTECTION_STATES = ['protected', 'late', 'failing', 'never', 'excluded'] as const;
export type ProtectionState = (typeof PROTECTION_STATES)[number];

/** States in which somebody must look at the VM. */
export const ALARMING: readonly ProtectionState[] = ['late', 'failing', 'never'];

/**
 * What an enabled scheduled task has promised of a VM that it covers:
 *
 * | | `intervalMs`: it goes on | `intervalMs` null: once more, or never again |
 * |---|---|---|
 * | `latestDue`: it was due | a restore point as new as `latestDue`; no age is asked for beside | the same, and beside it no older than `maxAgeMs` |
 * | `latestDue` null: not yet | no older than the longer of `intervalMs` and `maxAgeMs` | no older than `maxAgeMs` |
 *
 * An age is asked for only where no task of the VM is in the first cell.
 */
export interface Expectation {
  /** Of the task. */
  id: string;
  verbose_name: string;
  /** The newest due time that has passed by more than the grace, in ms since 1970; null: none has yet, and it asks for nothing so far. */
  latestDue: number | null;
  /**
   * The time from one of its next due times to the one after, with the grace, in ms; the longest of several when none has passed yet. Null:
   * it is due once more or never again, and what it made grows old like what no task asks for.
   */
  intervalMs: number | null;
}

/** A backup that has ended, by the controller's clock; one that was cancelled says nothing of the VM and is none. */
export interface EndedAttempt {
  /** ms since 1970. */
  ended: number;
  failed: boolean;
  /** What was wrong, for people; empty when it has not failed. */
  error: string;
  /** The end of the last one that succeeded, which may be this one, in ms since 1970; null: none is known. */
  lastSuccess: number | null;
}

export interface ProtectionFacts {
  /** An administrator does without backups of it. */
  isExcluded: boolean;
  /** Time of its newest restore point with all disks in a good file, in ms since 1970, by the clock of the node that made it. */
  lastGood: number | null;
  /** The same of a newer one that leaves out disks on request: nothing is judged by it. Null: there is none. */
  lastPartial: number | null;
  lastAttempt: EndedAttempt | null;
  expectations: readonly Expectation[];
  /** How old the newest good restore point of a VM may be that no task asks for: none covers it, has been due yet, or goes on. */
  maxAgeMs: number;
}

export interface ProtectionVerdict {
  state: ProtectionState;
  /** RFC 3339. */
  last_good: string | null;
  /** Seconds since then. */
  age: number | null;
}

export interface Protection extends ProtectionVerdict {
  /** A sentence for people. */
  reason: string;
  /** The time since when it must have a good restore point, RFC 3339; null: none is asked of it now. */
  limit: string | null;
}

/**
 * Restore points have the time of their node's clock, due times and the ends of backups that of the controller. So much may a node's clock
 * be behind without its backups being taken for those of the run before.
 */
export const CLOCKS_APART_MS = 300_000;

/**
 * So much a node's clock may be ahead, as one in another time zone is. A restore point that is yet to come by more would pass for a new one
 * for ever: its time is not believed, and the VM counts as late. One that is later than the end of the last good backup by less is that
 * backup's, and no newer; by more, somebody else made it.
 */
export const AHEAD_MS = 86_400_000;

/** By when it is judged, and by which task; no task: by its age. */
interface Limit {
  at: number;
  task: Expectation | null;
}

/** @param now ms since 1970 */
export function stateNow(facts: ProtectionFacts, now: number): ProtectionState {
  return stateOf(facts, limitOf(facts, now), now);
}

/**
 * The state, and until when it stays so unless something becomes known of the VM: it is judged again then, be it to the same effect.
 * @param now ms since 1970
 */
export function stateUntil(facts: ProtectionFacts, now: number): { state: ProtectionState; untilMs: number } {
  const turns = turningPoints(facts).filter(time => time > now);
  return { state: stateNow(facts, now), untilMs: Math.min(...turns, Number.POSITIVE_INFINITY) };
}

/** The instants at which one of the comparisons of `stateOf` and `limitOf` may come out otherwise. */
function turningPoints(facts: ProtectionFacts): number[] {
  const { isExcluded, lastGood, lastAttempt, expectations } = facts;
  if (isExcluded || lastGood === null) return [];
  const made = madeBy(lastGood, lastAttempt);
  const maxAge = maxAgeOf(facts);
  if (maxAge === null) return [lastGood - AHEAD_MS, made];
  const overtaken = expectations.flatMap(({ latestDue }) => (latestDue === null ? [] : [latestDue + maxAge]));
  return [lastGood - AHEAD_MS, made, made + maxAge + 1, ...overtaken];
}

/** The state and the age, for lists. @param now ms since 1970 */
export function verdictOf(facts: ProtectionFacts, now: number): ProtectionVerdict {
  return verdictBy(facts, limitOf(facts, now), now);
}

/** @param now ms since 1970 */
export function protectionOf(facts: ProtectionFacts, now: number): Protection {
  const limit = limitOf(facts, now);
  const verdict = verdictBy(facts, limit, now);
  return {
    ...verdict,
    reason: reasonOf(verdict.state, facts, limit, now),
    limit: limit === null ? null : textOf(limit.at),
  };
}

function verdictBy(facts: ProtectionFacts, limit: Limit | null, now: number): ProtectionVerdict {
  const { lastGood } = facts;
  return {
    state: stateOf(facts, limit, now),
    last_good: lastGood === null ? null : textOf(lastGood),
    age: lastGood === null ? null : Math.max(0, Math.floor((now - lastGood) / 1000)),
  };
}

/** The time of its newest good restore point; no later than the end of the backup that made it, whatever its node's clock shows. */
function madeBy(lastGood: number, lastAttempt: EndedAttempt | null): number {
  const end = lastAttempt?.lastSuccess ?? null;
  return end !== null && lastGood > end && lastGood <= end + AHEAD_MS ? end : lastGood;
}

function stateOf(
  { isExcluded, lastGood, lastAttempt }: ProtectionFacts,
  limit: Limit | null,
  now: number,
): ProtectionState {
  if (isExcluded) return 'excluded';
  if (lastGood === null) return 'never';
  if (lastGood > now + AHEAD_MS) return 'late';
  const made = madeBy(lastGood, lastAttempt);
  if (limit !== null && made < limit.at - (limit.task ? CLOCKS_APART_MS : 0)) return 'late';
  // one that is yet to come is not known to be newer than the failure
  if (lastAttempt?.failed && (made <= lastAttempt.ended || made > now)) return 'failing';
  return 'protected';
}

/** What was due last, and the age it may have, ask for a restore point each: the one that asks for a newer one counts. */
function limitOf(facts: ProtectionFacts, now: number): Limit | null {
  if (facts.isExcluded) return null;
  const age = maxAgeOf(facts);
  let newest: Limit | null = age === null ? null : { at: now - age, task: null };
  for (const task of facts.expectations) {
    const { latestDue: at } = task;
    if (at !== null && (newest === null || at > newest.at)) newest = { at, task };
  }
  return newest;
}

/**
 * Null: a task that was due and will be again bounds the age by its due times. One that has not been due yet does not: making it must not
 * silence an alarm for as long. But its intervals are long enough for who made it: moving the start of a monthly task must raise none.
 */
function maxAgeOf({ expectations, maxAgeMs }: ProtectionFacts): number | null {
  if (expectations.some(({ latestDue, intervalMs }) => latestDue !== null && intervalMs !== null))
    return null;
  return Math.max(maxAgeMs, ...expectations.map(({ intervalMs }) => intervalMs ?? 0));
}

function reasonOf(state: ProtectionState, facts: ProtectionFacts, limit: Limit | null, now: number): string {
  const { lastGood, lastPartial, lastAttempt } = facts;
  const failure = lastAttempt?.failed ? ` The last attempt failed: ${lastAttempt.error}` : '';
  const partial =
    lastPartial === null
      ? ''
      : ` The newest restore point, of ${textOf(lastPartial)}, leaves out disks on request (exclude_vdisks).`;
  switch (state) {
    case 'excluded':
      return 'An administrator has excluded it.';
    case 'never':
      return `It has no good restore point${partial === '' ? '' : ' with all of its disks'}.${partial}${failure}`;
    case 'late':
      if (lastGood! > now + AHEAD_MS)
        return `Its newest good restore point is of ${textOf(lastGood!)}, which is yet to come: a clock was wrong, and nobody knows how old it is.`;
      return `${lateReason(facts, limit!, now)}${partial}${failure}`;
    case 'failing':
      return `The last attempt failed: ${lastAttempt?.error}${partial}`;
    case 'protected':
      return `Its newest good restore point is of ${textOf(lastGood!)}.`;
  }
}

function lateReason(facts: ProtectionFacts, { at, task }: Limit, now: number): string {
  const { expectations, lastGood, lastAttempt } = facts;
  const made = madeBy(lastGood!, lastAttempt);
  const clock =
    made === lastGood
      ? ''
      : ` The newest one says ${textOf(lastGood!)}, but its backup had ended by ${textOf(made)}: a clock is ahead.`;
  if (task)
    return `The scheduled task ${task.verbose_name} was due at ${textOf(at)}, and no good restore point is as new.${clock}`;
  const none =
    expectations.length === 0
      ? 'No scheduled task covers it'
      : 'No scheduled task that covers it has been due and will be again';
  return `${none}, and its newest good restore point is older than ${daysOf(now - at)}.${clock}`;
}

function daysOf(ms: number): string {
  const days = Math.round(ms / 8_640_000) / 10;
  return days === 1 ? 'a day' : `${days} days`;
}

const textOf = (ms: number): string => new Date(ms).toISOString();
