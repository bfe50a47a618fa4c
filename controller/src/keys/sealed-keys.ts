/**
 * Of several controllers: rows of their database, sealed with a key that each of them has in a file. Whoever reads the database, or its
 * backup, has none of them.
 */
import { randomBytes } from 'node:crypto';
import { ConfigError } from '@virtkeep/shared/config';
import { bytesIfPresent, writeOnce } from '@virtkeep/shared/durable-file';
import { reasonOf } from '@virtkeep/shared/errors';
import type { Database } from '../store/schema.ts';
import { type KeyName, type Keys, keyFiles } from './keys.ts';
import { Sealer } from './sealing.ts';

const KEY_BYTES = 32;
const COPY_IT = 'copy it from a controller that uses the same database (setting cluster.key_file)';

/**
 * Opens the keys in the database. The first controller makes the file of the sealing key, and brings what its state directory has from
 * before; the others must have got that file.
 * @param keyFile 32 bytes in base64
 * @throws ConfigError when the file is missing though there are keys, is no key, or is not the one that they were sealed with
 */
export async function openSealedKeys(db: Database, keyFile: string, stateDir: string): Promise<Keys> {
  const keys = new SealedKeys(db, keyFile, stateDir, await sealingKey(db, keyFile));
  // who has another key learns it now, and not when one of them is needed
  await keys.read('jwt.key');
  return keys;
}

class SealedKeys implements Keys {
  readonly #db: Database;
  readonly #keyFile: string;
  readonly #former: Keys;
  readonly #sealer: Sealer;

  constructor(db: Database, keyFile: string, stateDir: string, key: Buffer) {
    this.#db = db;
    this.#keyFile = keyFile;
    this.#former = keyFiles(stateDir);
    this.#sealer = new Sealer(key);
  }

  async read(name: KeyName): Promise<Buffer | undefined> {
    const row = await this.#db
      .selectFrom('sealed_keys')
      .select('sealed')
      .where('name', '=', name)
      .executeTakeFirst();
    if (!row) return undefined;
    const opened = this.#sealer.open<string>(row.sealed, name);
    if (opened !== undefined) return Buffer.from(opened, 'base64');
    throw new ConfigError(`${this.#keyFile} is not the key of the keys in the database: ${COPY_IT}.`);
  }

  async readOrMake(name: KeyName, make: () => Promise<string | Buffer>): Promise<Buffer> {
    const present = await this.read(name);
    if (present) return present;
    const made = (await this.#former.read(name)) ?? (await make());
    await this.#db
      .insertInto('sealed_keys')
      .values({ name, sealed: this.#seal(name, made) })
      .onConflict(conflict => conflict.column('name').doNothing())
      .execute();
    return (await this.read(name))!;
  }

  async write(name: KeyName, content: string | Buffer): Promise<void> {
    const sealed = this.#seal(name, content);
    await this.#db
      .insertInto('sealed_keys')
      .values({ name, sealed })
      .onConflict(conflict => conflict.column('name').doUpdateSet({ sealed }))
      .execute();
  }

  #seal(name: KeyName, content: string | Buffer): string {
    return this.#sealer.seal(Buffer.from(content).toString('base64'), name);
  }
}

async function sealingKey(db: Database, path: string): Promise<Buffer> {
  const present = await keyOf(path);
  if (present) return present;
  const sealed = await db.selectFrom('sealed_keys').select('name').limit(1).executeTakeFirst();
  if (sealed) throw new ConfigError(`${path} is missing: ${COPY_IT}.`);
  await writeOnce(path, `${randomBytes(KEY_BYTES).toString('base64')}\n`, 0o600);
  return (await keyOf(path))!;
}

async function keyOf(path: string): Promise<Buffer | undefined> {
  let text: string | undefined;
  try {
    text = (await bytesIfPresent(path))?.toString('latin1');
  } catch (error) {
    throw new ConfigError(`${path} (setting cluster.key_file) cannot be read: ${reasonOf(error)}`);
  }
  if (text === undefined) return undefined;
  const key = Buffer.from(text, 'base64');
  if (key.length === KEY_BYTES) return key;
  throw new ConfigError(`${path} (setting cluster.key_file) must hold ${KEY_BYTES} bytes in base64.`);
}
