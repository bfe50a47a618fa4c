/**
 * How a webhook proves that it is ours: as the public convention "Standard Webhooks" has it, so that receivers can check it with a
 * ready library. Signed are the delivery's id, the time and the body. Pure.
 */
import { createHmac } from 'node:crypto';

/** A secret with this prefix is the base64 of the key; any other text is the key itself. */
const ENCODED = 'whsec_';

export interface SignedParts {
  /** The same for each attempt of a delivery. */
  id: string;
  /** When it is sent. */
  now: Date;
  /** As it is sent, to the byte. */
  body: string;
}

/** The headers that a receiver checks. */
export function signatureHeaders(secret: string, { id, now, body }: SignedParts): Record<string, string> {
  const timestamp = String(Math.floor(now.getTime() / 1000));
  const digest = createHmac('sha256', signingKey(secret))
    .update(`${id}.${timestamp}.${body}`)
    .digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${digest}` };
}

export function signingKey(secret: string): Buffer {
  return secret.startsWith(ENCODED)
    ? Buffer.from(secret.slice(ENCODED.length), 'base64')
    : Buffer.from(secret);
}
