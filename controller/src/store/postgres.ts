/** A database of a PostgreSQL server that answers as SQLite does: the same order of texts, nulls before all else, numbers as wide. */
import { ConfigError } from '@virtkeep/shared/config';
import {
  type BinaryOperationNode,
  CastNode,
  ColumnNode,
  type CreateIndexNode,
  type DataTypeNode,
  Kysely,
  type OperationNode,
  OperatorNode,
  OrderByItemNode,
  PostgresDialect,
  PostgresQueryCompiler,
  PrimitiveValueListNode,
  RawNode,
  ReferenceNode,
  sql,
  ValueListNode,
} from 'kysely';
import { OneConnection } from './one-connection.ts';
import type { Database, Schema } from './schema.ts';
import type { PostgresTarget } from './target.ts';

const OLDEST_MAJOR = 15;

/** Columns that may be null and by which rows are ordered. Indexes of them are made in the same order, so that they are of use for it. */
const NULLABLE_IN_ORDER = new Set(['finished', 'finished_time', 'last_run', 'next_run', 'revoked_on']);

/** Texts sort by their bytes, whatever the language of the database; an integer of SQLite has 64 bits. */
const COLUMN_TYPES: Record<string, string> = { text: 'text collate "C"', integer: 'bigint' };

/** Connects with the first query. */
export function openPostgres(target: PostgresTarget): Database {
  return new Kysely<Schema>({ dialect: new SameOrderDialect({ pool: new OneConnection(target) }) });
}

/** @throws ConfigError, when the server is too old or the database cannot hold every text. */
export async function requireUsable(db: Database): Promise<void> {
  const { rows } = await sql<{
    version: string;
    encoding: string;
  }>`select current_setting('server_version') as version, current_setting('server_encoding') as encoding`.execute(
    db,
  );
  const { version, encoding } = rows[0]!;
  if (Number.parseInt(version, 10) < OLDEST_MAJOR)
    throw new ConfigError(
      `database: this server is PostgreSQL ${version}; ${OLDEST_MAJOR} or newer is needed`,
    );
  if (encoding !== 'UTF8')
    throw new ConfigError(`database: its encoding is ${encoding}; make one with encoding UTF8`);
}

class SameOrderDialect extends PostgresDialect {
  override createQueryCompiler(): PostgresQueryCompiler {
    return new SameOrderCompiler();
  }
}

class SameOrderCompiler extends PostgresQueryCompiler {
  protected override visitDataType(node: DataTypeNode): void {
    const isOfColumn = !(this.parentNode && CastNode.is(this.parentNode));
    this.append((isOfColumn ? COLUMN_TYPES[node.dataType] : undefined) ?? node.dataType);
  }

  protected override visitBinaryOperation(node: BinaryOperationNode): void {
    const isOfNothing = isEmptyList(node.rightOperand);
    if (isOfNothing && isOperator(node, 'in')) this.append('false');
    else if (isOfNothing && isOperator(node, 'not in')) this.append('true');
    else super.visitBinaryOperation(node);
  }

  protected override visitOrderByItem(node: OrderByItemNode): void {
    const nulls = isDescending(node) ? 'last' : 'first';
    super.visitOrderByItem(isNullable(node.orderBy) ? OrderByItemNode.cloneWith(node, { nulls }) : node);
  }

  protected override visitCreateIndex(node: CreateIndexNode): void {
    const columns = node.columns?.map(column =>
      isNullable(column) ? OrderByItemNode.create(column) : column,
    );
    super.visitCreateIndex({ ...node, ...(columns && { columns }) });
  }
}

/** SQLite takes it for what it is: nothing is in it. */
const isEmptyList = (node: OperationNode): boolean =>
  (PrimitiveValueListNode.is(node) || ValueListNode.is(node)) && node.values.length === 0;

const isOperator = ({ operator }: BinaryOperationNode, name: string): boolean =>
  OperatorNode.is(operator) && operator.operator === name;

function isNullable(node: OperationNode): boolean {
  const column = ReferenceNode.is(node) ? node.column : node;
  return ColumnNode.is(column) && NULLABLE_IN_ORDER.has(column.column.name);
}

const isDescending = ({ direction }: OrderByItemNode): boolean =>
  direction !== undefined && RawNode.is(direction) && direction.sqlFragments[0] === 'desc';
