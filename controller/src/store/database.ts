import { openSqlite } from './dialect.ts';
import { migrate } from './migrate.ts';
import { numberUsers } from './number-users.ts';
import type { Database } from './schema.ts';

/**
 * Opens the database and brings it, and what a controller of before has written to it since, to the newest schema.
 * @throws when a migration fails; the database is then as it was before that migration.
 */
export async function openDatabase(path: string): Promise<Database> {
  const database = openSqlite(path);
  try {
    await migrate(database);
    await numberUsers(database);
  } catch (error) {
    await database.destroy();
    throw error;
  }
  return database;
}
