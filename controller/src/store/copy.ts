/**
 * All rows of one database in another one. They are read in the order of their keys, a few hundred at a time, and written in one transaction,
 * which ends only when every column of every row has been read back from both sides and is the same.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { shareLoop } from '@virtkeep/shared/turns';
import { type Kysely, sql, type Transaction } from 'kysely';
import { isPostgres } from './dialect.ts';
import { storable } from './one-connection.ts';
import type { Database, Schema } from './schema.ts';
import { isServed } from './served.ts';
import { TABLES } from './tables.ts';

/** Of a few KiB each, most of them; one of a node is up to some MiB. */
const ROWS_AT_ONCE = 200;

type Row = Record<string, unknown>;
type Table = (typeof TABLES)[number];
/** Tables by their name alone. */
type Rows = Kysely<Record<string, Row>>;

export interface CopiedTable {
  table: string;
  rows: number;
  /** Texts in which the target has another sign for a NUL, which it does not keep. */
  changedTexts: number;
}

/**
 * Nobody writes to either of them meanwhile.
 * @param tell is called after each table, before anything of it is there for good
 * @param beside puts in its place what belongs to the rows and is none of them; they are there for good only with that
 * @throws database_in_use, when a controller serves one of them; database_not_empty; database_copy_differs. The target is then as empty as
 *   it was.
 */
export async function copyDatabase(
  source: Database,
  target: Database,
  tell: (copied: CopiedTable) => void,
  beside: (to: Database) => Promise<void> = async () => {},
): Promise<void> {
  for (const db of [source, target]) if (await isServed(db)) throw new VirtkeepError('database_in_use');
  await source.transaction().execute(from =>
    target.transaction().execute(async to => {
      for (const trx of [from, to]) await keepOthersOut(trx);
      await requireEmpty(to);
      for (const table of tablesFor(source, target)) tell(await copyTable(from as never, to as never, table));
      await beside(to);
    }),
  );
}

async function keepOthersOut(trx: Transaction<Schema>): Promise<void> {
  if (!isPostgres(trx)) {
    // no row, and yet a write: from now on nobody else can
    await sql`update users set id = id where false`.execute(trx);
    return;
  }
  await sql`set local lock_timeout = '30s'`.execute(trx);
  const tables = sql.join(TABLES.map(([table]) => sql.table(table)));
  await sql`lock table ${tables} in share row exclusive mode`.execute(trx);
}

/** Keys are sealed in a database that several controllers share; elsewhere they are files, and rows of before would come back one day. */
function tablesFor(source: Database, target: Database): readonly Table[] {
  const areShared = isPostgres(source) && isPostgres(target);
  return TABLES.filter(([name]) => areShared || name !== 'sealed_keys');
}

async function requireEmpty(to: Transaction<Schema>): Promise<void> {
  for (const [table] of TABLES) {
    const row = await to.selectFrom(table).select(sql`1`.as('one')).limit(1).executeTakeFirst();
    if (row !== undefined) throw new VirtkeepError('database_not_empty', { table });
  }
}

async function copyTable(from: Rows, to: Rows, table: Table): Promise<CopiedTable> {
  const [name] = table;
  // by now the rows that were put in are counted
  if (name === 'row_counts') await to.deleteFrom(name).execute();
  const keep = isPostgres(to) ? storable : (value: unknown) => value;
  const copied: CopiedTable = { table: name, rows: 0, changedTexts: 0 };
  for await (const rows of batches(from, table)) {
    const kept = rows.map(row => mapped(row, keep));
    await to.insertInto(name).values(kept).execute();
    copied.rows += rows.length;
    copied.changedTexts += kept.reduce((sum, row, at) => sum + differing(row, rows[at]!).length, 0);
  }
  await verify(batches(from, table), batches(to, table), { name, keep });
  return copied;
}

/** Row by row, from both sides. */
async function verify(
  ofSource: AsyncGenerator<Row[]>,
  ofTarget: AsyncGenerator<Row[]>,
  { name, keep }: { name: string; keep: (value: unknown) => unknown },
): Promise<void> {
  for (;;) {
    const [source, target] = [await ofSource.next(), await ofTarget.next()];
    const [expected, found] = [source.value ?? [], target.value ?? []];
    for (const [at, row] of expected.entries()) {
      const columns = differing(mapped(row, keep), found[at] ?? {});
      if (columns.length > 0)
        throw new VirtkeepError('database_copy_differs', { table: name, columns: columns.join(', ') });
    }
    if (expected.length !== found.length)
      throw new VirtkeepError('database_copy_differs', { table: name, columns: 'number of rows' });
    if (source.done && target.done) return;
  }
}

const mapped = (row: Row, change: (value: unknown) => unknown): Row =>
  Object.fromEntries(Object.entries(row).map(([column, value]) => [column, change(value)]));

/** Columns that the two rows do not have in common. */
function differing(one: Row, other: Row): string[] {
  const columns = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...columns].filter(column => one[column] !== other[column]);
}

/** All rows of a table in the order of its key; both kinds of databases have the same one. */
async function* batches(db: Rows, [name, key]: Table): AsyncGenerator<Row[]> {
  for (let last: Row | undefined; ; ) {
    let query = db.selectFrom(name).selectAll().limit(ROWS_AT_ONCE);
    for (const column of key) query = query.orderBy(column);
    const after = last;
    if (after)
      query = query.where(
        sql<boolean>`(${sql.join(key.map(column => sql.ref(column)))}) > (${sql.join(key.map(column => after[column]))})`,
      );
    const rows = await query.execute();
    if (rows.length > 0) yield rows;
    if (rows.length < ROWS_AT_ONCE) return;
    last = rows.at(-1);
    await shareLoop();
  }
}
