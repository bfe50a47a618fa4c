/** The statements that a database is asked, caught at the driver, and how it goes about them. */
import { jest } from '@jest/globals';
import BetterSqlite from 'better-sqlite3';
import { StatementCache } from '../../../controller/src/store/statement-cache.ts';

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
const IS_QUERY = /^(select|insert|update|delete|with)\b/i;

export class Statements {
  readonly #texts: string[] = [];
  readonly #spy: { mockRestore: () => void };

  constructor() {
    const { prepare } = StatementCache.prototype;
    const texts = this.#texts;
    this.#spy = jest.spyOn(StatementCache.prototype, 'prepare').mockImplementation(function (
      this: StatementCache,
      text: string,
    ) {
      texts.push(text);
      return prepare.call(this, text);
    });
  }

  /** Those that were asked while this was done. */
  async during(work: () => Promise<unknown>): Promise<string[]> {
    const from = this.#texts.length;
    await work();
    return this.#texts.slice(from);
  }

  all(): string[] {
    return [...new Set(this.#texts)].filter(text => IS_QUERY.test(text));
  }

  forget(): void {
    this.#texts.length = 0;
  }

  end(): void {
    this.#spy.mockRestore();
  }
}

export const writesTo = (table: string) => (text: string) =>
  new RegExp(`^(insert into|update|delete from) "${table}"`).test(text);

/** Those of these statements that read all of a table that grows, each with its plan. */
export function scansOf(file: string, texts: readonly string[]): string[] {
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
