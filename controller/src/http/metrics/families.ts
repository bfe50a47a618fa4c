/**
 * Metrics of very many things in the Prometheus text format, written piece by piece. `prom-client` keeps every series in a table and makes
 * one text of them all: for 100,000 VMs that would keep everybody else waiting for seconds (`test/bench/metrics.ts`). Pure.
 */

/** One metric of many things; all are gauges. */
export interface Family<T> {
  name: string;
  help: string;
  /** Seconds, bytes, or a number; null: nothing is told of this one. */
  value: (thing: T) => number | null;
  /** Labels beside those that name the thing. */
  labels?: (thing: T) => Labels;
}

export type Labels = Readonly<Record<string, string>>;

/** A thing, and the labels that name it in every family. */
export interface Labelled<T> {
  thing: T;
  labels: string;
}

/** Lines in one piece: some tens of KiB. */
const PIECE = 500;

/** @yields whole lines; at least one piece for each family */
export function* familyText<T>(family: Family<T>, things: readonly Labelled<T>[]): Generator<string> {
  let text = `# HELP ${family.name} ${family.help}\n# TYPE ${family.name} gauge\n`;
  for (const [index, { thing, labels }] of things.entries()) {
    const value = family.value(thing);
    if (value !== null) text += `${family.name}${braced(labels, family.labels?.(thing))} ${value}\n`;
    if ((index + 1) % PIECE > 0) continue;
    yield text;
    text = '';
  }
  yield text;
}

function braced(labels: string, more: Labels | undefined): string {
  if (more !== undefined) return `{${labels}${labels === '' ? '' : ','}${labelText(more)}}`;
  return labels === '' ? '' : `{${labels}}`;
}

export function labelText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escaped(value)}"`)
    .join(',');
}

const SPECIAL = /[\\"\n]/;

function escaped(value: string): string {
  if (!SPECIAL.test(value)) return value;
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
