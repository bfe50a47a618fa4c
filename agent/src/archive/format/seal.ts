/**
 * The signature in a manifest: its last property, made over the bytes of the manifest without it. So whoever ignores it reads the
 * manifest that was signed, and conversions and copies keep it, since they keep the manifest's bytes.
 *
 * A manifest lists the digests of the members before it, that of the former manifest among them. So one signature stands for all
 * manifests of the file, and an increment costs one more.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';

const base64 = z.string().regex(/^[A-Za-z0-9+/]{1,8192}={0,2}$/);

const manifestSignature = z.strictObject({
  version: z.literal(1),
  algorithm: z.literal('ecdsa-p256-sha256'),
  /** The signer's certificate, DER. */
  certificate: base64,
  /** DER. */
  value: base64,
});
export type ManifestSignature = z.infer<typeof manifestSignature>;

/** Signs what {@link signedBytes} gives. */
export type SignManifest = (bytes: Buffer) => ManifestSignature;

/** Who signs an archive's next manifest. */
export interface Signing {
  sign: SignManifest;
  /** All manifests so far were signed by the same one. */
  sameSigner: boolean;
}

/** What is known of a manifest's signature before anybody asked whose it is. */
export interface Seal {
  /** Of the manifest without its signature: lower-case hex. */
  textSha256: string;
  /** Null when there is none, or one that cannot be read. */
  signature: ManifestSignature | null;
  /**
   * What the manifest continues is, byte for byte, what it says. Asked of the newest one alone, whose signature is judged: all others are
   * read by what that one lists of them (manifest-reader.ts).
   */
  isBound: boolean;
}

const START = Buffer.from(',\n "signature": {');
const END = '\n}\n';
/** Room for a certificate and a value. */
const MAX_SIGNATURE_BYTES = 16 * 1024;

/** What is signed: no other use of the key has bytes that begin so. */
export const signedBytes = (textSha256: string): Buffer =>
  Buffer.from(`virtkeep archive manifest 1\n${textSha256}\n`);

/** A manifest as `encodeManifest` gives it, with its signature. */
export function withSignature(manifest: Buffer, sign: SignManifest): Buffer {
  const signature = sign(signedBytes(sha256(manifest)));
  const written = JSON.stringify(manifestSignature.parse(signature)).slice(1);
  return Buffer.concat([manifest.subarray(0, -END.length), START, Buffer.from(`${written}${END}`)]);
}

/**
 * Takes a manifest's bytes apart. What follows the signed text is the signature alone, so that no other property can be slipped in.
 * @param bytes of a manifest that is JSON
 */
export function sealOf(bytes: Buffer, isBound: boolean): Seal {
  const at = bytes.lastIndexOf(START);
  const signature = at < 0 ? null : signatureIn(bytes.subarray(at));
  const hash = createHash('sha256');
  if (signature === null) hash.update(bytes);
  else hash.update(bytes.subarray(0, at)).update(END);
  return { textSha256: hash.digest('hex'), signature, isBound };
}

function signatureIn(rest: Buffer): ManifestSignature | null {
  const text = rest.subarray(START.length - 1).toString('latin1');
  if (text.length > MAX_SIGNATURE_BYTES || !text.endsWith(END)) return null;
  try {
    const written = text.slice(0, -END.length);
    const signature = manifestSignature.parse(JSON.parse(written));
    return JSON.stringify(signature) === written ? signature : null;
  } catch {
    return null;
  }
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
