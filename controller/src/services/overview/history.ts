/** What became of the backups of VMs, day by day. Pure. */

export const DAY_RESULTS = ['none', 'good', 'mixed', 'failed'] as const;
export type DayResult = (typeof DAY_RESULTS)[number];

/** A backup that ended. */
export interface EndedBackup {
  domain: string;
  /** RFC 3339. */
  ended: string;
  isGood: boolean;
}

const DAY_MS = 86_400_000;
/** No time zone is farther from UTC. */
const FARTHEST_MS = 14 * 3_600_000;

/** The last days of a time zone as `2026-03-01`, the present one last. */
export function lastDays(now: Date, timeZone: string, count: number): string[] {
  const today = Date.parse(`${dayIn(timeZone)(now)}T00:00:00Z`);
  return Array.from({ length: count }, (_, index) =>
    new Date(today - (count - 1 - index) * DAY_MS).toISOString().slice(0, 10),
  );
}

/** An instant that is not after the beginning of this day, wherever. */
export function notAfterBegin(day: string): string {
  return new Date(Date.parse(`${day}T00:00:00Z`) - FARTHEST_MS).toISOString();
}

/** For each VM of which something is known, what became of its backups on each of these days. */
export function resultsByDay(
  backups: Iterable<EndedBackup>,
  days: readonly string[],
  timeZone: string,
): Map<string, DayResult[]> {
  const positions = new Map(days.map((day, index) => [day, index]));
  const dayOf = dayIn(timeZone);
  const results = new Map<string, DayResult[]>();
  for (const { domain, ended, isGood } of backups) {
    const position = positions.get(dayOf(new Date(ended)));
    if (position === undefined) continue;
    const ofDomain = results.get(domain) ?? noResults(days);
    ofDomain[position] = together(ofDomain[position]!, isGood ? 'good' : 'failed');
    results.set(domain, ofDomain);
  }
  return results;
}

/** Of a VM of which nothing is known. */
export function noResults(days: readonly string[]): DayResult[] {
  return days.map(() => 'none');
}

function together(before: DayResult, one: DayResult): DayResult {
  return before === 'none' || before === one ? one : 'mixed';
}

/** @throws RangeError for a time zone that nobody knows. */
function dayIn(timeZone: string): (instant: Date) => string {
  // of all locales the one that writes a date as RFC 3339 does
  const format = new Intl.DateTimeFormat('en-CA', {
    timeZone,
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
  });
  return instant => format.format(instant);
}
