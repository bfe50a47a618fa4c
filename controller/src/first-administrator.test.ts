import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { verifyPassword } from './auth/passwords.ts';
import { configSchema } from './config.ts';
import { ensureAdministrator } from './first-administrator.ts';
import { UserService } from './services/accounts/users.ts';
import type { Database } from './store/schema.ts';
import { openTestDatabase } from './store/test-database.ts';

let directory: string;
let db: Database;
let users: UserService;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-admin-'));
  db = await openTestDatabase();
  users = new UserService(db);
});

afterEach(async () => {
  await db.destroy();
  rmSync(directory, { recursive: true });
});

function start(initial: object = {}, environment: NodeJS.ProcessEnv = {}): Promise<void> {
  const config = configSchema.parse({ state_dir: directory, initial_admin: initial });
  return ensureAdministrator({ config, users, log: createLogger('test', 'error') }, environment);
}

async function opens(username: string, password: string): Promise<boolean> {
  return verifyPassword((await users.findByName(username))?.password_hash, password);
}

test('a password is made up and kept where only the owner reads it', async () => {
  await start();
  const path = join(directory, 'initial-admin-password');
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(await opens('admin', readFileSync(path, 'utf8').trim())).toBe(true);
  await start();
  expect(await users.list()).toHaveLength(1);
});

test('a given password counts: the file before the environment', async () => {
  const path = join(directory, 'given');
  writeFileSync(path, 'from the file\n');
  await start({ username: 'boss', password_file: path }, { VIRTKEEP_ADMIN_PASSWORD: 'from outside' });
  expect(await opens('boss', 'from the file')).toBe(true);
});

test('a weak or unreadable password stops the start', async () => {
  await expect(start({}, { VIRTKEEP_ADMIN_PASSWORD: 'weak' })).rejects.toThrow('at least');
  await expect(start({ password_file: '/nonexistent' })).rejects.toThrow('password_file');
});
