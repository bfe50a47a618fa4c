/** Numbers, sizes and times as people read them, in their language and time zone. Pure. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const STEP = 1024;
const AGES: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
];

export interface Format {
  /** In binary units. */
  size: (bytes: number) => string;
  /** With the time zone. */
  time: (time: string | null | undefined) => string;
  /** `3 hours ago`, `in 2 days`. */
  age: (time: string | null | undefined, now?: number) => string;
  number: (value: number) => string;
  /** A date as `2026-03-01`, by its day and month. */
  day: (date: string) => string;
}

/** @param none what stands for no time at all */
export function formatOf(language: string, none: string): Format {
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
  return {
    size: bytes => {
      let [value, unit] = [bytes, 0];
      for (; value >= STEP && unit < UNITS.length - 1; unit += 1) value /= STEP;
      return `${decimal.format(value)} ${UNITS[unit]}`;
    },
    time: time => (time ? stamp.format(new Date(time)) : none),
    age: (time, now = Date.now()) => {
      if (!time) return none;
      const seconds = (Date.parse(time) - now) / 1000;
      const [unit, length] = AGES.find(([, size]) => Math.abs(seconds) >= size) ?? ['second', 1];
      return relative.format(Math.round(seconds / length), unit);
    },
    number: value => decimal.format(value),
    day: date => short.format(new Date(`${date}T00:00:00Z`)),
  };
}

/** The time zone of this browser. */
export const timeZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
