import { readFileSync } from 'node:fs';
import { ConfigError } from '@virtkeep/shared/config';

/** Variable that may carry the enrolment token instead of the command line. */
export const TOKEN_VARIABLE = 'VIRTKEEP_ENROLL_TOKEN';

export interface EnrolmentToken {
  /** The token as the controller printed it. */
  text: string;
  /** SHA-256 (lower-case hex) of the DER of the controller's CA certificate. */
  caFingerprint: string;
}

/** @throws ConfigError when it is not `<secret>.<64 hex digits>`. The token itself is not repeated in the message. */
export function parseToken(text: string): EnrolmentToken {
  const match = /^[A-Za-z0-9_-]+\.([0-9a-fA-F]{64})$/.exec(text.trim());
  if (!match)
    throw new ConfigError('the enrolment token is not of the form <secret>.<CA fingerprint>; copy it whole');
  return { text: text.trim(), caFingerprint: match[1]!.toLowerCase() };
}

/**
 * The token given by `--token`. `-` keeps it out of the process list: it is then read from the environment variable
 * VIRTKEEP_ENROLL_TOKEN, or from standard input.
 */
export function readToken(argument: string): string {
  if (argument !== '-') return argument;
  return process.env[TOKEN_VARIABLE] ?? readFileSync(0, 'utf8');
}
