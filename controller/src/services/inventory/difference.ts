/** What is different in a domain that a node tells of anew. Guests are asked every few minutes, mostly to the same effect. Pure. */
import { Domain, GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';

/**
 * `nothing`; `freshness`: the guest told the same later; `guest`: it told something else; `domain`: the domain itself, be it
 * new.
 */
export type DomainDifference = 'nothing' | 'freshness' | 'guest' | 'domain';

export function domainDifference(before: Domain | undefined, after: Domain): DomainDifference {
  if (before === undefined || text(withoutGuest(before)) !== text(withoutGuest(after))) return 'domain';
  if (guestText(before.guestInfo) !== guestText(after.guestInfo)) return 'guest';
  return before.guestInfo?.refreshed?.getTime() === after.guestInfo?.refreshed?.getTime()
    ? 'nothing'
    : 'freshness';
}

const withoutGuest = (domain: Domain): Domain => ({ ...domain, guestInfo: undefined, revision: 0n });
const text = (domain: Domain): string => JSON.stringify(Domain.toJSON(domain));

function guestText(info: GuestInfo | undefined): string {
  return info ? JSON.stringify(GuestInfo.toJSON({ ...info, refreshed: undefined })) : '';
}
