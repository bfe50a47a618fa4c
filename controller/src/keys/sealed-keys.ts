/**
 * Of several controllers: rows of their database, sealed with a key that each of them has in a file. Whoever reads the database, or its
 * backup, has none of them.
 */
import { randomBytes } from 'node:crypto';
import { ConfigError } from '@virtkeep/shared/config';
import { bytesIfPresent, writeOnce } from '@virtkeep/shared/durable-file';
import { reasonOf } from '@virtkeep/shared/errors';
import type { Database } from '../store/schema.ts';
import { KEY_NAMES, type KeyName, type Keys, keyFiles } from './keys.ts';
import { Sealer } from './sealing.ts';

const KEY_BYTES = 32;
const COPY_IT =
  'copy it from a controller that uses the same database (setting cluster.key_file); when none has it any more, docs/lost-controller.md says how to go on';

/**
 * Opens the keys in the database. The first controller makes the file of the sealing key, and brings what its state directory has from
 * before; the others must have got that file.
 * @param keyFile 32 bytes in base64
 * @throws ConfigError when the file is missing though there are keys, is no key, or is not the one that they were sealed with
 */
export async function openSealedKeys(db: Database, keyFile: string, stateDir: string): Promise<Keys> {
  const sealer = new Sealer(await sealingKey(db, keyFile));
  const keys = new SealedKeys(db, keyFile, sealer);
  await bringFormer(db, sealer, keyFiles(stateDir));
  // who has another key learns it now, and not when one of them is needed
  await keys.read('jwt.key');
  return keys;
}

/**
 * All at once and only where there are none: a certificate goes with its key. Alone it may be the copy that lies there for people
 * (`openAuthority`).
 */
async function bringFormer(db: Database, sealer: Sealer, files: Keys): Promise<void> {
  if (await hasKeys(db)) return;
  const former = new Map<KeyName, Buffer>();
  for (const name of KEY_NAMES) {
    const key = await files.read(name);
    if (key) former.set(name, key);
  }
  if (!former.has('pki/ca.key') || !former.has('pki/ca.crt'))
    for (const name of ['pki/ca.key', 'pki/ca.crt', 'pki/controller.pem'] as const) former.delete(name);
  if (former.size === 0) return;
  await db
    .insertInto('sealed_keys')
    .values([...former].map(([name, key]) => ({ name, sealed: sealed(sealer, name, key) })))
    .onConflict(conflict => conflict.column('name').doNothing())
    .execute();
}

const sealed = (sealer: Sealer, name: KeyName, content: string | Buffer): string =>
  sealer.seal(Buffer.from(content).toString('base64'), name);

const hasKeys = async (db: Database): Promise<boolean> =>
  (await db.selectFrom('sealed_keys').select('name').limit(1).executeTakeFirst()) !== undefined;

class SealedKeys implements Keys {
  readonly #db: Database;
  readonly #keyFile: string;
  readonly #sealer: Sealer;

  constructor(db: Database, keyFile: string, sealer: Sealer) {
    this.#db = db;
    this.#keyFile = keyFile;
    this.#sealer = sealer;
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
    const made = await make();
    await this.#db
      .insertInto('sealed_keys')
      .values({ name, sealed: sealed(this.#sealer, name, made) })
      .onConflict(conflict => conflict.column('name').doNothing())
      .execute();
    return (await this.read(name))!;
  }

  async write(name: KeyName, content: string | Buffer): Promise<void> {
    const row = { name, sealed: sealed(this.#sealer, name, content) };
    await this.#db
      .insertInto('sealed_keys')
      .values(row)
      .onConflict(conflict => conflict.column('name').doUpdateSet({ sealed: row.sealed }))
      .execute();
  }
}

async function sealingKey(db: Database, path: string): Promise<Buffer> {
  const present = await keyOf(path);
  if (present) return present;
  if (await hasKeys(db)) throw new ConfigError(`${path} is missing: ${COPY_IT}.`);
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
