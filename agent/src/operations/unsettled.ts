/** What the journal of an agent that does not run has not brought to its end: for who removes the agent. */
import { existsSync } from 'node:fs';
import { Journal } from './journal.ts';

/**
 * @param path of the journal; one that is not there has nothing
 * @returns kind and id of each operation that still runs, or has something to undo, the oldest first
 * @throws VirtkeepError journal_failed; also while an agent runs
 */
export function unsettledIn(path: string): string[] {
  if (!existsSync(path)) return [];
  const journal = new Journal(path);
  try {
    return journal.unsettled().map(({ message: { kind, id } }) => `${kind} ${id}`);
  } finally {
    journal.close();
  }
}
