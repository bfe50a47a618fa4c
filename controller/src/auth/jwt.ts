/**
 * Login tokens: JWT, HS256 only, with the claims the API family uses (user_id, username, exp, orig_iat, jti). The key
 * never leaves the state directory; another algorithm, another key or another `typ` is refused alike.
 */
import { createHmac, hash, randomBytes } from 'node:crypto';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { errors, jwtVerify, SignJWT } from 'jose';
import type { Keys } from '../keys/keys.ts';

export interface TokenClaims {
  /** The user's number; of tokens of before users had one, their UUID. */
  userId: number | string;
  username: string;
  jti: string;
  /** The jti of the login that it was refreshed from; its own for any other token. */
  family: string;
  /** When the user last gave the password (a refreshed token keeps it). */
  origIat: Date;
  expiresOn: Date;
  /** True for long-lived tokens, which are valid only while their row stands. */
  integration: boolean;
}

const KEY_BYTES = 64;
/** Tokens; whichever came first goes. */
const MAX_KNOWN = 1000;

export class TokenSigner {
  readonly #key: Uint8Array;
  /** What tokens say whose signature was found right, by a digest of their text: to check it anew took a fifth of a small request. */
  readonly #known = new Map<string, TokenClaims>();

  constructor(key: Uint8Array) {
    this.#key = key;
  }

  async sign(claims: TokenClaims): Promise<string> {
    return new SignJWT({
      user_id: claims.userId,
      username: claims.username,
      orig_iat: toSeconds(claims.origIat),
      ...(claims.family === claims.jti ? {} : { sid: claims.family }),
      ...(claims.integration ? { integration: true } : {}),
    })
      .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
      .setJti(claims.jti)
      .setExpirationTime(toSeconds(claims.expiresOn))
      .sign(this.#key);
  }

  /** A key for another use, which tells nothing of this one. */
  derivedKey(purpose: string): Uint8Array {
    return createHmac('sha256', this.#key).update(purpose).digest();
  }

  /** @throws token_expired; token_invalid for everything else that is wrong with it. */
  async verify(token: string): Promise<TokenClaims> {
    const digest = hash('sha256', token, 'base64');
    const known = this.#known.get(digest);
    if (known === undefined) {
      const claims = await this.#check(token);
      if (this.#known.size >= MAX_KNOWN) this.#known.delete(this.#known.keys().next().value!);
      this.#known.set(digest, claims);
      return claims;
    }
    if (known.expiresOn.getTime() <= Date.now()) throw new VirtkeepError('token_expired');
    return known;
  }

  async #check(token: string): Promise<TokenClaims> {
    try {
      const { payload } = await jwtVerify(token, this.#key, {
        algorithms: ['HS256'],
        typ: 'JWT',
        requiredClaims: ['user_id', 'username', 'exp', 'orig_iat', 'jti'],
      });
      return {
        userId: typeof payload.user_id === 'number' ? payload.user_id : String(payload.user_id),
        username: String(payload.username),
        jti: String(payload.jti),
        family: String(payload.sid ?? payload.jti),
        origIat: new Date(Number(payload.orig_iat) * 1000),
        expiresOn: new Date(Number(payload.exp) * 1000),
        integration: payload.integration === true,
      };
    } catch (error) {
      const expired = (error as { code?: unknown }).code === errors.JWTExpired.code;
      throw new VirtkeepError(expired ? 'token_expired' : 'token_invalid', {}, { cause: error });
    }
  }
}

/** Opens the key that signs logins (`jwt.key`), making it at first start. */
export async function openTokenSigner(keys: Keys): Promise<TokenSigner> {
  const key = await keys.readOrMake('jwt.key', async () => randomBytes(KEY_BYTES));
  if (key.length < 32) throw new Error('jwt.key is too short to be a key');
  return new TokenSigner(key);
}

function toSeconds(time: Date): number {
  return Math.floor(time.getTime() / 1000);
}
