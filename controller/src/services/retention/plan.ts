/**
 * Which backups of a scheduled task stay and which go, each with its reason; pure. The rules are those of the specification's 2.4 (a number
 * of backups, an age, space for the next one), and those of grandfather, father, son as Proxmox has them: in the order of their periods,
 * each keeps the newest backup of as many periods as it says. A period of which an earlier rule keeps one is not counted, and what shares a
 * period with a newer one that is kept is looked at no more.
 *
 * All is counted for each VM alone, and only what the task itself made. Whatever the rules say, these stay: the newest good backup, what is
 * protected, what is read or worked on just now, and what the VM's next increment would extend. Which is the newest good one is judged as
 * protection does (`services/protection/rules.ts`): by restore points with all disks, and no time is believed that is yet to come by more than
 * a day.
 */
import { ZoneTime } from '@virtkeep/shared/zone-time';
import { AHEAD_MS } from '../protection/rules.ts';

export const PERIODS = ['last', 'hourly', 'daily', 'weekly', 'monthly', 'yearly'] as const;
export type Period = (typeof PERIODS)[number];

export interface RetentionRules {
  /** So many of the newest good ones stay; null: however many there are. From 1. */
  keepCount: number | null;
  /** Older ones go, in days of 24 hours; null: of any age. From 1. */
  limitDays: number | null;
  /** Of how many periods the newest one stays; null: this rule is not used. At least one of them is above 0. */
  keep: Partial<Record<Period, number>> | null;
  /** IANA name: where days, weeks and so on begin. */
  timeZone: string;
}

export interface RetentionFile {
  id: string;
  domainId: string;
  /** Time of its newest restore point, in ms since 1970. */
  newest: number;
  /** The same of those that leave out no disks on request; null: it has no such one. */
  newestWhole: number | null;
  /** It is complete, and neither failed nor found damaged. */
  isGood: boolean;
  isProtected: boolean;
  /** Somebody reads it: a restore, a download, a verification. */
  isRead: boolean;
  /** It is being made, extended, converted or removed. */
  isBusy: boolean;
  /** The VM has the saved states from which it would be extended. */
  isExtendable: boolean;
  /** Bytes that it takes on its pool. */
  size: number;
}

export type KeepReason =
  | 'newest_good'
  | 'protected'
  | 'being_read'
  | 'busy'
  | 'extendable'
  | 'within_rules'
  | `keep_${Period}`
  /** Not good, and no good one is newer: there may be something in it. */
  | 'not_yet_replaced';
export type DeleteReason = 'beyond_count' | 'too_old' | 'in_no_period' | 'space';

export type Verdict =
  | { id: string; action: 'keep'; reason: KeepReason }
  | { id: string; action: 'delete'; reason: DeleteReason };

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Days are counted from a Thursday. */
const THURSDAY_FROM_MONDAY = 3;

/**
 * @param files all that the task made, in any order
 * @param now ms since 1970
 * @returns a verdict for each file: VM by VM, the newest first
 */
export function planRetention(
  files: readonly RetentionFile[],
  rules: RetentionRules,
  now: number,
): Verdict[] {
  const zone = new ZoneTime(rules.timeZone);
  const verdicts: Verdict[] = [];
  for (const ofDomain of Map.groupBy(files, ({ domainId }) => domainId).values())
    verdicts.push(...planDomain(ofDomain.toSorted(newestFirst), rules, zone, now));
  return verdicts;
}

/** Ids decide between files of one instant, so that the plan is the same each time. */
const newestFirst = (a: RetentionFile, b: RetentionFile): number =>
  b.newest - a.newest || (a.id < b.id ? -1 : 1);

function planDomain(
  files: readonly RetentionFile[],
  rules: RetentionRules,
  zone: ZoneTime,
  now: number,
): Verdict[] {
  const newest = newestGood(files, now);
  // what is protected stays by itself, and takes no place of those that the rules keep
  const counted = files.filter(({ isGood, isProtected }) => isGood && !isProtected);
  const periods = rules.keep && byPeriods(counted, rules.keep, zone);
  const oldestKept = periods && counted.findLast(({ id }) => periods.has(id));
  let newer = 0;
  return files.map((file): Verdict => {
    const { id } = file;
    const before = newer;
    if (file.isGood && !file.isProtected) newer += 1;
    const guard = guardOf(file, newest);
    if (guard !== undefined) return { id, action: 'keep', reason: guard };
    if (rules.limitDays !== null && now - file.newest > rules.limitDays * DAY_MS)
      return { id, action: 'delete', reason: 'too_old' };
    if (rules.keepCount !== null && before >= rules.keepCount)
      return { id, action: 'delete', reason: 'beyond_count' };
    if (periods !== null) {
      const period = periods.get(id);
      if (period !== undefined) return { id, action: 'keep', reason: `keep_${period}` };
      if (file.isGood || (oldestKept && file.newest < oldestKept.newest))
        return { id, action: 'delete', reason: 'in_no_period' };
    }
    return { id, action: 'keep', reason: 'within_rules' };
  });
}

