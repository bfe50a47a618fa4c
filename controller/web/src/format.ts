/** Numbers, sizes and times as people read them, in their language and time zone. Pure. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const STEP = 1024;
const AGES: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
];

const DAY_MS = 86_400_000;
const A_MONDAY = Date.UTC(2024, 0, 1);

export interface Format {
  /** In binary units. */
  size: (bytes: number) => string;
  /** With the time zone. */
  time: (time: string | null | undefined) => string;
  /** `3 hours ago`, `in 2 days`. */
  age: (time: string | null | undefined, now?: number) => string;
  /** `3 min`, `2 hr`: of seconds, in the largest unit that it has. */
  duration: (seconds: number) => string;
  number: (value: number) => string;
  /** A date as `2026-03-01`, by its day and month. */
  day: (date: string) => string;
  /** `Mon`, of the first day of the week and on. */
  weekday: (index: number) => string;
  /** `Mon 2 Mar` */
  weekdayAndDay: (day: Date) => string;
  /** `March 2026` */
  month: (day: Date) => string;
  /** `2 – 8 March 2026` */
  days: (first: Date, last: Date) => string;
  /** With its second, as a log needs it. */
  second: (time: string) => string;
  /** `02:00` */
  clock: (time: string) => string;
}

/**
 * @param none what stands for no time at all
 * @param present what time it is
 */
export function formatOf(language: string, none: string, present: () => number = Date.now): Format {
  const decimal = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
  const stamp = new Intl.DateTimeFormat(language, {
    year: 'numeric',
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    timeZoneName: 'short',
  });
  const relative = new Intl.RelativeTimeFormat(language, { numeric: 'auto' });
  const short = new Intl.DateTimeFormat(language, { day: 'numeric', month: 'numeric', timeZone: 'UTC' });
  const weekday = new Intl.DateTimeFormat(language, { weekday: 'short', timeZone: 'UTC' });
  const dated = new Intl.DateTimeFormat(language, { weekday: 'short', day: 'numeric', month: 'short' });
  const month = new Intl.DateTimeFormat(language, { month: 'long', year: 'numeric' });
  const span = new Intl.DateTimeFormat(language, { day: 'numeric', month: 'long', year: 'numeric' });
  const second = new Intl.DateTimeFormat(language, { dateStyle: 'short', timeStyle: 'medium' });
  const clock = new Intl.DateTimeFormat(language, { hour: '2-digit', minute: '2-digit' });
  return {
    size: bytes => {
      let [value, unit] = [bytes, 0];
      for (; value >= STEP && unit < UNITS.length - 1; unit += 1) value /= STEP;
      return `${decimal.format(value)} ${UNITS[unit]}`;
    },
    time: time => (time ? stamp.format(new Date(time)) : none),
    age: (time, now = present()) => {
      if (!time) return none;
      const seconds = (Date.parse(time) - now) / 1000;
      const [unit, length] = AGES.find(([, size]) => Math.abs(seconds) >= size) ?? ['second', 1];
      return relative.format(Math.round(seconds / length), unit);
    },
    duration: seconds => {
      const [unit, length] = AGES.find(([, size]) => seconds >= size) ?? ['second', 1];
      const style = { style: 'unit', unit, unitDisplay: 'short' } as const;
      return new Intl.NumberFormat(language, style).format(Math.max(1, Math.round(seconds / length)));
    },
    number: value => decimal.format(value),
    day: date => short.format(new Date(`${date}T00:00:00Z`)),
    weekday: index => weekday.format(new Date(A_MONDAY + index * DAY_MS)),
    weekdayAndDay: day => dated.format(day),
    month: day => month.format(day),
    days: (first, last) => span.formatRange(first, last),
    second: time => second.format(new Date(time)),
    clock: time => clock.format(new Date(time)),
  };
}

/** The time zone of this browser. */
export const timeZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
