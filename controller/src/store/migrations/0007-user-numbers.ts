/**
 * The number of a user, which is their id for clients. What names users here goes on doing so by their UUID, so that tokens, tasks,
 * audit records and idempotency keys of before stay theirs.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

interface Users {
  users: { id: string; created: string; number: number | null };
}

export const userNumbers: Migration = {
  up: async (db: Kysely<Users>) => {
    await db.schema.alterTable('users').addColumn('number', 'integer').execute();
    const rows = await db.selectFrom('users').select('id').orderBy('created').orderBy('id').execute();
    for (const [index, { id }] of rows.entries())
      await db
        .updateTable('users')
        .set({ number: index + 1 })
        .where('id', '=', id)
        .execute();
    await db.schema.createIndex('users_number').on('users').column('number').unique().execute();
  },
};
