import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ConfigError } from '@virtkeep/shared/config';
import { reasonOf } from '@virtkeep/shared/errors';
import type { ControllerConfig } from './config.ts';
import { type DatabaseTarget, targetOf } from './store/target.ts';

/**
 * The database of these settings.
 * @param applicationName by which a PostgreSQL server lists the connection
 * @throws ConfigError, when the file of the password cannot be read.
 */
export async function databaseTarget(
  { state_dir, database, database_password_file }: ControllerConfig,
  applicationName?: string,
): Promise<DatabaseTarget> {
  if (database === undefined) return { kind: 'sqlite', path: join(state_dir, 'controller.db') };
  const password = await passwordIn(database_password_file, 'database_password_file');
  return { ...targetOf(database, password), ...(applicationName !== undefined && { applicationName }) };
}

/**
 * The one line of a file; undefined without a file.
 * @param name of the setting or option that names it
 */
export async function passwordIn(file: string | undefined, name: string): Promise<string | undefined> {
  if (file === undefined) return undefined;
  try {
    return (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
  } catch (error) {
    throw new ConfigError(`cannot read ${name}: ${reasonOf(error)}`);
  }
}
