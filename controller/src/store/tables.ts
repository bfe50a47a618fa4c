import type { Schema } from './schema.ts';

/**
 * Every table with the columns that tell its rows apart, in an order in which rows can be put into an empty database: what a row refers to
 * comes before it, and what the database counts by itself is put last.
 */
export const TABLES: readonly (readonly [keyof Schema, readonly string[]])[] = [
  ['users', ['id']],
  ['tokens', ['id']],
  ['sessions', ['id']],
  ['removed_users', ['id']],
  ['revoked_sessions', ['jti']],
  ['login_failures', ['subject']],
  ['known_logins', ['subject']],
  ['tasks', ['id']],
  ['task_entities', ['task_id', 'entity_id']],
  ['events', ['id']],
  ['event_entities', ['event_id', 'entity_id']],
  ['audit', ['id']],
  ['idempotency', ['user_id', 'idempotency_key']],
  ['nodes', ['id']],
  ['node_enrolments', ['id']],
  ['certificates', ['serial']],
  ['pools', ['id']],
  ['pool_samples', ['pool_id', 'day']],
  ['pool_nodes', ['pool_id', 'node_id']],
  ['domains', ['id']],
  ['domain_copies', ['domain_id', 'node_id']],
  ['files', ['id']],
  ['removed_archives', ['archive_id']],
  ['protection_exclusions', ['domain_id']],
  ['backup_attempts', ['domain_id']],
  ['tags', ['id']],
  ['tag_entities', ['tag_id', 'entity_id']],
  ['scheduled_tasks', ['id']],
  ['scheduled_runs', ['id']],
  ['scheduled_parts', ['run_id', 'position']],
  ['file_origins', ['archive_id']],
  ['retention_decisions', ['id']],
  ['notification_targets', ['id']],
  ['notifications', ['id']],
  ['sealed_keys', ['name']],
  ['row_counts', ['of_table', 'first', 'second']],
];
