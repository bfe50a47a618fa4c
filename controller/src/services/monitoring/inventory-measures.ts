/** What metrics tell of nodes, data pools and VMs, from the inventory in memory. */
import type { NodeLinks } from '../../agents/links.ts';
import type { Inventory } from '../inventory/inventory.ts';
import { poolRecord } from '../pools/record.ts';
import type { ProtectionService } from '../protection/protection.ts';
import type { InventoryMetricsSource, NodeMeasures, PoolMeasures } from './sources.ts';

export interface MeasuredServices {
  inventory: Inventory;
  links: Pick<NodeLinks, 'isConnected'>;
  protection: ProtectionService;
}

export function inventoryMeasures(services: MeasuredServices): InventoryMetricsSource {
  return {
    nodes: () => nodes(services),
    pools: () => pools(services),
    vms: () => services.protection.measures(),
  };
}

function* nodes({ inventory, links }: MeasuredServices): Generator<NodeMeasures> {
  for (const { row } of inventory.nodes.values())
    yield {
      id: row.id,
      name: row.verbose_name,
      connected: links.isConnected(row.id),
      service: row.service_mode === 1,
    };
}

function* pools({ inventory, links }: MeasuredServices): Generator<PoolMeasures> {
  for (const entry of inventory.pools.values()) {
    if (entry.views.size === 0) continue;
    const seers = [...entry.views.keys()].map(id => ({
      id,
      verbose_name: inventory.nodes.get(id)?.row.verbose_name ?? '',
      connected: links.isConnected(id),
    }));
    const pool = poolRecord(entry, seers, 0);
    yield {
      id: pool.id,
      name: pool.verbose_name,
      type: pool.type,
      active: pool.status === 'ACTIVE',
      sizeBytes: pool.size,
      freeBytes: pool.free_space,
      usedBytes: pool.used_space,
    };
  }
}
