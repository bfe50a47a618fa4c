/** SQLite binds 32,766 values to one statement and PostgreSQL 65,535: no table has so many columns that such a piece exceeds them. */
const ROWS_AT_ONCE = 500;

/** In order, so many at a time as one statement can take. */
export function* piecesOf<Row>(rows: readonly Row[]): Generator<Row[]> {
  for (let from = 0; from < rows.length; from += ROWS_AT_ONCE) yield rows.slice(from, from + ROWS_AT_ONCE);
}
