import { openDatabase } from '../../controller/src/store/database.ts';
import { TEMPLATE } from '../../controller/src/store/test-database.ts';
import { TestPostgres } from './postgres.ts';

/** Starts a server with a database of the newest schema, from which the tests make theirs. */
export async function makeTemplate(): Promise<TestPostgres> {
  const server = await TestPostgres.start();
  await server.ask(`create database ${TEMPLATE}`);
  const db = await openDatabase({ kind: 'postgres', url: server.url(TEMPLATE) });
  await db.destroy();
  return server;
}
