/** In which order the records of a list come; pure. */

/** Everything else is told by its text. */
export type SortKey = unknown;

/** Texts of these characters are in the order of their codes in every collation of English; comparing them so is ten times as fast. */
const PLAIN = /^[-0-9a-z]*$/;

export const isPlain = (value: unknown): value is string => typeof value === 'string' && PLAIN.test(value);

/** Numbers by value, everything else by its text; what is absent comes first. */
export function compareKeys(a: SortKey, b: SortKey): number {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return compareTexts(sortText(a), sortText(b));
}

export function compareTexts(a: string, b: string): number {
  if (isPlain(a) && isPlain(b)) return comparePlain(a, b);
  return a.localeCompare(b, 'en');
}

export const comparePlain = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Objects like `{id, verbose_name}` sort by their name. */
function sortText(value: unknown): string {
  if (typeof value === 'object' && value !== null && 'verbose_name' in value)
    return String(value.verbose_name);
  return String(value);
}
