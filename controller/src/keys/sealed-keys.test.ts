import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Database } from '../store/schema.ts';
import { openTestDatabase } from '../store/test-database.ts';
import { keyFiles } from './keys.ts';
import { openSealedKeys } from './sealed-keys.ts';

let dir: string;
let db: Database;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-keys-'));
  db = await openTestDatabase();
});

afterEach(async () => {
  await db.destroy();
  rmSync(dir, { recursive: true });
});

const fileA = () => join(dir, 'a.key');
const open = (file = fileA(), state = join(dir, 'state')) => openSealedKeys(db, file, state);

test('the first controller makes the key file; one with a copy of it has the same keys', async () => {
  const first = await open();
  const made = await first.readOrMake('jwt.key', async () => Buffer.from('secret'));
  writeFileSync(join(dir, 'b.key'), readFileSync(fileA()));
  const second = await open(join(dir, 'b.key'), join(dir, 'other'));
  expect(await second.readOrMake('jwt.key', async () => 'another')).toEqual(made);
  const [row] = await db.selectFrom('sealed_keys').selectAll().execute();
  expect(Buffer.from(row!.sealed, 'base64').includes('secret')).toBe(false);
});

test('two that make a key at once get the same', async () => {
  const [one, two] = [await open(), await open()];
  const made = await Promise.all([
    one.readOrMake('pki/ca.key', async () => 'one'),
    two.readOrMake('pki/ca.key', async () => 'two'),
  ]);
  expect(made[0]).toEqual(made[1]);
});

test('what the state directory has from before is brought along', async () => {
  const former = keyFiles(join(dir, 'state'));
  await former.write('pki/ca.key', 'from before');
  await former.write('pki/ca.crt', 'and its certificate');
  const keys = await open();
  expect(String(await keys.readOrMake('pki/ca.key', async () => 'new'))).toBe('from before');
  expect(String(await keys.read('pki/ca.crt'))).toBe('and its certificate');
  expect(await keys.read('jwt.key')).toBeUndefined();
});

test('a certificate that lies there without its key is of another authority', async () => {
  await keyFiles(join(dir, 'state')).write('pki/ca.crt', 'a copy for people');
  const keys = await open();
  expect(await keys.read('pki/ca.crt')).toBeUndefined();
  await keys.write('pki/ca.key', 'new');
  await keyFiles(join(dir, 'state')).write('pki/ca.key', 'old');
  expect(await (await open()).read('pki/ca.crt')).toBeUndefined();
});

test('a controller without the key file, or with another, is told so, and nothing is changed', async () => {
  await (await open()).write('jwt.key', 'secret');
  await expect(open(join(dir, 'none.key'))).rejects.toThrow('none.key is missing: copy it from a controller');
  writeFileSync(join(dir, 'other.key'), `${Buffer.alloc(32, 1).toString('base64')}\n`);
  await expect(open(join(dir, 'other.key'))).rejects.toThrow('is not the key of the keys in the database');
  writeFileSync(join(dir, 'bad.key'), 'short');
  await expect(open(join(dir, 'bad.key'))).rejects.toThrow('must hold 32 bytes in base64');
  expect(String(await (await open()).read('jwt.key'))).toBe('secret');
});

test('a sealed key that is moved to another name does not open', async () => {
  const keys = await open();
  await keys.write('pki/ca.crt', 'public');
  await db.updateTable('sealed_keys').set({ name: 'pki/controller.pem' }).execute();
  await expect(keys.read('pki/controller.pem')).rejects.toThrow('is not the key');
});
