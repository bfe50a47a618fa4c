/** For tests of what nodes tell. */
import type { NodeRow } from '../../store/schema.ts';

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
