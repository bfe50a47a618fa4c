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
      .set(({ selectFrom, fn, eb }) => ({
        number: selectFrom('users').select(eb(fn.coalesce(fn.max('number'), eb.lit(0)), '+', 1).as('next')),
      }))
      .where('id', '=', id)
      .where('number', 'is', null)
      .execute();
}
