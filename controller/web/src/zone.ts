/** What the clocks of a time zone show, and when they show it. Pure. */

export interface WallTime {
  /** `2026-03-01` */
  date: string;
  /** `02:00` */
  time: string;
}

/** @param instant as RFC 3339 */
export function wallTime(instant: string, zone: string): WallTime {
  const { year, month, day, hour, minute } = shown(Date.parse(instant), zone);
  return { date: `${year}-${month}-${day}`, time: `${hour}:${minute}` };
}

/**
 * When the clocks show it: the first time when they do so twice, a while later when they never do.
 * @returns RFC 3339; undefined for what is no date or time
 */
export function instantOf({ date, time }: WallTime, zone: string): string | undefined {
  const wanted = Date.parse(`${date}T${time}:00Z`);
  if (Number.isNaN(wanted)) return undefined;
  const offset = (instant: number) => {
    const { year, month, day, hour, minute } = shown(instant, zone);
    return (
      Date.parse(`${year}-${month}-${day}T${hour}:${minute}:00Z`) - Math.floor(instant / 60_000) * 60_000
    );
  };
  const candidates = [wanted - offset(wanted - DAY_MS), wanted - offset(wanted + DAY_MS)];
  const exact = candidates.find(instant => instant + offset(instant) === wanted);
  return new Date(exact ?? (candidates[0] as number)).toISOString();
}

const DAY_MS = 86_400_000;

function shown(instant: number, zone: string): Record<'year' | 'month' | 'day' | 'hour' | 'minute', string> {
  const format = new Intl.DateTimeFormat('en-GB', {
    timeZone: zone,
    hourCycle: 'h23',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
  });
  const parts = format.formatToParts(new Date(instant)).map(({ type, value }) => [type, value]);
  return Object.fromEntries(parts);
}

/** Zones that the browser knows; what else is given goes before them. */
export function timeZones(given: string): string[] {
  const known = ['UTC', ...Intl.supportedValuesOf('timeZone')];
  return known.includes(given) ? known : [given, ...known];
}
