/** One page of a table, as every list of the REST API that is read from the database has it. */
import type { Expression, ExpressionBuilder, Kysely, SqlBool } from 'kysely';
import { contains } from './dialect.ts';
import type { Database, Schema } from './schema.ts';

type Table = keyof Schema;
type Column<T extends Table> = keyof Schema[T] & string;
/** By column; an undefined value is no condition. */
type ColumnValues<T extends Table> = { [C in Column<T>]?: string | undefined };

export interface RowQuery<T extends Table> {
  equal: ColumnValues<T>;
  /** Parts of texts, in any case. */
  containing: ColumnValues<T>;
  /** Conditions of another shape. */
  and?: (eb: ExpressionBuilder<Schema, T>) => Expression<SqlBool>[];
  /** The last one tells every two rows apart, or pages would overlap. */
  orderBy: readonly Column<T>[];
  descending: boolean;
  limit: number;
  offset: number;
}

/** With the number of all rows that match. */
export interface RowPage<T extends Table> {
  count: number;
  rows: Schema[T][];
}

export async function listRows<T extends Table>(
  db: Database,
  table: T,
  request: RowQuery<T>,
): Promise<RowPage<T>> {
  // kysely's types need a table that is known by name; the columns are checked by those above
  let query = (db as unknown as Kysely<Record<string, Record<string, unknown>>>).selectFrom<string>(table);
  for (const [column, value] of given(request.equal)) query = query.where(column, '=', value);
  for (const [column, part] of given(request.containing)) query = query.where(contains(column, part));
  const { and } = request;
  if (and) query = query.where(eb => eb.and(and(eb as unknown as ExpressionBuilder<Schema, T>)));
  const total = await query.select(({ fn }) => fn.countAll<number>().as('number')).executeTakeFirstOrThrow();
  let page = query.selectAll().limit(request.limit).offset(request.offset);
  for (const column of request.orderBy) page = page.orderBy(column, request.descending ? 'desc' : 'asc');
  return { count: Number(total.number), rows: (await page.execute()) as unknown as Schema[T][] };
}

const given = (values: object) =>
  Object.entries(values).filter((entry): entry is [string, string] => entry[1] !== undefined);
