/** Tables as a terminal has room for them; pure. */

const MIN_WIDTH = 8;
const GAP = 2;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const UNITS: [string, number][] = [
  ['d', 86_400],
  ['h', 3600],
  ['min', 60],
  ['s', 1],
];

/** In the largest unit of which it is two or more. @param seconds not negative */
export function durationText(seconds: number): string {
  const [unit, length] = UNITS.find(([, size]) => seconds >= 2 * size) ?? ['s', 1];
  return `${Math.floor(seconds / length)} ${unit}`;
}

/** `5 d ago`, `in 3 h`. @param now in ms since 1970 */
export function ageText(time: string, now: number): string {
  const seconds = (now - Date.parse(time)) / 1000;
  return seconds < 0 ? `in ${durationText(-seconds)}` : `${durationText(seconds)} ago`;
}

/** A time of the API to the minute, with its age; anything else as it is. */
export function withAge(text: string, now: number): string {
  if (!TIME.test(text)) return text;
  return `${text.slice(0, 10)} ${text.slice(11, 16)}Z ${ageText(text, now)}`;
}

/** Without the columns of these heads. */
export function without(heads: readonly string[], head: readonly string[], rows: readonly string[][]) {
  const kept = head.map((name, index) => ({ name, index })).filter(({ name }) => !heads.includes(name));
  const pick = (cells: readonly string[]) => kept.map(({ index }) => cells[index] ?? '');
  return { head: kept.map(({ name }) => name), rows: rows.map(pick) };
}

/** Rows whose longest cells are cut, so that all columns fit; one that is narrower than `MIN_WIDTH`, or its head, is not cut. */
export function fitted(head: readonly string[], rows: readonly string[][], width: number): string[][] {
  const lengthOf = (text: string) => [...text].length;
  const widths = head.map((name, index) =>
    Math.max(lengthOf(name), ...rows.map(row => lengthOf(row[index] ?? ''))),
  );
  const least = head.map((name, index) => Math.min(widths[index]!, Math.max(MIN_WIDTH, lengthOf(name))));
  const total = () => widths.reduce((sum, one) => sum + one, GAP * (head.length - 1));
  while (total() > width) {
    const cuttable = widths.map((one, index) => (one > least[index]! ? one : 0));
    const widest = cuttable.indexOf(Math.max(...cuttable));
    if (cuttable[widest] === 0) break;
    widths[widest]! -= 1;
  }
  return rows.map(row => row.map((cell, index) => cut(cell, widths[index]!)));
}

function cut(text: string, length: number): string {
  const characters = [...text];
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join('')}…`;
}
