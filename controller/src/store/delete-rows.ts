/** Deletes many rows without keeping everybody else waiting until all are gone. */
import { shareLoop } from '@virtkeep/shared/turns';
import type { SelectQueryBuilder } from 'kysely';
import type { Database, Schema } from './schema.ts';

const ROWS_AT_ONCE = 200;

type Table = 'tasks' | 'events' | 'audit' | 'scheduled_runs' | 'notifications';

/**
 * A few at a time, each time in a transaction of its own.
 * @param which narrows the rows to those that go
 * @returns how many they were
 */
export async function deleteRows<T extends Table>(
  db: Database,
  table: T,
  which: (
    rows: SelectQueryBuilder<Schema, T, { id: string }>,
  ) => SelectQueryBuilder<Schema, T, { id: string }>,
): Promise<number> {
  const all = db.selectFrom(table as 'tasks').select('id') as unknown as SelectQueryBuilder<
    Schema,
    T,
    { id: string }
  >;
  const some = which(all).limit(ROWS_AT_ONCE);
  for (let deleted = 0; ; ) {
    const result = await db
      .deleteFrom(table as 'tasks')
      .where('id', 'in', some as never)
      .executeTakeFirst();
    const number = Number(result.numDeletedRows);
    deleted += number;
    if (number < ROWS_AT_ONCE) return deleted;
    await shareLoop();
  }
}
