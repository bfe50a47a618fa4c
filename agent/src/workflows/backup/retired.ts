/**
 * Archives that have grown too long and are never extended again. Nobody needs their states on a VM any more, but no state
 * says so: the refusal of an increment is noted here until these states are merged.
 */
import type { Settings } from '../../pools/index.ts';

const keyOf = (domainId: string) => `retired.${domainId}`;

/** Ids of the archives that a domain's increments have left behind. */
export function retiredArchives(settings: Settings | undefined, domainId: string): string[] {
  const kept = settings?.get(keyOf(domainId));
  return Array.isArray(kept) ? kept.filter(id => typeof id === 'string') : [];
}

/** Durable when it returns. @throws VirtkeepError journal_failed */
export function retireArchive(settings: Settings | undefined, domainId: string, backupId: string): void {
  const archives = retiredArchives(settings, domainId);
  if (!archives.includes(backupId)) settings?.set(keyOf(domainId), [...archives, backupId]);
}

/** Forgets those of which the domain has no state any more. @throws VirtkeepError journal_failed */
export function forgetRetired(
  settings: Settings | undefined,
  domainId: string,
  present: ReadonlySet<string>,
): void {
  const archives = retiredArchives(settings, domainId);
  const left = archives.filter(id => present.has(id));
  if (left.length < archives.length) settings?.set(keyOf(domainId), left);
}
