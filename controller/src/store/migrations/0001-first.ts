/** The first schema; see store/schema.ts for what the columns mean. Portable types only (text, integer, bigint). */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Db = Kysely<unknown>;

export const first: Migration = {
  up: async (db: Db) => {
    await createAccountTables(db);
    await createTaskTables(db);
    await createEventTables(db);
    await createInventoryTables(db);
  },
};

async function createAccountTables(db: Db): Promise<void> {
  await db.schema
    .createTable('users')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('username', 'text', c => c.notNull().unique())
    .addColumn('role', 'text', c => c.notNull())
    .addColumn('password_hash', 'text', c => c.notNull())
    .addColumn('enabled', 'integer', c => c.notNull())
    .addColumn('sessions_since', 'text', c => c.notNull())
    .addColumn('description', 'text', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('modified', 'text', c => c.notNull())
    .addColumn('last_login', 'text')
    .execute();
  await db.schema
    .createTable('tokens')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('user_id', 'text', c => c.notNull())
    .addColumn('name', 'text', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('expires_on', 'text', c => c.notNull())
    .addColumn('last_used', 'text')
    .addUniqueConstraint('tokens_name', ['user_id', 'name'])
    .execute();
  await db.schema
    .createTable('revoked_sessions')
    .addColumn('jti', 'text', c => c.primaryKey())
    .addColumn('expires_on', 'text', c => c.notNull())
    .execute();
  await db.schema
    .createTable('login_failures')
    .addColumn('subject', 'text', c => c.primaryKey())
    .addColumn('failures', 'integer', c => c.notNull())
    .addColumn('last_failure', 'text', c => c.notNull())
    .execute();
  await db.schema
    .createTable('idempotency')
    .addColumn('user_id', 'text', c => c.notNull())
    .addColumn('idempotency_key', 'text', c => c.notNull())
    .addColumn('request_hash', 'text', c => c.notNull())
    .addColumn('task_id', 'text')
    .addColumn('status', 'integer')
    .addColumn('answer_json', 'text')
    .addColumn('created', 'text', c => c.notNull())
    .addPrimaryKeyConstraint('idempotency_key', ['user_id', 'idempotency_key'])
    .execute();
}

async function createTaskTables(db: Db): Promise<void> {
  await db.schema
    .createTable('tasks')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('name', 'text', c => c.notNull())
    .addColumn('verbose_name', 'text', c => c.notNull())
    .addColumn('status', 'text', c => c.notNull())
    .addColumn('progress', 'integer', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('finished_time', 'text')
    .addColumn('error_json', 'text')
    .addColumn('is_cancellable', 'integer', c => c.notNull())
    .addColumn('is_multitask', 'integer', c => c.notNull())
    .addColumn('parent', 'text')
    .addColumn('node_id', 'text')
    .addColumn('user_id', 'text', c => c.notNull())
    .addColumn('username', 'text', c => c.notNull())
    .addColumn('detail_json', 'text', c => c.notNull())
    .addColumn('result_json', 'text')
    .addColumn('cancel_requested', 'integer', c => c.notNull())
    .addColumn('locks_released', 'integer', c => c.notNull())
    .execute();
  await db.schema.createIndex('tasks_created').on('tasks').columns(['created', 'id']).execute();
  await db.schema.createIndex('tasks_status').on('tasks').columns(['status', 'node_id']).execute();
  await db.schema.createIndex('tasks_parent').on('tasks').column('parent').execute();
  await db.schema
    .createTable('task_entities')
    .addColumn('task_id', 'text', c => c.notNull().references('tasks.id').onDelete('cascade'))
    .addColumn('position', 'integer', c => c.notNull())
    .addColumn('entity_id', 'text', c => c.notNull())
    .addColumn('entity_class', 'text', c => c.notNull())
    .addPrimaryKeyConstraint('task_entities_key', ['task_id', 'entity_id'])
    .execute();
  await db.schema.createIndex('task_entities_entity').on('task_entities').column('entity_id').execute();
}

async function createEventTables(db: Db): Promise<void> {
  await db.schema
    .createTable('events')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('sequence', 'bigint', c => c.notNull().unique())
    .addColumn('type', 'text', c => c.notNull())
    .addColumn('message', 'text', c => c.notNull())
    .addColumn('detail_message', 'text', c => c.notNull())
    .addColumn('user', 'text', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('task_id', 'text')
    .execute();
  await db.schema
    .createTable('event_entities')
    .addColumn('event_id', 'text', c => c.notNull().references('events.id').onDelete('cascade'))
    .addColumn('position', 'integer', c => c.notNull())
    .addColumn('entity_id', 'text', c => c.notNull())
    .addColumn('entity_class', 'text', c => c.notNull())
    .addPrimaryKeyConstraint('event_entities_key', ['event_id', 'entity_id'])
    .execute();
  await db.schema.createIndex('event_entities_entity').on('event_entities').column('entity_id').execute();
  await db.schema
    .createTable('audit')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('sequence', 'bigint', c => c.notNull().unique())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('user_id', 'text')
    .addColumn('username', 'text', c => c.notNull())
    .addColumn('address', 'text', c => c.notNull())
    .addColumn('method', 'text', c => c.notNull())
    .addColumn('path', 'text', c => c.notNull())
    .addColumn('action', 'text', c => c.notNull())
    .addColumn('entity_id', 'text')
    .addColumn('status', 'integer', c => c.notNull())
    .addColumn('error_key', 'text')
    .addColumn('task_id', 'text')
    .addColumn('request_id', 'text', c => c.notNull())
    .addColumn('request_json', 'text', c => c.notNull())
    .execute();
}

async function createInventoryTables(db: Db): Promise<void> {
  await db.schema
    .createTable('nodes')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('verbose_name', 'text', c => c.notNull())
    .addColumn('description', 'text', c => c.notNull())
    .addColumn('address', 'text', c => c.notNull())
    .addColumn('certificate_fingerprint', 'text', c => c.notNull())
    .addColumn('service_mode', 'integer', c => c.notNull())
    .addColumn('base_datapool', 'text')
    .addColumn('inventory_json', 'text', c => c.notNull())
    .addColumn('operation_sequence', 'bigint', c => c.notNull())
    .addColumn('last_seen', 'text')
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('modified', 'text', c => c.notNull())
    .execute();
  await db.schema
    .createTable('node_enrolments')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('token_hash', 'text', c => c.notNull().unique())
    .addColumn('verbose_name', 'text', c => c.notNull())
    .addColumn('description', 'text', c => c.notNull())
    .addColumn('address', 'text', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('expires_on', 'text', c => c.notNull())
    .addColumn('used_by_node', 'text')
    .addColumn('created_by', 'text', c => c.notNull())
    .execute();
  await db.schema
    .createTable('pools')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('verbose_name', 'text', c => c.notNull())
    .addColumn('description', 'text', c => c.notNull())
    .addColumn('type', 'text', c => c.notNull())
    .addColumn('outside', 'integer', c => c.notNull())
    .addColumn('readonly', 'integer', c => c.notNull())
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('modified', 'text', c => c.notNull())
    .execute();
  await db.schema
    .createTable('pool_nodes')
    .addColumn('pool_id', 'text', c => c.notNull().references('pools.id').onDelete('cascade'))
    .addColumn('node_id', 'text', c => c.notNull().references('nodes.id').onDelete('cascade'))
    .addColumn('record_json', 'text', c => c.notNull())
    .addColumn('last_seen', 'text', c => c.notNull())
    .addPrimaryKeyConstraint('pool_nodes_key', ['pool_id', 'node_id'])
    .execute();
  await db.schema
    .createTable('domains')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('node_id', 'text', c => c.notNull().references('nodes.id').onDelete('cascade'))
    .addColumn('verbose_name', 'text', c => c.notNull())
    .addColumn('power_state', 'integer', c => c.notNull())
    .addColumn('template', 'integer', c => c.notNull())
    .addColumn('thin', 'integer', c => c.notNull())
    .addColumn('record_json', 'text', c => c.notNull())
    .addColumn('first_seen', 'text', c => c.notNull())
    .addColumn('modified', 'text', c => c.notNull())
    .execute();
  await db.schema
    .createTable('files')
    .addColumn('id', 'text', c => c.primaryKey())
    .addColumn('pool_id', 'text', c => c.notNull())
    .addColumn('path', 'text', c => c.notNull())
    .addColumn('filename', 'text', c => c.notNull())
    .addColumn('verbose_name', 'text', c => c.notNull())
    .addColumn('description', 'text', c => c.notNull())
    .addColumn('size', 'bigint', c => c.notNull())
    .addColumn('status', 'text', c => c.notNull())
    .addColumn('type', 'text', c => c.notNull())
    .addColumn('compressed', 'integer', c => c.notNull())
    .addColumn('can_be_incremental', 'integer', c => c.notNull())
    .addColumn('protected', 'integer', c => c.notNull())
    .addColumn('domain_id', 'text')
    .addColumn('domain_name', 'text')
    .addColumn('created', 'text', c => c.notNull())
    .addColumn('record_json', 'text', c => c.notNull())
    .addColumn('modified', 'text', c => c.notNull())
    .addUniqueConstraint('files_place', ['pool_id', 'path'])
    .execute();
  await db.schema.createIndex('files_domain').on('files').column('domain_id').execute();
}
