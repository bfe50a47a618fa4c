import { type Migration, Migrator } from 'kysely/migration';
import { first } from './migrations/0001-first.ts';
import { domainCopies } from './migrations/0002-domain-copies.ts';
import { accounts } from './migrations/0003-accounts.ts';
import { certificates } from './migrations/0004-certificates.ts';
import { removedArchives } from './migrations/0005-removed-archives.ts';
import { rememberedDefinitions } from './migrations/0006-remembered-definitions.ts';
import { userNumbers } from './migrations/0007-user-numbers.ts';
import { tags } from './migrations/0008-tags.ts';
import { schedules } from './migrations/0009-schedules.ts';
import { notifications } from './migrations/0010-notifications.ts';
import { protection } from './migrations/0011-protection.ts';
import { poolBandwidth } from './migrations/0012-pool-bandwidth.ts';
import { taskEvents } from './migrations/0013-task-events.ts';
import { openRuns } from './migrations/0014-open-runs.ts';
import { notedBackups } from './migrations/0015-noted-backups.ts';
import { wholePoints } from './migrations/0016-whole-points.ts';
import { scale } from './migrations/0017-scale.ts';
import { decisionOrder } from './migrations/0018-decision-order.ts';
import { sessionsAndPoolSamples } from './migrations/0019-sessions-and-pool-samples.ts';
import { sealedKeys } from './migrations/0020-sealed-keys.ts';
import { settings } from './migrations/0021-settings.ts';
import { poolLatency } from './migrations/0022-pool-latency.ts';
import { reachedRecipients } from './migrations/0023-reached-recipients.ts';
import type { Database } from './schema.ts';

/** In order; a name is never changed and a migration never edited once it has been released. */
const MIGRATIONS: Record<string, Migration> = {
  '0001-first': first,
  '0002-domain-copies': domainCopies,
  '0003-accounts': accounts,
  '0004-certificates': certificates,
  '0005-removed-archives': removedArchives,
  '0006-remembered-definitions': rememberedDefinitions,
  '0007-user-numbers': userNumbers,
  '0008-tags': tags,
  '0009-schedules': schedules,
  '0010-notifications': notifications,
  '0011-protection': protection,
  '0012-pool-bandwidth': poolBandwidth,
  '0013-task-events': taskEvents,
  '0014-open-runs': openRuns,
  '0015-noted-backups': notedBackups,
  '0016-whole-points': wholePoints,
  '0017-scale': scale,
  '0018-decision-order': decisionOrder,
  '0019-sessions-and-pool-samples': sessionsAndPoolSamples,
  '0020-sealed-keys': sealedKeys,
  '0021-settings': settings,
  '0022-pool-latency': poolLatency,
  '0023-reached-recipients': reachedRecipients,
};

/** Runs the migrations that have not run yet, each in a transaction of its own. */
export async function migrate(database: Database): Promise<void> {
  const migrator = new Migrator({ db: database, provider: { getMigrations: async () => MIGRATIONS } });
  const { error } = await migrator.migrateToLatest();
  if (error !== undefined) throw error;
}
