/** SSH public keys as one line: checked before a guest is given them, since its agent takes anything. */
import { VirtkeepError } from '@virtkeep/shared/errors';

export interface SshKey {
  type: string;
  /** The key itself, base64. */
  blob: string;
  comment: string;
}

/** Types that sshd of today takes (`ssh -Q PubkeyAcceptedAlgorithms`, without certificates); no DSA. */
const TYPES: ReadonlySet<string> = new Set([
  'ssh-ed25519',
  'ssh-rsa',
  'ecdsa-sha2-nistp256',
  'ecdsa-sha2-nistp384',
  'ecdsa-sha2-nistp521',
  'sk-ssh-ed25519@openssh.com',
  'sk-ecdsa-sha2-nistp256@openssh.com',
]);
const MAX_LINE = 16_384;
/** Length of the whole blob of the types that have only one. */
const BLOB_BYTES: Record<string, number> = { 'ssh-ed25519': 51 };

/**
 * Reads a key as it stands in a `.pub` file: one line with type, base64 key and comment.
 * @throws VirtkeepError ssh_key_invalid
 */
export function parseSshKey(text: string): SshKey {
  const line = text.trim();
  if (line === '') refuse('it is empty');
  if (line.length > MAX_LINE) refuse(`it is longer than ${MAX_LINE} characters`);
  if (/[\r\n]/.test(line)) refuse('it has more than one line');
  if (/[^\P{C}\t]/u.test(line)) refuse('it has control characters');
  if (/PRIVATE KEY/.test(line)) refuse('it is a private key');
  const [type = '', blob = '', ...comment] = line.split(/[ \t]+/);
  if (!TYPES.has(type)) {
    const hasKnownType = [...TYPES].some(name => line.includes(` ${name} `) || line.includes(`\t${name} `));
    refuse(hasKnownType ? 'it begins with options, which are not taken' : 'its type is not known');
  }
  const bytes = Buffer.from(blob, 'base64');
  if (blob === '' || bytes.toString('base64') !== blob) refuse('its key is not base64');
  if (embeddedType(bytes) !== type) refuse('the type in its key is another than the one before it');
  if (!isWhole(bytes)) refuse('its key is cut off');
  const expected = BLOB_BYTES[type];
  if (expected !== undefined && bytes.length !== expected)
    refuse('its key is not as long as keys of its type are');
  return { type, blob, comment: comment.join(' ') };
}

/** As it stands in authorized_keys. */
export function keyLine({ type, blob, comment }: SshKey): string {
  return comment === '' ? `${type} ${blob}` : `${type} ${blob} ${comment}`;
}

/** The lines of an authorized_keys file that are no comments. */
export function keyLines(text: string): string[] {
  return text
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '' && !line.startsWith('#'));
}

/** Whether a line of authorized_keys, options and all, has that key. */
export function hasBlob(line: string, blob: string): boolean {
  return line.split(/[ \t]+/).includes(blob);
}

function refuse(reason: string): never {
  throw new VirtkeepError('ssh_key_invalid', { reason });
}

/** A blob is a row of fields, each with its length in four bytes before it (RFC 4253); the first one is the type. */
function embeddedType(bytes: Buffer): string | undefined {
  const length = bytes.length >= 4 ? bytes.readUInt32BE(0) : Number.POSITIVE_INFINITY;
  return length <= 64 && bytes.length >= 4 + length ? bytes.toString('latin1', 4, 4 + length) : undefined;
}

/** The fields fill the blob, and there are some after the type. */
function isWhole(bytes: Buffer): boolean {
  let [at, fields] = [0, 0];
  while (at + 4 <= bytes.length) {
    at += 4 + bytes.readUInt32BE(at);
    fields += 1;
  }
  return at === bytes.length && fields > 1;
}
