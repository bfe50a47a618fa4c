/**
 * Secrets as the database has them: AES-256-GCM under a key that is not in the database. What is sealed for one owner opens for no other.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export class Sealer {
  readonly #key: Uint8Array;

  /** @param key 32 bytes */
  constructor(key: Uint8Array) {
    this.#key = key;
  }

  /** @param owner what it belongs to */
  seal(value: unknown, owner: string): string {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#key, nonce).setAAD(Buffer.from(owner));
    const sealed = Buffer.concat([cipher.update(JSON.stringify(value), 'utf8'), cipher.final()]);
    return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64');
  }

  /** @returns undefined when it was sealed under another key, for another owner, or was changed */
  open<T>(text: string, owner: string): T | undefined {
    const bytes = Buffer.from(text, 'base64');
    const nonce = bytes.subarray(0, NONCE_BYTES);
    const tag = bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES);
    try {
      const decipher = createDecipheriv(ALGORITHM, this.#key, nonce, { authTagLength: TAG_BYTES });
      decipher.setAAD(Buffer.from(owner)).setAuthTag(tag);
      const sealed = bytes.subarray(NONCE_BYTES + TAG_BYTES);
      const opened = Buffer.concat([decipher.update(sealed), decipher.final()]).toString('utf8');
      return JSON.parse(opened) as T;
    } catch {
      return undefined;
    }
  }
}
