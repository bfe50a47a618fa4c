import { createHash } from 'node:crypto';

/**
 * SHA-256 (hex) of a kind and a request. The order of keys does not matter, and neither do fields with their default value, which
 * a request of an earlier version may lack. Only the hash is kept, since a request may carry secrets.
 */
export function fingerprint(kind: string, request: object): string {
  return hashOf(kind, request, isSaid);
}

/** Whether a journal's fingerprint is that of the request; earlier versions also hashed fields with their default value. */
export function isFingerprintOf(stored: string, kind: string, request: object): boolean {
  const hadNot = (value: unknown, key: string) => key !== 'removedArchives' || isSaid(value);
  return stored === fingerprint(kind, request) || stored === hashOf(kind, request, hadNot);
}

/** Whether a value is another than the default of its type in the protocol. */
function isSaid(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  return value !== '' && value !== 0 && value !== 0n && value !== false;
}

/** Of JSON with sorted keys; bigints as decimal text, undefined members dropped. */
function hashOf(kind: string, request: object, isKept: (value: unknown, key: string) => boolean): string {
  const text = JSON.stringify(request, (_key, item: unknown) => {
    if (typeof item === 'bigint') return item.toString();
    if (typeof item !== 'object' || item === null || Array.isArray(item)) return item;
    const kept = Object.entries(item).filter(([key, value]) => isKept(value, key));
    return Object.fromEntries(kept.sort(([a], [b]) => (a < b ? -1 : 1)));
  });
  return createHash('sha256').update(`${kind}\n${text}`).digest('hex');
}
