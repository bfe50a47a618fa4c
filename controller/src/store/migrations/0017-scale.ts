/**
 * What is asked of tables that grow with the nodes, VMs and backups is found by an index, each order of a list in one, and how many rows a
 * list has is kept: counting them would read all.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import { isPostgres, postgresOperationOfWork } from '../dialect.ts';

/** Name of the index, its table, its columns. */
const INDEXES: [string, string, string[]][] = [
  ['tasks_ended', 'tasks', ['finished_time', 'id']],
  ['tasks_of_status', 'tasks', ['status', 'created', 'id']],
  ['tasks_of_node', 'tasks', ['node_id', 'created', 'id']],
  ['tasks_name', 'tasks', ['name', 'id']],
  ['tasks_title', 'tasks', ['verbose_name', 'id']],
  ['tasks_progress', 'tasks', ['progress', 'id']],
  ['tasks_by_status', 'tasks', ['status', 'id']],
  ['events_created', 'events', ['created']],
  ['events_type', 'events', ['type', 'sequence']],
  ['events_by_type', 'events', ['type', 'id']],
  ['events_user', 'events', ['user', 'sequence']],
  ['events_by_user', 'events', ['user', 'id']],
  ['audit_user', 'audit', ['username', 'sequence']],
  ['audit_entity', 'audit', ['entity_id', 'sequence']],
  ['files_created', 'files', ['created', 'id']],
  ['files_filename', 'files', ['filename', 'id']],
  ['files_name', 'files', ['verbose_name', 'id']],
  ['files_size', 'files', ['size', 'id']],
  ['files_status', 'files', ['status', 'id']],
  ['files_type', 'files', ['type', 'id']],
  ['files_extendable', 'files', ['can_be_incremental', 'status']],
  ['files_at', 'files', ['pool_id', 'filename', 'id']],
  ['files_of_pool', 'files', ['pool_id', 'created', 'id']],
  ['domains_node', 'domains', ['node_id']],
  ['domain_copies_node', 'domain_copies', ['node_id']],
  ['pool_nodes_node', 'pool_nodes', ['node_id']],
  ['nodes_name', 'nodes', ['verbose_name']],
  ['node_enrolments_replaces', 'node_enrolments', ['replaces']],
  ['idempotency_created', 'idempotency', ['created']],
  ['notifications_order', 'notifications', ['created', 'sequence']],
  ['scheduled_tasks_last', 'scheduled_tasks', ['last_run']],
  ['scheduled_runs_finished', 'scheduled_runs', ['finished']],
];

/** The tables of which it is kept how many rows there are, and by which columns, at most two. */
const COUNTED: [string, string[]][] = [
  ['tasks', ['status', 'node_id']],
  ['events', ['type', 'user']],
  ['audit', ['username']],
  ['files', ['status', 'pool_id']],
];

export const scale: Migration = {
  up: async (db: Kysely<unknown>) => {
    for (const [name, table, columns] of INDEXES)
      await db.schema.createIndex(name).on(table).columns(columns).execute();
    const operation = isPostgres(db)
      ? `(${postgresOperationOfWork('record_json')})`
      : "json_extract(record_json, '$.work.operation')";
    await sql.raw(`create index files_work on files (${operation})`).execute(db);
    // each is the beginning of another one
    for (const name of ['files_domain', 'notifications_created']) await db.schema.dropIndex(name).execute();
    await db.schema
      .createTable('row_counts')
      .addColumn('of_table', 'text', c => c.notNull())
      .addColumn('first', 'text', c => c.notNull())
      .addColumn('second', 'text', c => c.notNull())
      .addColumn('number', 'bigint', c => c.notNull())
      .addPrimaryKeyConstraint('row_counts_key', ['of_table', 'first', 'second'])
      .execute();
    for (const counted of COUNTED) await keepCount(db, counted);
  },
};

/** Whoever writes rows need not know of it, and rows that go with others count, too. */
async function keepCount(db: Kysely<unknown>, counted: [string, string[]]): Promise<void> {
  const [table, columns] = counted;
  const named = columns.map(column => `"${column}"`).join();
  const countAll = `insert into row_counts (of_table, first, second, number)
    select ${groupOf('', counted)}, count(*) from ${table} group by ${named}`;
  const triggers = isPostgres(db) ? postgresTriggers(counted, named) : sqliteTriggers(counted, named);
  for (const statement of [countAll, ...triggers]) await sql.raw(statement).execute(db);
}

const groupOf = (row: string, [table, columns]: [string, string[]]): string =>
  [`'${table}'`, ...[0, 1].map(at => (columns[at] ? `coalesce(${row}"${columns[at]}", '')` : "''"))].join();

const addOne = (counted: [string, string[]]): string =>
  `insert into row_counts (of_table, first, second, number) values (${groupOf('new.', counted)}, 1)
    on conflict (of_table, first, second) do update set number = row_counts.number + 1`;

const takeOne = (counted: [string, string[]]): string =>
  `update row_counts set number = number - 1 where (of_table, first, second) = (${groupOf('old.', counted)})`;

function sqliteTriggers(counted: [string, string[]], named: string): string[] {
  const [table, columns] = counted;
  const [add, take] = [addOne(counted), takeOne(counted)];
  const isOther = columns.map(column => `old."${column}" is not new."${column}"`).join(' or ');
  return [
    `create trigger ${table}_added after insert on ${table} begin ${add}; end`,
    `create trigger ${table}_removed after delete on ${table} begin ${take}; end`,
    `create trigger ${table}_regrouped after update of ${named} on ${table} when ${isOther} begin ${take}; ${add}; end`,
  ];
}

function postgresTriggers(counted: [string, string[]], named: string): string[] {
  const [table, columns] = counted;
  const isOther = columns.map(column => `old."${column}" is distinct from new."${column}"`).join(' or ');
  const run = `for each row execute function ${table}_counted()`;
  return [
    `create function ${table}_counted() returns trigger language plpgsql as $$
      begin
        if tg_op <> 'INSERT' then ${takeOne(counted)}; end if;
        if tg_op <> 'DELETE' then ${addOne(counted)}; end if;
        return null;
      end $$`,
    `create trigger ${table}_added after insert on ${table} ${run}`,
    `create trigger ${table}_removed after delete on ${table} ${run}`,
    `create trigger ${table}_regrouped after update of ${named} on ${table} for each row when (${isOther})
      execute function ${table}_counted()`,
  ];
}
