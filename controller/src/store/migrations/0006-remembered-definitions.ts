/** Definitions that are remembered of backups, from before agents left the secrets out of what they show: they are read anew. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Schema } from '../schema.ts';

export const rememberedDefinitions: Migration = {
  up: async (db: Kysely<unknown>) => {
    const files = db as Kysely<Pick<Schema, 'files'>>;
    const ids = await files
      .selectFrom('files')
      .select('id')
      .where('record_json', 'like', '%"xml":%')
      .execute();
    for (const { id } of ids) {
      const one = files.selectFrom('files').select('record_json').where('id', '=', id);
      const record = JSON.parse((await one.executeTakeFirstOrThrow()).record_json);
      if (!record.shown) continue;
      delete record.shown.xml;
      await files
        .updateTable('files')
        .set({ record_json: JSON.stringify(record) })
        .where('id', '=', id)
        .execute();
    }
  },
};
