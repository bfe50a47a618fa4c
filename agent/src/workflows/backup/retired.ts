/**
 * Archives that have grown too long and are never extended again. Their states on a VM are needed by nobody then, but no
 * state says so: what is known when an increment is refused is kept until they are merged.
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
  const known = retiredArchives(settings, domainId);
  if (!known.includes(backupId)) settings?.set(keyOf(domainId), [...known, backupId]);
}

/** Forgets those of which the domain has no state any more. @throws VirtkeepError journal_failed */
export function forgetRetired(
  settings: Settings | undefined,
  domainId: string,
  present: ReadonlySet<string>,
): void {
  const known = retiredArchives(settings, domainId);
  const left = known.filter(id => present.has(id));
  if (left.length < known.length) settings?.set(keyOf(domainId), left);
}
