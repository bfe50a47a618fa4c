/** The data of an event as templates see it: beside numbers, what people read. Pure. */
import { withoutHidden } from '@virtkeep/shared/hidden-characters';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Beside each field of this name the other one is made. */
const TEXTS: Readonly<Record<string, [name: string, make: (value: number) => string]>> = {
  size: ['size_text', sizeText],
  duration_s: ['duration_text', durationText],
};

export const DERIVED_FIELDS = Object.values(TEXTS).map(([name]) => name);

/** A copy that has nothing but its own fields, so that a template reaches no method; texts are single lines that only say what is seen. */
export function textView(value: unknown): object {
  return viewOf(value) as object;
}

function viewOf(value: unknown): unknown {
  if (typeof value === 'string') return withoutHidden(value);
  if (typeof value !== 'object' || value === null) return value;
  const copy: object = Array.isArray(value) ? value.map(viewOf) : Object.fromEntries(fieldsOf(value));
  return Object.setPrototypeOf(copy, null);
}

function fieldsOf(value: object): [string, unknown][] {
  return Object.entries(value).flatMap(([name, item]) => {
    const text = TEXTS[name];
    const own: [string, unknown] = [name, viewOf(item)];
    return text === undefined || typeof item !== 'number' ? [own] : [own, [text[0], text[1](item)]];
  });
}

/** `1.2 GiB`. */
function sizeText(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(Math.floor(Math.log2(bytes) / 10), UNITS.length - 1);
  const amount = bytes / 1024 ** power;
  return `${power === 0 ? amount : amount.toFixed(amount < 10 ? 2 : 1)} ${UNITS[power]}`;
}

/** `1 h 02 min`, `4 min 10 s`, `7 s`. */
function durationText(durationS: number): string {
  const whole = Math.round(durationS);
  const [hours, minutes, seconds] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value: number) => String(value).padStart(2, '0');
  if (hours > 0) return `${hours} h ${two(minutes)} min`;
  return minutes > 0 ? `${minutes} min ${two(seconds)} s` : `${seconds} s`;
}
