/** How a database goes about statements. */
import BetterSqlite from 'better-sqlite3';
import { sql } from 'kysely';
import type { Database } from '../../../controller/src/store/schema.ts';
import type { TestDatabase } from '../../../controller/src/store/test-database.ts';

/** Tables that grow with nodes, VMs, backups or time. */
const GROWING = [
  'audit',
  'backup_attempts',
  'domain_copies',
  'domains',
  'event_entities',
  'events',
  'file_origins',
  'files',
  'idempotency',
  'node_enrolments',
  'nodes',
  'notifications',
  'pool_nodes',
  'removed_archives',
  'retention_decisions',
  'scheduled_parts',
  'scheduled_runs',
  'task_entities',
  'tasks',
];

/** Those of these statements that read all of a table that grows, each with its plan. */
export async function scansOf({ target, open }: TestDatabase, texts: readonly string[]): Promise<string[]> {
  if (target.kind === 'sqlite') return sqliteScans(target.path, texts);
  const db = await open();
  try {
    return await postgresScans(db, texts);
  } finally {
    await db.destroy();
  }
}

function sqliteScans(file: string, texts: readonly string[]): string[] {
  const database = new BetterSqlite(file, { readonly: true });
  try {
    return texts.flatMap(text => {
      const parameters = Array(text.split('?').length - 1).fill(null);
      const plan = database.prepare(`explain query plan ${text}`).all(parameters) as { detail: string }[];
      const details = plan.map(({ detail }) => detail);
      return details.some(detail => isScan(detail, text, details))
        ? [`${text}\n  ${details.join('\n  ')}`]
        : [];
    });
  } finally {
    database.close();
  }
}

/** In the order of an index until a page is full it reads no more than that. */
function isScan(detail: string, text: string, details: readonly string[]): boolean {
  const table = /^SCAN (\w+)/.exec(detail)?.[1];
  if (table === undefined || !GROWING.includes(table)) return false;
  const isInOrder = / USING (COVERING )?INDEX /.test(detail) && / limit \?/.test(text);
  return !isInOrder || details.some(other => other.startsWith('USE TEMP B-TREE FOR ORDER BY'));
}

/** A step of a plan of PostgreSQL. */
interface Step {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Cond'?: string;
  Plans?: Step[];
}

/**
 * PostgreSQL reads a small table as a whole whatever indexes there are, or goes through one in the order that is asked for. So it is told that
 * to read all is dear beyond all else, and asked for the plan of any values, once as it is and once when to sort is as dear: where
 * each of these reads all of a table, there is no index to go by.
 */
async function postgresScans(db: Database, texts: readonly string[]): Promise<string[]> {
  return db.connection().execute(async connection => {
    const ask = (text: string) => sql.raw<Record<string, unknown>>(text).execute(connection);
    await ask('set enable_seqscan = off');
    await ask('set plan_cache_mode = force_generic_plan');
    const planOf = async (text: string, sorts: 'on' | 'off'): Promise<Step> => {
      const count = Math.max(0, ...[...text.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number)));
      const values = count === 0 ? '' : `(${Array(count).fill('null').join()})`;
      await ask(`set enable_sort = ${sorts}`);
      await ask(`prepare looked_at as ${text}`);
      const { rows } = await ask(`explain (format json) execute looked_at${values}`);
      await ask('deallocate looked_at');
      return (rows[0]!['QUERY PLAN'] as { Plan: Step }[])[0]!.Plan;
    };
    const scans: string[] = [];
    for (const text of texts) {
      const plans = [await planOf(text, 'on'), await planOf(text, 'off')];
      if (plans.every(plan => readsAll(plan, { isLimited: false })))
        scans.push(`${text}\n  ${JSON.stringify(plans)}`);
    }
    return scans;
  });
}

/** @param above whether what this step gives is taken until a page is full, in the order in which it comes */
function readsAll(step: Step, above: { isLimited: boolean }): boolean {
  const isLimited = step['Node Type'] === 'Limit' || (above.isLimited && KEEPS_ORDER.has(step['Node Type']));
  const table = step['Relation Name'];
  const isOfIndex = /^(Index|Index Only) Scan$/.test(step['Node Type']);
  const isWhole = step['Node Type'] === 'Seq Scan' || (isOfIndex && step['Index Cond'] === undefined);
  if (table !== undefined && GROWING.includes(table) && isWhole && !(isOfIndex && above.isLimited))
    return true;
  return (step.Plans ?? []).some(inner => readsAll(inner, { isLimited }));
}

const KEEPS_ORDER = new Set(['Incremental Sort', 'Nested Loop', 'Result', 'LockRows', 'Subquery Scan']);
