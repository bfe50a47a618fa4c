/** Sizes as OVF writes them: a number, and the "programmatic unit" of DSP0004 annex C, which writers spell as they like. */

/** Units of one word, of the CIM schema before DSP0004 and of what writers made of it. They were always powers of two. */
const WORDS: Record<string, number> = {
  byte: 1, bytes: 1, b: 1,
  kb: 2 ** 10, kib: 2 ** 10, kilobyte: 2 ** 10, kilobytes: 2 ** 10, kibibytes: 2 ** 10,
  mb: 2 ** 20, mib: 2 ** 20, megabyte: 2 ** 20, megabytes: 2 ** 20, mebibytes: 2 ** 20,
  gb: 2 ** 30, gib: 2 ** 30, gigabyte: 2 ** 30, gigabytes: 2 ** 30, gibibytes: 2 ** 30,
  tb: 2 ** 40, tib: 2 ** 40, terabyte: 2 ** 40, terabytes: 2 ** 40, tebibytes: 2 ** 40,
}; // biome-ignore format: a table

/** Longer than any unit that means something. */
const MAX_UNIT_LENGTH = 64;

/**
 * Bytes of one unit: `byte * 2^30`, `byte*2^20`, `byte * 2 ^ 20`, `byte * 1024`, `MegaBytes`, `GB`.
 * @returns a positive whole number that is exact, or undefined for anything else
 */
export function unitBytes(unit: string): number | undefined {
  const plain = unit.replaceAll(/\s+/g, '').toLowerCase();
  if (plain.length > MAX_UNIT_LENGTH) return undefined;
  const [word, ...factors] = plain.split('*');
  if (!Object.hasOwn(WORDS, word!)) return undefined;
  let bytes = WORDS[word!]!;
  for (const factor of factors) bytes *= factorOf(factor);
  return Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
}

function factorOf(text: string): number {
  const [, base, exponent] = /^(\d{1,15})(?:\^(\d{1,2}))?$/.exec(text) ?? [];
  return base === undefined ? Number.NaN : Number(base) ** Number(exponent ?? 1);
}

/**
 * A number of units in bytes.
 * @returns a whole number that is exact, from 0; undefined when the number or the unit is none, or too large
 */
export function bytesOf(quantity: string, unit: string): number | undefined {
  const [count, bytes] = [wholeOf(quantity), unitBytes(unit)];
  if (count === undefined || bytes === undefined) return undefined;
  return Number.isSafeInteger(count * bytes) ? count * bytes : undefined;
}

/** A whole number from 0 that is exact, or undefined. */
export function wholeOf(text: string | undefined): number | undefined {
  const plain = text?.trim() ?? '';
  return /^\d{1,15}$/.test(plain) ? Number(plain) : undefined;
}
