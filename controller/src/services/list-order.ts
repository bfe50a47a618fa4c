/** In which order the records of a list come; pure. */

/** Everything else is told by its text. */
export type SortKey = unknown;

/** Texts of these characters are in the order of their codes in every collation of English; comparing them so is ten times as fast. */
const PLAIN = /^[-0-9a-z]*$/;
/** So are times, among each other. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

const isPlain = (value: unknown): boolean => typeof value === 'string' && PLAIN.test(value);
const isTime = (value: unknown): boolean => typeof value === 'string' && TIME.test(value);

/** Whether these texts are in the order of their codes. */
const areByCode = (values: readonly unknown[]): boolean => values.every(isPlain) || values.every(isTime);

/** Numbers by value, everything else by its text; what is absent comes first. */
export function compareKeys(a: SortKey, b: SortKey): number {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return compareTexts(sortText(a), sortText(b));
}

export function compareTexts(a: string, b: string): number {
  if ((isPlain(a) && isPlain(b)) || (isTime(a) && isTime(b))) return compareCodes(a, b);
  return a.localeCompare(b, 'en');
}

const compareCodes = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Puts things in the order of a key; equal ones by their id, in either direction. */
export function inOrder<T>(
  things: readonly T[],
  keyOf: (thing: T) => SortKey,
  idOf: (thing: T) => SortKey,
  descending: boolean,
): T[] {
  const keyed = things.map(thing => ({ thing, key: keyOf(thing), id: idOf(thing) }));
  const sign = descending ? -1 : 1;
  if (areByCode(keyed.map(({ key }) => key)) && areByCode(keyed.map(({ id }) => id)))
    keyed.sort(
      (a, b) =>
        sign * compareCodes(a.key as string, b.key as string) || compareCodes(a.id as string, b.id as string),
    );
  else keyed.sort((a, b) => sign * compareKeys(a.key, b.key) || compareKeys(a.id, b.id));
  return keyed.map(({ thing }) => thing);
}

/** Objects like `{id, verbose_name}` sort by their name. */
function sortText(value: unknown): string {
  if (typeof value === 'object' && value !== null && 'verbose_name' in value)
    return String(value.verbose_name);
  return String(value);
}
