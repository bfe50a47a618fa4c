/** How many rows there are, without counting them: the database keeps it with each change (migration 0017). */
import type { Database } from './schema.ts';

/** By which columns the rows of a table are counted, in the order of `first` and `second`. */
const COUNTED_BY = {
  tasks: ['status', 'node_id'],
  events: ['type', 'user'],
  audit: ['username'],
  files: ['status', 'pool_id'],
} as const;

export type CountedTable = keyof typeof COUNTED_BY;

/**
 * @param equal values of columns, of which undefined is no condition
 * @returns how many rows have them; undefined where that is not kept
 */
export async function keptCount(
  db: Database,
  table: string,
  equal: Readonly<Record<string, string | undefined>>,
): Promise<number | undefined> {
  if (!Object.hasOwn(COUNTED_BY, table)) return undefined;
  const columns: readonly string[] = COUNTED_BY[table as CountedTable];
  const asked = Object.entries(equal).filter(([, value]) => value !== undefined);
  // what has no value is counted as empty
  if (asked.some(([column, value]) => !columns.includes(column) || value === '')) return undefined;
  const [first, second] = columns.map(column => equal[column]);
  let query = db
    .selectFrom('row_counts')
    .select(({ fn }) => fn.sum<number | null>('number').as('number'))
    .where('of_table', '=', table);
  if (first !== undefined) query = query.where('first', '=', first);
  if (second !== undefined) query = query.where('second', '=', second);
  return Number((await query.executeTakeFirstOrThrow()).number ?? 0);
}

/** How many rows have each value of the table's first column. */
export async function countsByFirst(db: Database, table: CountedTable): Promise<Record<string, number>> {
  const rows = await db
    .selectFrom('row_counts')
    .select(({ fn }) => ['first', fn.sum<number>('number').as('number')])
    .where('of_table', '=', table)
    .groupBy('first')
    .execute();
  return Object.fromEntries(
    rows.flatMap(row => (Number(row.number) > 0 ? [[row.first, Number(row.number)]] : [])),
  );
}

/** How many rows have one of these values of the table's first column, by the value of its second. */
export async function countsBySecond(
  db: Database,
  table: CountedTable,
  firsts: readonly string[],
): Promise<Map<string, number>> {
  const rows = await db
    .selectFrom('row_counts')
    .select(({ fn }) => ['second', fn.sum<number>('number').as('number')])
    .where('of_table', '=', table)
    .where('first', 'in', firsts)
    .groupBy('second')
    .execute();
  return new Map(rows.map(row => [row.second, Number(row.number)]));
}

/** The same of one value of its second column. */
export async function countOf(
  db: Database,
  table: CountedTable,
  firsts: readonly string[],
  second: string,
): Promise<number> {
  const { number } = await db
    .selectFrom('row_counts')
    .select(({ fn }) => fn.sum<number | null>('number').as('number'))
    .where('of_table', '=', table)
    .where('first', 'in', firsts)
    .where('second', '=', second)
    .executeTakeFirstOrThrow();
  return Number(number ?? 0);
}
