import { join } from 'node:path';
import type { ControllerConfig } from '../config.ts';
import type { Database } from '../store/schema.ts';
import { isPostgresUrl } from '../store/target.ts';
import { type Keys, keyFiles } from './keys.ts';
import { openSealedKeys } from './sealed-keys.ts';

/**
 * The keys of the controller with these settings: files beside its database, or in the database that it shares with others.
 * @throws ConfigError as `openSealedKeys`
 */
export async function openKeys(config: ControllerConfig, db: Database): Promise<Keys> {
  if (config.database === undefined || !isPostgresUrl(config.database)) return keyFiles(config.state_dir);
  return openSealedKeys(db, keyFileOf(config), config.state_dir);
}

/** Of the key that seals the others. */
export const keyFileOf = ({ cluster, state_dir }: ControllerConfig): string =>
  cluster.key_file ?? join(state_dir, 'cluster.key');
