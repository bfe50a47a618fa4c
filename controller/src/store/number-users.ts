import type { Database } from './schema.ts';

/**
 * Gives a number to users who have none, in the order in which they were made. A controller of before goes on on tables that a
 * command of now has migrated, until it is started again, and knows of no numbers.
 */
export async function numberUsers(database: Database): Promise<void> {
  const rows = await database
    .selectFrom('users')
    .select('id')
    .where('number', 'is', null)
    .orderBy('created')
    .orderBy('id')
    .execute();
  for (const { id } of rows)
    await database
      .updateTable('users')
      .set({ number: await nextUserNumber(database) })
      .where('id', '=', id)
      .where('number', 'is', null)
      .execute();
}

/** The next number that no user has or had. */
export async function nextUserNumber(db: Database): Promise<number> {
  let last = 0;
  for (const table of ['users', 'removed_users'] as const) {
    const row = await db
      .selectFrom(table as 'users')
      .select(({ fn }) => fn.max<number | null>('number').as('last'))
      .executeTakeFirstOrThrow();
    last = Math.max(last, Number(row.last ?? 0));
  }
  return last + 1;
}
