/** One page of a table, as every list of the REST API that is read from the database has it. */
import {
  type Expression,
  type ExpressionBuilder,
  expressionBuilder,
  type Kysely,
  type SelectQueryBuilder,
  type SqlBool,
} from 'kysely';
import { contains } from './dialect.ts';
import { keptCount } from './row-counts.ts';
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
  const more = request.and?.(expressionBuilder<Schema, T>()) ?? [];
  if (more.length > 0) query = query.where(eb => eb.and(more as never));
  const isPlain = more.length === 0 && given(request.containing).length === 0;
  const kept = isPlain ? await keptCount(db, table, request.equal) : undefined;
  const count = kept ?? (await countOf(query));
  const page = fromTheNearerEnd(request, count);
  let rows = query.selectAll().limit(page.limit).offset(page.offset);
  for (const column of request.orderBy) rows = rows.orderBy(column, page.descending ? 'desc' : 'asc');
  const found = (await rows.execute()) as unknown as Schema[T][];
  return { count, rows: page.isReversed ? found.reverse() : found };
}

async function countOf(query: SelectQueryBuilder<Record<string, Record<string, unknown>>, string, object>) {
  const { number } = await query
    .select(({ fn }) => fn.countAll<number>().as('number'))
    .executeTakeFirstOrThrow();
  return Number(number);
}

/** What is passed over costs, too: the last page is the first one of the other direction. */
function fromTheNearerEnd(
  { limit, offset, descending }: Pick<RowQuery<never>, 'limit' | 'offset' | 'descending'>,
  count: number,
) {
  const left = Math.max(0, Math.min(limit, count - offset));
  if (offset <= count / 2) return { limit, offset, descending, isReversed: false };
  return {
    limit: left,
    offset: Math.max(0, count - offset - left),
    descending: !descending,
    isReversed: true,
  };
}

const given = (values: object) =>
  Object.entries(values).filter((entry): entry is [string, string] => entry[1] !== undefined);
