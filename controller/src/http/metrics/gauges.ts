/** What there is little of: tasks, listeners, nodes, data pools. */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { InventoryMetricsSource, PoolMeasures } from '../../services/monitoring/sources.ts';
import type { Services } from '../../services/services.ts';
import { errorOfRow } from '../../services/tasks/record.ts';

export function addGauges(registry: Registry, services: Services): void {
  taskGauges(registry, services);
  const registers = [registry];
  new Gauge({
    name: 'virtkeep_event_listeners',
    help: 'Listeners of the change feed',
    registers,
    collect() {
      this.set(services.changes.listenerCount);
    },
  });
  nodeGauges(registry, () => services.metricSources.inventory);
  poolGauges(registry, () => services.metricSources.inventory);
}

function taskGauges(registry: Registry, { tasks }: Services): void {
  const registers = [registry];
  new Gauge({
    name: 'virtkeep_tasks',
    help: 'Tasks by status',
    labelNames: ['status'],
    registers,
    async collect() {
      this.reset();
      for (const [status, number] of Object.entries(await tasks.counts())) this.set({ status }, number);
    },
  });
  const ended = new Counter({
    name: 'virtkeep_tasks_ended_total',
    help: 'Tasks that have ended since the controller was started, by what they did',
    labelNames: ['task', 'status'],
    registers,
  });
  const failures = new Counter({
    name: 'virtkeep_task_failures_total',
    help: 'Tasks that have failed since the controller was started, by what they did and why',
    labelNames: ['task', 'error'],
    registers,
  });
  tasks.onEnd(async ({ row }) => {
    ended.inc({ task: row.name, status: row.status });
    if (row.status === 'FAILED') failures.inc({ task: row.name, error: errorOfRow(row)?.msg_key ?? '' });
  });
}

type Source = () => InventoryMetricsSource | undefined;

function nodeGauges(registry: Registry, source: Source): void {
  for (const [name, help, field] of [
    ['virtkeep_node_connected', '1: the controller is connected to the node', 'connected'],
    ['virtkeep_node_in_service_mode', '1: somebody works on the node', 'service'],
  ] as const)
    new Gauge({
      name,
      help,
      labelNames: ['id', 'node'],
      registers: [registry],
      collect() {
        this.reset();
        for (const node of source()?.nodes() ?? [])
          this.set({ id: node.id, node: node.name }, Number(node[field]));
      },
    });
}

const POOL_GAUGES: [string, string, (pool: PoolMeasures) => number][] = [
  ['virtkeep_pool_size_bytes', 'Size of the data pool', ({ sizeBytes }) => sizeBytes],
  ['virtkeep_pool_free_bytes', 'What is free of it', ({ freeBytes }) => freeBytes],
  ['virtkeep_pool_used_bytes', 'What is used of it', ({ usedBytes }) => usedBytes],
  ['virtkeep_pool_active', '1: a connected node can use the data pool', ({ active }) => Number(active)],
];

function poolGauges(registry: Registry, source: Source): void {
  for (const [name, help, value] of POOL_GAUGES)
    new Gauge({
      name,
      help,
      labelNames: ['id', 'pool', 'type'],
      registers: [registry],
      collect() {
        this.reset();
        for (const pool of source()?.pools() ?? [])
          this.set({ id: pool.id, pool: pool.name, type: pool.type }, value(pool));
      },
    });
}
