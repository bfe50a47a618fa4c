/** The days that a calendar shows, by the clocks of this browser. Pure. */

export type View = 'week' | 'month';

export interface Day {
  /** `2026-03-01` */
  date: string;
  begins: Date;
  /** The first instant that is not of it. */
  ends: Date;
  /** Of the month that is shown. */
  isMeant: boolean;
}

const DAYS = 7;

export function dateOf(day: Date): string {
  const two = (value: number) => String(value).padStart(2, '0');
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
}

/** A date of an address; today for what is none. */
export function dayOf(date: string, today: Date): Date {
  const [year = 0, month = 0, day = 0] = date.split('-').map(Number);
  const given = new Date(year, month - 1, day);
  return /^\d{4}-\d\d-\d\d$/.test(date) && dateOf(given) === date
    ? given
    : new Date(today.getFullYear(), today.getMonth(), today.getDate());
}

/** Whole weeks, from Monday on, that hold the day, or its month. */
export function daysOf(view: View, day: Date): Day[] {
  const first = view === 'week' ? day : new Date(day.getFullYear(), day.getMonth(), 1);
  const last = view === 'week' ? day : new Date(day.getFullYear(), day.getMonth() + 1, 0);
  const days: Day[] = [];
  const monday = first.getDate() - ((first.getDay() + 6) % DAYS);
  for (let number = monday; ; number += 1) {
    const begins = new Date(first.getFullYear(), first.getMonth(), number);
    if (days.length % DAYS === 0 && begins > last) return days;
    const ends = new Date(first.getFullYear(), first.getMonth(), number + 1);
    days.push({
      date: dateOf(begins),
      begins,
      ends,
      isMeant: view === 'week' || begins.getMonth() === day.getMonth(),
    });
  }
}

/** The day by which the view before or after is shown. */
export function moved(view: View, day: Date, steps: number): Date {
  return view === 'week'
    ? new Date(day.getFullYear(), day.getMonth(), day.getDate() + steps * DAYS)
    : new Date(day.getFullYear(), day.getMonth() + steps, 1);
}
