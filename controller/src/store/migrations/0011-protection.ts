/**
 * What the protection of VMs is judged by: the newest restore point of each backup file beside its row, so that nobody reads records for
 * it, the backups that have ended, and the VMs that nobody wants backed up.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

interface Files {
  files: {
    id: string;
    type: string;
    path: string;
    created: string;
    record_json: string;
    newest_point: string | null;
  };
}

const ROWS_AT_ONCE = 500;

export const protection: Migration = {
  up: async (db: Kysely<Files>) => {
    await db.schema.alterTable('files').addColumn('newest_point', 'text').execute();
    await fillNewestPoints(db);
    await db.schema
      .createIndex('files_points')
      .on('files')
      .columns(['domain_id', 'status', 'newest_point'])
      .execute();
    await db.schema
      .createTable('protection_exclusions')
      .addColumn('domain_id', 'text', c => c.primaryKey())
      .addColumn('created', 'text', c => c.notNull())
      .execute();
    await db.schema
      .createTable('backup_attempts')
      .addColumn('domain_id', 'text', c => c.primaryKey())
      .addColumn('finished', 'text', c => c.notNull())
      .addColumn('failed', 'integer', c => c.notNull())
      .addColumn('error_key', 'text')
      .addColumn('error_text', 'text')
      .addColumn('succeeded', 'text')
      .addColumn('duration_ms', 'bigint')
      .addColumn('bytes_read', 'bigint')
      .addColumn('bytes_written', 'bigint')
      .execute();
    await db.schema
      .createIndex('backup_attempts_finished')
      .on('backup_attempts')
      .column('finished')
      .execute();
    await db.schema.createIndex('tasks_named').on('tasks').columns(['name', 'finished_time', 'id']).execute();
  },
};

async function fillNewestPoints(db: Kysely<Files>): Promise<void> {
  for (let last = ''; ; ) {
    const rows = await db
      .selectFrom('files')
      .select(['id', 'type', 'path', 'created', 'record_json'])
      .where('id', '>', last)
      .orderBy('id')
      .limit(ROWS_AT_ONCE)
      .execute();
    for (const { id, ...row } of rows)
      await db
        .updateTable('files')
        .set({ newest_point: newestPoint(row) })
        .where('id', '=', id)
        .execute();
    if (rows.length < ROWS_AT_ONCE) return;
    last = rows.at(-1)!.id;
  }
}

/** As records were at that time. */
function newestPoint({ type, path, created, record_json }: Omit<Files['files'], 'id' | 'newest_point'>) {
  const { states = [], damage = '' } = JSON.parse(record_json) as {
    states?: { created: string | null }[];
    damage?: string;
  };
  if (type !== 'tar' || damage !== '' || path.startsWith('unpublished:')) return null;
  return (
    states
      .flatMap(state => state.created ?? [])
      .sort()
      .at(-1) ?? created
  );
}
