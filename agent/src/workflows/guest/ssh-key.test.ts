import { describe, expect, test } from '@jest/globals';
import { hasBlob, keyLine, keyLines, parseSshKey } from './ssh-key.ts';

const ED = 'AAAAC3NzaC1lZDI1NTE5AAAAIPJ8nA1SbJhZqfGXFbOfO0V7D5cQk3pLZyV6Q7w1m2aB';

/** A blob of fields, each with its length before it. */
function blobOf(...fields: (string | Buffer)[]): string {
  const parts = fields.flatMap(field => {
    const bytes = Buffer.from(field);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    return [length, bytes];
  });
  return Buffer.concat(parts).toString('base64');
}

const RSA = blobOf('ssh-rsa', Buffer.from([1, 0, 1]), Buffer.alloc(257, 7));

const reasonOf = (text: string) => {
  try {
    parseSshKey(text);
  } catch (error) {
    expect((error as { msgKey: string }).msgKey).toBe('ssh_key_invalid');
    return (error as { params: { reason: string } }).params.reason;
  }
  return 'taken';
};

describe('an SSH key', () => {
  test('is type, base64 and comment', () => {
    expect(parseSshKey(`ssh-ed25519 ${ED} me@host  at home\n`)).toEqual({
      type: 'ssh-ed25519',
      blob: ED,
      comment: 'me@host at home',
    });
    expect(keyLine(parseSshKey(`ssh-rsa ${RSA}`))).toBe(`ssh-rsa ${RSA}`);
    const curve = blobOf('ecdsa-sha2-nistp256', 'nistp256', Buffer.alloc(65, 4));
    expect(parseSshKey(`ecdsa-sha2-nistp256 ${curve}`).type).toBe('ecdsa-sha2-nistp256');
  });

  test.each([
    ['', /empty/],
    ['garbage', /type is not known/],
    ['ssh-dss AAAA', /type is not known/],
    [`ssh-ed25519`, /base64/],
    [`ssh-ed25519 not*base64`, /base64/],
    [`ssh-ed25519 ${ED.slice(0, -1)}`, /base64/],
    [`ssh-rsa ${ED}`, /another/],
    [`ssh-ed25519 ${RSA}`, /another/],
    [`ssh-rsa ${blobOf('ssh-rsa')}`, /cut off/],
    [`ssh-rsa ${Buffer.from(RSA, 'base64').subarray(0, 60).toString('base64')}`, /cut off/],
    [`ssh-ed25519 ${blobOf('ssh-ed25519', Buffer.alloc(33))}`, /as long as/],
    [`ssh-ed25519 ${ED} a\nssh-ed25519 ${ED} b`, /one line/],
    [`ssh-ed25519 ${ED} a\u0007`, /control/],
    [`command="rm -rf /" ssh-ed25519 ${ED}`, /options/],
    [`no-pty ssh-ed25519 ${ED} x`, /options/],
    ['-----BEGIN OPENSSH PRIVATE KEY-----', /private/],
    [`ssh-ed25519 ${ED} ${'x'.repeat(20_000)}`, /longer/],
    ['AAAA '.repeat(20), /type is not known/],
  ])('%j is none', (text, reason) => expect(reasonOf(text)).toMatch(reason));
});

test('lines of a file of keys', () => {
  const text = `# mine\n\n  ssh-ed25519 ${ED} a\r\nfrom="10.0.0.1" ssh-rsa ${RSA} b\n`;
  const lines = keyLines(text);
  expect(lines).toEqual([`ssh-ed25519 ${ED} a`, `from="10.0.0.1" ssh-rsa ${RSA} b`]);
  expect(lines.map(line => hasBlob(line, RSA))).toEqual([false, true]);
});
