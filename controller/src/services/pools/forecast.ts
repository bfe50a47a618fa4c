/**
 * In how many days a data pool is full, from how much was used on each day. Pure.
 *
 * The growth is the median of what was added over weeks, one week beginning at each day. Backups go by the week: increments from day to day,
 * a full one on one of them, and as often retention removes what is old. From one day to the next the median sees the increments alone, and
 * tells of a pool that fills up though each week takes away what it brings; over all pairs of days (Theil–Sen) one large removal stands
 * between half of them, and hides what goes on before and after it. A week holds one round of everything, and a removal touches only the
 * seven that hold it.
 */

export interface PoolSample {
  /** `2026-03-01`, UTC. */
  day: string;
  /** Bytes. */
  used: number;
}

export const FORECAST_STATES = ['unknown', 'steady', 'filling'] as const;
export const FORECAST_BASES = ['samples', 'backups'] as const;

/** How fast a pool fills up, and from what that is known. */
export interface Growth {
  /** Bytes a day; negative where it shrinks. */
  perDay: number;
  basis: (typeof FORECAST_BASES)[number];
}

export interface Forecast {
  state: (typeof FORECAST_STATES)[number];
  days: number | null;
  growth_per_day: number | null;
  basis: Growth['basis'] | null;
}

const DAY_MS = 86_400_000;
const WEEK_DAYS = 7;
/** Two days that are further apart than a week and this, since there are none between, tell of no week. */
const MAX_SPAN_DAYS = 2 * WEEK_DAYS;
/** So many weeks must have been seen, which overlap. */
const LEAST_WEEKS = 7;
/** So many days must have passed since the first backup: a new pool takes up its full backups first. */
const LEAST_BACKUP_DAYS = 7;
/** What is full later than in two years is not told: until then everything is another. */
const LONGEST_DAYS = 730;

export const UNKNOWN: Forecast = { state: 'unknown', days: null, growth_per_day: null, basis: null };

/** @param samples in any order, at most one a day. @returns undefined: too few weeks were seen */
export function growthOf(samples: readonly PoolSample[]): Growth | undefined {
  const sorted = samples
    .map(({ day, used }) => ({ day: Date.parse(day) / DAY_MS, used }))
    .sort((a, b) => a.day - b.day);
  const rates = sorted.flatMap((first, index) => {
    const last = sorted.slice(index + 1).find(({ day }) => day - first.day >= WEEK_DAYS);
    const span = last === undefined ? Number.POSITIVE_INFINITY : last.day - first.day;
    return span > MAX_SPAN_DAYS ? [] : [(last!.used - first.used) / span];
  });
  return rates.length < LEAST_WEEKS ? undefined : { perDay: medianOf(rates), basis: 'samples' };
}

/**
 * While a pool is not known for long: as much a day as its backups of the last weeks have brought, as if none of them were ever removed.
 * @param first when the first of them was made
 * @param bytes of all of them
 */
export function growthOfBackups(first: Date, bytes: number, now: Date): Growth | undefined {
  const days = (now.getTime() - first.getTime()) / DAY_MS;
  return days < LEAST_BACKUP_DAYS ? undefined : { perDay: bytes / days, basis: 'backups' };
}

/** @param freeBytes as it is now: a pool that was made larger has more of it */
export function forecastOf(growth: Growth | undefined, freeBytes: number): Forecast {
  if (growth === undefined) return UNKNOWN;
  const { perDay, basis } = growth;
  const days = perDay > 0 ? Math.floor(freeBytes / perDay) : Number.POSITIVE_INFINITY;
  const known = { growth_per_day: Math.round(perDay), basis };
  return days > LONGEST_DAYS
    ? { state: 'steady', days: null, ...known }
    : { state: 'filling', days, ...known };
}

function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