/** Those of a VM's good backups that stay since none is newer. */
interface NewestGood {
  /** With the newest restore point of all, whatever is wrong with it. */
  last: RetentionFile | undefined;
  /** With the newest one that has all disks and is not yet to come. */
  whole: RetentionFile | undefined;
}

/** @param files of one VM, newest first */
function newestGood(files: readonly RetentionFile[], now: number): NewestGood {
  const good = files.filter(({ isGood }) => isGood);
  const whole = good
    .filter(({ newestWhole }) => newestWhole !== null && !isYetToCome(newestWhole, now))
    .toSorted((a, b) => b.newestWhole! - a.newestWhole!);
  return { last: good[0], whole: whole[0] };
}

/** By so much that a clock was wrong: nobody knows how old it is. */
const isYetToCome = (time: number, now: number): boolean => time > now + AHEAD_MS;

/** Why it stays whatever the rules say. */
function guardOf(file: RetentionFile, { last, whole }: NewestGood): KeepReason | undefined {
  if (file === last || file === whole) return 'newest_good';
  if (file.isProtected) return 'protected';
  if (file.isBusy) return 'busy';
  if (file.isRead) return 'being_read';
  if (file.isExtendable) return 'extendable';
  if (!file.isGood && (whole === undefined || whole.newestWhole! <= file.newest)) return 'not_yet_replaced';
  return undefined;
}

/** Which are kept, by which rule. @param files newest first */
function byPeriods(
  files: readonly RetentionFile[],
  keep: Partial<Record<Period, number>>,
  zone: ZoneTime,
): Map<string, Period> {
  const kept = new Map<string, Period>();
  const keptFiles: RetentionFile[] = [];
  /** They share a period with a newer one that a rule keeps: no later rule looks at them. */
  const covered = new Set<string>();
  for (const period of PERIODS) {
    const wanted = keep[period] ?? 0;
    if (wanted === 0) continue;
    const keyOf = (file: RetentionFile) => periodKey(file, period, zone);
    const before = new Set(keptFiles.map(keyOf));
    const found = new Set<string | number>();
    for (const file of files) {
      const { id } = file;
      if (kept.has(id) || covered.has(id)) continue;
      const key = keyOf(file);
      if (before.has(key)) continue;
      if (found.has(key)) covered.add(id);
      else if (found.size === wanted) break;
      else {
        kept.set(id, period);
        keptFiles.push(file);
      }
      found.add(key);
    }
  }
  return kept;
}

/** The same for all instants of one period. Weeks begin on Monday. */
function periodKey({ id, newest }: RetentionFile, period: Period, zone: ZoneTime): string | number {
  if (period === 'last') return id;
  const offset = zone.offsetAt(newest);
  const shown = newest + offset;
  const day = Math.floor(shown / DAY_MS);
  switch (period) {
    // an hour that the clocks show twice is two hours
    case 'hourly':
      return `${Math.floor(shown / HOUR_MS)} ${offset}`;
    case 'daily':
      return day;
    case 'weekly':
      return Math.floor((day + THURSDAY_FROM_MONDAY) / 7);
    case 'monthly':
      return new Date(shown).getUTCFullYear() * 12 + new Date(shown).getUTCMonth();
    case 'yearly':
      return new Date(shown).getUTCFullYear();
  }
}

/**
 * The oldest backups that must go so that the next one fits; none when all that may go would not make the space. What is yet to come is not
 * known to be old.
 * @param files of one pool, of tasks that make space so
 * @param missing bytes that are to become free
 * @param now ms since 1970
 */
export function planSpace(files: readonly RetentionFile[], missing: number, now: number): Verdict[] {
  const sorted = files.toSorted(newestFirst);
  const newest = new Map<string, NewestGood>();
  for (const [id, ofDomain] of Map.groupBy(sorted, ({ domainId }) => domainId))
    newest.set(id, newestGood(ofDomain, now));
  const going: RetentionFile[] = [];
  let freed = 0;
  for (const file of sorted.toReversed()) {
    if (freed >= missing) break;
    if (isYetToCome(Math.max(file.newest, file.newestWhole ?? file.newest), now)) continue;
    if (guardOf(file, newest.get(file.domainId)!) !== undefined) continue;
    going.push(file);
    freed += file.size;
  }
  return freed < missing ? [] : going.map(({ id }) => ({ id, action: 'delete', reason: 'space' }));
}
