/** At first start there is nobody: one administrator is made. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ConfigError } from '@virtkeep/shared/config';
import { readOrWriteOnce } from '@virtkeep/shared/durable-file';
import { hasKey, reasonOf } from '@virtkeep/shared/errors';
import type { CoreServices } from './services/services.ts';

export const PASSWORD_VARIABLE = 'VIRTKEEP_ADMIN_PASSWORD';
const GENERATED_BYTES = 18;

/**
 * Makes the administrator when there are no users. The password comes from the configured file, else from the
 * environment variable, else it is made up and written to `<state_dir>/initial-admin-password` (0600); never logged.
 * @throws ConfigError when the given password breaks the rules or its file cannot be read.
 */
export async function ensureAdministrator(
  services: Pick<CoreServices, 'config' | 'users' | 'log'>,
  environment: NodeJS.ProcessEnv = process.env,
): Promise<void> {
  const { config, users, log } = services;
  if (!(await users.isEmpty())) return;
  const { username } = config.initial_admin;
  const given = await givenPassword(config.initial_admin.password_file, environment);
  const password = given ?? (await generatedPassword(config.state_dir));
  try {
    await users.create({ username, password, role: 'administrator', description: 'made at first start' });
  } catch (error) {
    if (!hasKey(error, 'invalid_field')) throw error;
    throw new ConfigError(`the password of the first administrator cannot be used: ${reasonOf(error)}`);
  }
  log.info('the first administrator was made', { username, generated: given === undefined });
}

async function givenPassword(
  file: string | undefined,
  environment: NodeJS.ProcessEnv,
): Promise<string | undefined> {
  if (file === undefined) return environment[PASSWORD_VARIABLE];
  try {
    return (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
  } catch (error) {
    throw new ConfigError(`cannot read initial_admin.password_file: ${reasonOf(error)}`);
  }
}

/** What the file holds counts, so that a start that crashed after writing it goes on with the same password. */
async function generatedPassword(stateDir: string): Promise<string> {
  const path = join(stateDir, 'initial-admin-password');
  const make = async () => `${randomBytes(GENERATED_BYTES).toString('base64url')}\n`;
  return (await readOrWriteOnce(path, make, 0o600)).toString('utf8').trim();
}
