/** Password hashes (argon2id, the parameters OWASP names: 19 MiB, 2 passes, 1 lane) and password rules. */
import { hash, verify } from '@node-rs/argon2';
import { VirtkeepError } from '@virtkeep/shared/errors';

const PARAMETERS = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };
export const MIN_PASSWORD_LENGTH = 10;
export const MAX_PASSWORD_LENGTH = 256;

/** A hash, with the parameters above, of nothing that anybody knows: gives unknown users the same work as known ones. */
const DECOY =
  '$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA';

export function hashPassword(password: string): Promise<string> {
  return hash(password, PARAMETERS);
}

/** @param stored the user's hash; undefined for an unknown user, who is refused after the same work. */
export async function verifyPassword(stored: string | undefined, password: string): Promise<boolean> {
  const matches = await verify(stored ?? DECOY, password);
  return stored !== undefined && matches;
}

/** @throws invalid_field telling the rule that is broken. */
export function checkPasswordRules(password: string, username: string): void {
  const broken = brokenRule(password, username);
  if (broken !== undefined) throw new VirtkeepError('invalid_field', { field: 'password', reason: broken });
}

function brokenRule(password: string, username: string): string | undefined {
  if (password.length < MIN_PASSWORD_LENGTH) return `must have at least ${MIN_PASSWORD_LENGTH} characters`;
  if (password.length > MAX_PASSWORD_LENGTH) return `must have at most ${MAX_PASSWORD_LENGTH} characters`;
  if (password.toLowerCase().includes(username.toLowerCase())) return 'must not contain the user name';
  if (new Set(password).size < 4) return 'must have at least 4 different characters';
  return undefined;
}
