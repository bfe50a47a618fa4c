/** What is different in a domain that a node tells of anew. Guests are asked every few minutes, mostly to the same effect. Pure. */
import type { Domain, GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';

/**
 * `nothing`; `freshness`: the guest told the same later; `guest`: it told something else; `domain`: the domain itself, be it
 * new.
 */
export type DomainDifference = 'nothing' | 'freshness' | 'guest' | 'domain';

export function domainDifference(before: Domain | undefined, after: Domain): DomainDifference {
  if (before === undefined || !isSameButGuest(before, after)) return 'domain';
  if (!isSameGuest(before.guestInfo, after.guestInfo)) return 'guest';
  return before.guestInfo?.refreshed?.getTime() === after.guestInfo?.refreshed?.getTime()
    ? 'nothing'
    : 'freshness';
}

const isSameButGuest = (before: Domain, after: Domain): boolean =>
  isSame({ ...before, guestInfo: undefined, revision: 0n }, { ...after, guestInfo: undefined, revision: 0n });

const isSameGuest = (before: GuestInfo | undefined, after: GuestInfo | undefined): boolean =>
  isSame(before && { ...before, refreshed: undefined }, after && { ...after, refreshed: undefined });

/** The same values of a message; a field that is not there is one without a value. */
function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return Object.is(a, b);
  if (a instanceof Date || b instanceof Date)
    return a instanceof Date && b instanceof Date && a.getTime() === b.getTime();
  const [first, second] = [a as Record<string, unknown>, b as Record<string, unknown>];
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  for (const key in first) if (!isSame(first[key], second[key])) return false;
  for (const key in second) if (first[key] === undefined && second[key] !== undefined) return false;
  return true;
}
