/** The headers of the tus protocol 1.0.0 (resumable uploads): read and written. Pure. */
import { VirtkeepError } from '@virtkeep/shared/errors';

export const TUS_VERSION = '1.0.0';
export const TUS_EXTENSIONS = 'creation,expiration,termination,checksum';
export const CHECKSUM_ALGORITHMS = ['sha256', 'sha1'] as const;
const MAX_METADATA_BYTES = 8 * 1024;

type Headers = Readonly<Record<string, string | string[] | undefined>>;

const one = (headers: Headers, name: string): string | undefined => {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
};

/** Whether the request speaks tus. @throws VirtkeepError tus_version: another version of it */
export function speaksTus(headers: Headers): boolean {
  const value = one(headers, 'tus-resumable');
  if (value === undefined) return false;
  if (value !== TUS_VERSION) throw new VirtkeepError('tus_version', { value: value.slice(0, 50) });
  return true;
}

/** As `speaksTus`, of a request that must. */
export function requireTus(headers: Headers): void {
  if (!speaksTus(headers)) throw new VirtkeepError('tus_version', { value: '' });
}

/** A count of bytes in a header. @throws VirtkeepError bad_request: absent or none */
export function bytesOf(headers: Headers, name: string): number {
  const value = one(headers, name.toLowerCase()) ?? '';
  const count = /^[0-9]{1,16}$/.test(value) ? Number(value) : Number.NaN;
  if (!Number.isSafeInteger(count)) throw bad(`the header ${name} is no count of bytes`);
  return count;
}

/**
 * `Upload-Metadata`: names and base64 of UTF-8.
 * @throws VirtkeepError bad_request
 */
export function metadataOf(headers: Headers): ReadonlyMap<string, string> {
  const value = one(headers, 'upload-metadata') ?? '';
  if (value.length > MAX_METADATA_BYTES) throw bad('Upload-Metadata is too long');
  const found = new Map<string, string>();
  for (const pair of value.split(',').map(text => text.trim())) {
    if (pair === '') continue;
    const [name = '', base64 = '', ...others] = pair.split(' ');
    if (name === '' || others.length > 0 || found.has(name)) throw bad('Upload-Metadata is broken');
    found.set(name, textOf(base64));
  }
  return found;
}

function textOf(base64: string): string {
  const bytes = fromBase64(base64);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw bad('Upload-Metadata holds what is no UTF-8');
  }
}

function fromBase64(text: string): Buffer {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) throw bad('a header holds what is no base64');
  return Buffer.from(text, 'base64');
}

/** `Upload-Checksum`: of the bytes of this request; undefined: none. @throws VirtkeepError bad_request */
export function checksumOf(headers: Headers): { algorithm: string; digest: Buffer } | undefined {
  const value = one(headers, 'upload-checksum');
  if (value === undefined) return undefined;
  const [algorithm = '', digest = '', ...others] = value.split(' ');
  const isKnown = CHECKSUM_ALGORITHMS.some(known => known === algorithm);
  if (!isKnown || others.length > 0) throw bad('Upload-Checksum is neither sha256 nor sha1');
  return { algorithm, digest: fromBase64(digest) };
}

const bad = (reason: string) => new VirtkeepError('bad_request', { reason });
