import { createHash } from 'node:crypto';

/**
 * SHA-256 (hex) of a kind and a request, independent of the order of keys. Only the hash is kept, since a request may
 * carry secrets.
 */
export function fingerprint(kind: string, request: object): string {
  return createHash('sha256')
    .update(`${kind}\n${canonicalJson(request)}`)
    .digest('hex');
}

/** JSON with sorted keys; bigints as decimal text, undefined members dropped. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) => {
    if (typeof item === 'bigint') return item.toString();
    if (typeof item !== 'object' || item === null || Array.isArray(item)) return item;
    return Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}
