import { escapeHidden, hasHidden, withoutHidden } from '@virtkeep/shared/hidden-characters';
import Table from 'cli-table3';
import { Document, visit } from 'yaml';
import { outputForm } from './output-form.ts';
import { fitted, withAge, without } from './table.ts';

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

/**
 * A table with a head on a terminal, as wide as that is and with ages beside times; tab-separated lines without one in a pipe. Ids
 * are left out on a terminal, unless `-o wide` asks for them.
 */
export function printTable(head: string[], rows: unknown[][]): void {
  if (!process.stdout.isTTY) {
    for (const row of rows) print(row.map(clean).join('\t'));
    return;
  }
  const now = Date.now();
  const cells = rows.map(row => row.map(value => withAge(clean(value), now)));
  if (outputForm() === 'wide') {
    printCells(head, cells);
    return;
  }
  const shown = without(['ID'], head, cells);
  printCells(shown.head, fitted(shown.head, shown.rows, process.stdout.columns));
}

function printCells(head: string[], rows: string[][]): void {
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
  for (const row of rows) table.push(row);
  print(table.toString());
}

/** Name and value, one a line. */
export function printFields(fields: [string, unknown][]): void {
  const width = Math.max(...fields.map(([name]) => name.length));
  const told = (value: unknown) => (process.stdout.isTTY ? withAge(clean(value), Date.now()) : clean(value));
  for (const [name, value] of fields) print(`${name.padEnd(width)}  ${told(value)}`);
}

/** As indented JSON, or in another form that `-o` asks for; what would do something on a terminal is escaped. */
export function printJson(value: unknown): void {
  const form = outputForm();
  if (form === 'name') {
    for (const name of [value].flat().map(nameOf)) print(clean(name));
    return;
  }
  const text = form === 'yaml' ? asYaml(value) : JSON.stringify(value, null, 2);
  print(text.split('\n').map(escapeHidden).join('\n'));
}

/** Text with such characters is written as JSON has it, where they can be escaped, and is the same text to who reads it. */
function asYaml(value: unknown): string {
  const document = new Document(value, { aliasDuplicateObjects: false });
  visit(document, {
    Scalar: (_key, scalar) => {
      if (typeof scalar.value === 'string' && (hasHidden(scalar.value) || scalar.value.endsWith('\n')))
        scalar.type = 'QUOTE_DOUBLE';
    },
  });
  return document.toString({ doubleQuotedAsJSON: true, lineWidth: 0 }).trimEnd();
}

/** By which people name a record. */
function nameOf(record: unknown): string {
  const { verbose_name, filename, username, name, domain, id } = (record ?? {}) as Record<string, unknown>;
  const of = (domain as { verbose_name?: string } | null)?.verbose_name;
  return String(filename ?? verbose_name ?? username ?? name ?? of ?? id ?? '');
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Goes to stderr, so that a pipe gets results only. Names in it may be other people's. */
export function note(text: string): void {
  process.stderr.write(`${text.split('\n').map(clean).join('\n')}\n`);
}
