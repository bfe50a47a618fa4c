/** What a domain's message is made of, so that it is made anew only when some of that is different. Pure. */
import type { Domain, GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { pathOf } from '../pools/index.ts';
import type { DomainFacts } from './domain-facts.ts';
import { domainMessage } from './messages.ts';
import type { ModelScope } from './node-model.ts';
import type { Source } from './shown.ts';

export interface SourceScope extends ModelScope {
  /** The domains of this node that lend it disks, by disk. */
  lenders: ReadonlyMap<string, string> | undefined;
  /** Operation that holds it; empty: none. */
  lockedBy: string;
  /** What its guest told of itself. */
  guestInfo: GuestInfo | undefined;
}

export function domainSource(facts: DomainFacts, scope: SourceScope): Source<Domain> {
  const { places, disks, template, lentState, lenders, lockedBy, guestInfo } = scope;
  const lent = lenders ? JSON.stringify([...lenders]) : '';
  return {
    id: facts.uuid,
    inputs: [facts, places, disks, template, lentState, lent, lockedBy, guestInfo],
    render: () =>
      domainMessage(facts, {
        pools: places,
        disks,
        templateFiles: template && new Set(template.disks.flatMap(disk => pathOf(disk, places) ?? [])),
        ownerOf: diskId => lenders?.get(diskId),
        lentState,
        lockedBy,
        guestInfo,
      }),
  };
}
