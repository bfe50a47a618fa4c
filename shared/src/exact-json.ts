/**
 * JSON whose integers are kept digit by digit: nanoseconds since 1970 do not fit into a double. An integer that a number
 * cannot hold exactly is read as a value that only `JSON.stringify` understands, and is written as it was.
 */

interface RawJson {
  rawJSON(text: string): unknown;
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
