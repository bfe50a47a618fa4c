/** The certificates that were issued, and which of them count no more; enrolment tokens for a node that is known. */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

export const certificates: Migration = {
  up: async (db: Kysely<unknown>) => {
    await db.schema.alterTable('node_enrolments').addColumn('replaces', 'text').execute();
    await db.schema
      .createTable('certificates')
      .addColumn('serial', 'text', c => c.primaryKey())
      .addColumn('kind', 'text', c => c.notNull())
      .addColumn('subject', 'text', c => c.notNull())
      .addColumn('role', 'text', c => c.notNull())
      .addColumn('fingerprint', 'text', c => c.notNull())
      .addColumn('issued', 'text', c => c.notNull())
      .addColumn('expires_on', 'text', c => c.notNull())
      .addColumn('superseded', 'integer', c => c.notNull())
      .addColumn('revoked_on', 'text')
      .addColumn('reason', 'text')
      .execute();
    await db.schema
      .createIndex('certificates_subject')
      .on('certificates')
      .columns(['kind', 'subject'])
      .execute();
    const now = new Date();
    const end = new Date(now.getTime() + LONGEST_LIFE_MS);
    // Of those in use only the fingerprint is known; the serial is learnt when the node shows its certificate.
    await sql`insert into certificates
      (serial, kind, subject, role, fingerprint, issued, expires_on, superseded)
      select 'before:' || id, 'node', id, '', certificate_fingerprint, ${now.toISOString()}, ${end.toISOString()}, 0
      from nodes`.execute(db);
  },
};

/** Of a node's certificate at the time of this migration, and a day. */
const LONGEST_LIFE_MS = 398 * 86_400_000;
