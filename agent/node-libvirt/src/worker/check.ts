// Arguments are checked before they reach C: koffi takes a number for a pointer, so a wrong type would end the process.

/** Bounds of the number tokens of calls.ts; 64-bit ones are as wide as a JS number is exact. */
const RANGES: Record<string, [min: number, max: number]> = {
  int: [-(2 ** 31), 2 ** 31 - 1],
  uint: [0, 2 ** 32 - 1],
  ulong: [0, Number.MAX_SAFE_INTEGER],
  int64: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  uint64: [0, Number.MAX_SAFE_INTEGER],
};

/** A string without NUL, at which C would silently end it. @throws TypeError */
export function checkString(value: unknown): string {
  if (typeof value !== 'string') throw new TypeError(`a string is wanted, not ${typeof value}`);
  if (value.includes('\0')) throw new TypeError('a string contains NUL');
  return value;
}

/** A whole number that fits the C type. @throws TypeError, RangeError */
export function checkNumber(token: string, value: unknown): number {
  const range = RANGES[token];
  if (!range || typeof value !== 'number' || !Number.isInteger(value)) {
    throw new TypeError(`a whole number (${token}) is wanted, not ${String(value)}`);
  }
  if (value < range[0] || value > range[1]) throw new RangeError(`${value} does not fit ${token}`);
  return value;
}
