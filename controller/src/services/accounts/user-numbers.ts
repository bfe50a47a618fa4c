/** The numbers by which clients know users, those of before too, for records that name them by UUID. */
import type { Database } from '../../store/schema.ts';

/** By UUID; whom nobody knows has none. */
export async function userNumbers(
  db: Database,
  rows: readonly { user_id: string | null }[],
): Promise<ReadonlyMap<string, number>> {
  const ids = [...new Set(rows.flatMap(row => row.user_id ?? []))];
  if (ids.length === 0) return new Map();
  const users = await db
    .selectFrom('users')
    .select(['id', 'number'])
    .where('id', 'in', ids)
    .unionAll(db.selectFrom('removed_users').select(['id', 'number']).where('id', 'in', ids))
    .execute();
  return new Map(users.map(({ id, number }) => [id, number]));
}
