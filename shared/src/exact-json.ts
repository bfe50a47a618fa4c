/**
 * JSON whose integers are kept digit by digit: nanoseconds since 1970 do not fit into a double. An integer that a number
 * cannot hold exactly is read as a value that only `JSON.stringify` understands, and is written as it was.
 */

interface RawJson {
  rawJSON(text: string): unknown;
  isRawJSON(value: unknown): value is { rawJSON: string };
  parse(
    text: string,
    reviver: (key: string, value: unknown, context: { source?: string }) => unknown,
  ): unknown;
}

/** Node 22 and later (TC39: JSON.parse source text access); the library's types do not know it yet. */
const raw = JSON as unknown as RawJson;

const INTEGER = /^-?\d+$/;
const LONG_DIGITS = /\d{16}/;

/** As `JSON.parse`, with integers beyond 2^53 kept for `JSON.stringify`. @throws SyntaxError */
export function parseExact(text: string): unknown {
  if (!LONG_DIGITS.test(text)) return JSON.parse(text);
  return raw.parse(text, (_key, value, { source }) =>
    typeof value === 'number' && !Number.isSafeInteger(value) && source !== undefined && INTEGER.test(source)
      ? raw.rawJSON(source)
      : value,
  );
}

/** True for an integer that `parseExact` kept. */
export function isExact(value: unknown): boolean {
  return raw.isRawJSON(value);
}

/** The integer that a parsed value is, be it kept or a number; undefined for everything else. */
export function integerOf(value: unknown): bigint | undefined {
  if (raw.isRawJSON(value)) return BigInt(value.rawJSON);
  return Number.isInteger(value) ? BigInt(value as number) : undefined;
}

/** Whether lists and objects stand in each other deeper than so; `JSON.stringify` ends the stack at some thousands. */
export function isDeeperThan(levels: number, value: unknown): boolean {
  if (typeof value !== 'object' || value === null || raw.isRawJSON(value)) return false;
  return levels === 0 || Object.values(value).some(item => isDeeperThan(levels - 1, item));
}
