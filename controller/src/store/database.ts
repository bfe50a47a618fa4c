import { migrate } from './migrate.ts';
import { numberUsers } from './number-users.ts';
import { openPostgres, requireUsable } from './postgres.ts';
import type { Database } from './schema.ts';
import { openSqlite } from './sqlite.ts';
import type { DatabaseTarget } from './target.ts';

/**
 * Opens the database and brings it, and what a controller of before has written to it since, to the newest schema.
 * @throws ConfigError, when it cannot be used; database_unavailable, when it cannot be had; when a migration fails, and the database is
 *   then as it was before that migration.
 */
export async function openDatabase(target: DatabaseTarget): Promise<Database> {
  const database = target.kind === 'sqlite' ? openSqlite(target.path) : openPostgres(target);
  try {
    if (target.kind === 'postgres') await requireUsable(database);
    await migrate(database);
    await numberUsers(database);
  } catch (error) {
    await database.destroy();
    throw error;
  }
  return database;
}
