/**
 * A restore point that leaves out disks on request protects no VM: the newest whole one of each file beside its newest one, and which
 * backups leave out disks. Nothing was told of the files of before: they count as whole until their nodes tell, so that no VM is late since
 * the controller is new.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

interface Files {
  files: { newest_point: string | null; newest_whole_point: string | null };
}

export const wholePoints: Migration = {
  up: async (db: Kysely<Files>) => {
    await db.schema.alterTable('files').addColumn('newest_whole_point', 'text').execute();
    await db
      .updateTable('files')
      .set(({ ref }) => ({ newest_whole_point: ref('newest_point') }))
      .execute();
    await db.schema.dropIndex('files_points').execute();
    await db.schema
      .createIndex('files_points')
      .on('files')
      .columns(['domain_id', 'status', 'newest_point', 'newest_whole_point'])
      .execute();
    await db.schema
      .alterTable('tasks')
      .addColumn('leaves_out', 'integer', c => c.notNull().defaultTo(0))
      .execute();
  },
};
