/** What is sent to a target, and how it fails. */
import { withoutHidden } from '@virtkeep/shared/hidden-characters';
import type { AnyEventName } from './events.ts';
import type { Message } from './templates.ts';

/** One message for one target; each attempt to send it has the same id. */
export interface Delivery {
  id: string;
  event: AnyEventName;
  /** When the event was raised, RFC 3339. */
  created: string;
  /** By which people know this controller. */
  controller: string;
  data: object;
  message: Message;
  /** Recipients of a mail whom an attempt before has reached, as {@link DeliveryError.reached} names them. */
  reached: readonly string[];
  /** Of this attempt. */
  now: Date;
}

/** Sends it. @returns what is to be known of it all the same; may be empty. @throws DeliveryError */
export type Send = (delivery: Delivery, signal: AbortSignal) => Promise<string>;

/** Of every connection to a target. @param ca certificates in place of the system's, also one of the server alone; may be empty */
export function trusting(ca: string) {
  const minVersion = 'TLSv1.2' as const;
  return ca === '' ? { minVersion } : { minVersion, ca, allowPartialTrustChain: true };
}

const MAX_REASON = 300;
const HIDDEN = '[redacted]';

/** Why a message did not reach its target, for people; without secrets. */
export class DeliveryError extends Error {
  override readonly name = 'DeliveryError';
  /** The receiver answered and refused this message: it may well take the next one. */
  readonly isAnswer: boolean;
  /** Recipients whom this attempt has reached: only others are to get it again. */
  readonly reached: readonly string[];

  constructor(
    reason: string,
    {
      isAnswer = false,
      reached = [],
      cause,
    }: { isAnswer?: boolean; reached?: readonly string[]; cause?: unknown } = {},
  ) {
    super(reason, { cause });
    this.isAnswer = isAnswer;
    this.reached = reached;
  }
}

/** A text of a receiver as it may be shown and kept: one line, not long, and nothing in it of the secrets that it was sent. */
export function safeReason(text: string, secrets: readonly string[]): string {
  const forms = secrets
    .filter(secret => secret !== '')
    .flatMap(secret => [secret, Buffer.from(secret).toString('base64').replace(/=+$/, '')])
    .sort((a, b) => b.length - a.length);
  const clean = forms.reduce((left, form) => left.replaceAll(form, HIDDEN), text);
  // base64 may have been written with its padding
  const line = withoutHidden(clean.replaceAll(`${HIDDEN}==`, HIDDEN).replaceAll(`${HIDDEN}=`, HIDDEN))
    .replaceAll(/\s+/g, ' ')
    .trim();
  return line.length <= MAX_REASON ? line : `${line.slice(0, MAX_REASON - 1).toWellFormed()}…`;
}
