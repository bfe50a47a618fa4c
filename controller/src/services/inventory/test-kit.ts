/** For tests of what nodes tell. */
import { type DeepPartial, Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { NodeRow } from '../../store/schema.ts';
import { DomainEntry, type DomainFacts, KeptDomain } from './kept-domain.ts';

/** A node that was enrolled and never heard of. */
export const nodeRow = (id: string): NodeRow => ({
  id,
  verbose_name: id,
  description: '',
  address: 'localhost:1',
  certificate_fingerprint: '',
  service_mode: 0,
  base_datapool: null,
  inventory_json: '',
  operation_sequence: 0,
  last_seen: null,
  created: '2026-01-01T00:00:00.000Z',
  modified: '2026-01-01T00:00:00.000Z',
});

/** A domain as the inventory has it, on this node. */
export function entryOf(
  domain: DeepPartial<Domain>,
  nodeId: string,
  facts: Partial<DomainFacts> = {},
): DomainEntry {
  const stamps = { firstSeen: '', modified: '' };
  const kept = new KeptDomain(Domain.fromPartial(domain));
  return new DomainEntry(kept, { nodeId, ...stamps, ranOn: null, conflict: null, ...facts });
}
