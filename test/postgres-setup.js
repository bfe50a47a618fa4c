import { makeTemplate } from './lab/postgres-template.ts';

// One PostgreSQL server for all tests of a run that are about it; what they take from it are databases.
export default async function startServer() {
  globalThis.testPostgres = await makeTemplate();
  process.env.VIRTKEEP_TEST_POSTGRES = globalThis.testPostgres.url();
}
