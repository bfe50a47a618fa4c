/** One range of bytes of a request (RFC 9110, 14.1). Pure. */

export interface ByteRange {
  first: number;
  /** Inclusive. */
  last: number;
}

/**
 * Reads a `Range` header.
 * @param size of the whole, bytes.
 * @returns undefined when the header is to be ignored (absent, another unit, several ranges, not readable); null when
 * it cannot be satisfied.
 */
export function parseRange(header: string | undefined, size: number): ByteRange | null | undefined {
  const match = /^bytes=\s*(\d{0,15})-(\d{0,15})\s*$/.exec(header ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return undefined;
  const [, from = '', to = ''] = match;
  if (from === '') {
    const length = Math.min(Number(to), size);
    return length === 0 ? null : { first: size - length, last: size - 1 };
  }
  const first = Number(from);
  const last = to === '' ? size - 1 : Math.min(Number(to), size - 1);
  if (to !== '' && Number(to) < first) return undefined;
  return first >= size ? null : { first, last };
}
