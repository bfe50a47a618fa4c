import { escapeHidden, withoutHidden } from '@virtkeep/shared/hidden-characters';
import Table from 'cli-table3';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** "1.50 GiB": for people; `--json` has bytes. */
export function bytes(value: unknown): string {
  let amount = Number(value ?? 0);
  let unit = 0;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${amount} B` : `${amount.toFixed(amount < 10 ? 2 : 1)} ${UNITS[unit]}`;
}

/**
 * Reads a size that people write: "500", "20M", "1.5 GiB"; units of 1024.
 * @returns undefined when it is none.
 */
export function parseBytes(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*(?:([KMGTP])(?:i?B)?|B)?$/i.exec(text.trim());
  if (!match) return undefined;
  return Math.round(Number(match[1]) * 1024 ** ('KMGTP'.indexOf((match[2] ?? '').toUpperCase() || ' ') + 1));
}

/** Makes text of other people safe for a terminal: no control characters, so no escape sequences. */
export function clean(value: unknown): string {
  return withoutHidden(String(value ?? ''));
}

/** A table with a head on a terminal, tab-separated lines without one in a pipe. */
export function printTable(head: string[], rows: unknown[][]): void {
  if (!process.stdout.isTTY) {
    for (const row of rows) print(row.map(clean).join('\t'));
    return;
  }
  const blank = {
    top: '',
    'top-mid': '',
    'top-left': '',
    'top-right': '',
    bottom: '',
    'bottom-mid': '',
    'bottom-left': '',
    'bottom-right': '',
    left: '',
    'left-mid': '',
    mid: '',
    'mid-mid': '',
    right: '',
    'right-mid': '',
    middle: '  ',
  };
  const table = new Table({
    head,
    chars: blank,
    style: { 'padding-left': 0, 'padding-right': 0, head: ['bold'], border: [] },
  });
  for (const row of rows) table.push(row.map(clean));
  print(table.toString());
}

/** Name and value, one a line. */
export function printFields(fields: [string, unknown][]): void {
  const width = Math.max(...fields.map(([name]) => name.length));
  for (const [name, value] of fields) print(`${name.padEnd(width)}  ${clean(value)}`);
}

/** As indented JSON; what would do something on a terminal is escaped. */
export function printJson(value: unknown): void {
  print(JSON.stringify(value, null, 2).split('\n').map(escapeHidden).join('\n'));
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Goes to stderr, so that a pipe gets results only. Names in it may be other people's. */
export function note(text: string): void {
  process.stderr.write(`${text.split('\n').map(clean).join('\n')}\n`);
}
