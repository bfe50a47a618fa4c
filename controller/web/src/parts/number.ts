/** What is written in a field for a number. Pure. */

export interface NumberRange {
  min?: number;
  max?: number;
  /** What one of the written number means of the value; in units of more than 1 parts of one may be written, too. */
  unit?: number;
}

/** NaN: it is none of the range, which a form must not send. */
export function readNumber(text: string, { min = 0, max = Number.MAX_SAFE_INTEGER, unit = 1 }: NumberRange) {
  if (text.trim() === '') return Number.NaN;
  const written = Number(text);
  if (!(written >= min && written <= max)) return Number.NaN;
  // what is written is not to become 0, which often means that there is no limit
  const value = unit === 1 || written === 0 ? written : Math.max(1, Math.round(written * unit));
  return Number.isSafeInteger(value) ? value : Number.NaN;
}

/** What stays in the field: what is written there, unless the value has become another one. */
export function shownNumber(text: string, value: number, range: NumberRange): string {
  return Object.is(readNumber(text, range), value) ? text : String(value / (range.unit ?? 1));
}

/** Whether all numbers of a form are such, also those of its parts. */
export function isWritten(form: object): boolean {
  return Object.values(form).every(value =>
    typeof value === 'object' && value !== null ? isWritten(value) : !Number.isNaN(value),
  );
}
