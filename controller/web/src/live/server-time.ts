/** What time it is by the clock of the controller, of which ages and due times are told: that of the browser may be off. */

/** By so much answers are late, and their header tells whole seconds. */
const TOLERANCE_MS = 5000;
let offsetMs = 0;

/** Of each answer. @param date its header `Date` */
export function noteServerTime(date: string | null): void {
  const told = Date.parse(date ?? '');
  if (Number.isNaN(told)) return;
  const differenceMs = told - Date.now();
  if (Math.abs(differenceMs - offsetMs) > TOLERANCE_MS)
    offsetMs = Math.abs(differenceMs) > TOLERANCE_MS ? differenceMs : 0;
}

/** In ms since 1970. */
export const serverNow = (): number => Date.now() + offsetMs;
