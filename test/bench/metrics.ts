/**
 * What `/metrics` costs with many nodes and VMs: the time that writing it takes, how long anybody else waits meanwhile, and the statements
 * that it asks, which are none for the VMs. Beside it the same series kept in prom-client. `node test/bench/metrics.ts [--quick]`
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import BetterSqlite from 'better-sqlite3';
import { Kysely, SqliteDialect } from 'kysely';
import { Gauge, Registry } from 'prom-client';
import { metricsText } from '../../controller/src/http/metrics/text.ts';
import { VM_FAMILIES } from '../../controller/src/http/metrics/vms.ts';
import { Inventory } from '../../controller/src/services/inventory/inventory.ts';
import { DomainEntry, KeptDomain } from '../../controller/src/services/inventory/kept-domain.ts';
import { inventoryMeasures } from '../../controller/src/services/monitoring/inventory-measures.ts';
import { MetricSources } from '../../controller/src/services/monitoring/sources.ts';
import { ProtectionService } from '../../controller/src/services/protection/protection.ts';
import { migrate } from '../../controller/src/store/migrate.ts';
import type { FileRow, Schema } from '../../controller/src/store/schema.ts';
import { type BenchRow, benchOptions, median, printTable } from './lib.ts';

const { quick } = benchOptions();
const NODES = quick ? 100 : 1000;
const VMS = 100;
const ROUNDS = 3;
const NOW = new Date().toISOString();
/** Of what the same costs in prom-client, measured in the same run: a busy machine makes both slow. */
const MOST_TIME = 0.4;
const LONGEST_WAIT = 0.2;

const uuid = (kind: number, number: number) =>
  `${String(kind).padStart(8, '0')}-0000-4000-8000-${String(number).padStart(12, '0')}`;

let statements = 0;
const db = new Kysely<Schema>({
  dialect: new SqliteDialect({ database: new BetterSqlite(':memory:') }),
  log: () => {
    statements += 1;
  },
});
await migrate(db);
const inventory = new Inventory(db, () => {});

const nodeRow = (number: number) => ({
  id: uuid(1, number),
  verbose_name: `node-${number}`,
  description: '',
  address: '',
  certificate_fingerprint: '',
  service_mode: 0,
  base_datapool: null,
  inventory_json: '{}',
  operation_sequence: 0,
  last_seen: NOW,
  created: NOW,
  modified: NOW,
});
const fileRow = (number: number): FileRow => ({
  id: uuid(3, number),
  pool_id: uuid(4, 0),
  path: `/p/${number}`,
  filename: `${number}`,
  verbose_name: `${number}`,
  description: '',
  size: 1,
  status: 'ACTIVE',
  type: 'tar',
  compressed: 0,
  can_be_incremental: 0,
  protected: 0,
  domain_id: uuid(2, number),
  domain_name: '',
  created: NOW,
  record_json: '{}',
  newest_point: NOW,
  newest_whole_point: NOW,
  modified: NOW,
});
const attemptRow = (number: number) => ({
  domain_id: uuid(2, number),
  finished: NOW,
  failed: 0,
  error_key: null,
  error_text: null,
  succeeded: NOW,
  duration_ms: 61_234,
  bytes_read: 21_474_836_480 + number,
  bytes_written: 1_073_741_824 + number,
});

async function fill(): Promise<void> {
  for (let node = 0; node < NODES; node += 1) {
    const row = nodeRow(node);
    inventory.nodes.set(row.id, { row, info: null });
    const id = uuid(4, node);
    const pool = {
      id,
      verbose_name: `pool-${node}`,
      description: '',
      type: 'local',
      outside: 0,
      backup_bandwidth: 0,
      latency_target: 0,
      readonly: 0,
    };
    inventory.pools.set(id, {
      row: { ...pool, created: NOW, modified: NOW },
      views: new Map([[row.id, Pool.fromPartial({ id, name: pool.verbose_name, capacity: 10n ** 12n })]]),
    });
    const numbers = Array.from({ length: VMS }, (_, vm) => node * VMS + vm);
    for (const number of numbers) {
      const domain = Domain.fromPartial({ id: uuid(2, number), name: `web-${number}.example.com` });
      const stamps = { firstSeen: NOW, modified: NOW };
      const facts = { nodeId: row.id, ...stamps, ranOn: null, conflict: null };
      inventory.domains.set(domain.id, new DomainEntry(new KeptDomain(domain), facts));
    }
    await db.insertInto('files').values(numbers.map(fileRow)).execute();
    await db.insertInto('backup_attempts').values(numbers.map(attemptRow)).execute();
  }
}

await fill();
const protection = new ProtectionService({
  db,
  inventory,
  tags: { has: () => true },
  tell: () => {},
  maxAgeDays: () => 7,
  keepDays: () => 180,
});
const loadFrom = performance.now();
await protection.load();
const loadMs = performance.now() - loadFrom;

/** The longest that anybody waited, in ms. */
async function stallOf(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let last = performance.now();
  const look = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(look, 1);
  await work();
  await sleep(20);
  clearInterval(timer);
  return longest;
}

const sources = new MetricSources();
sources.setInventory(inventoryMeasures({ inventory, links: { isConnected: () => true }, protection }));
const nothing = { metrics: async () => '' };

async function written(): Promise<number> {
  let bytes = 0;
  for await (const text of metricsText(nothing, sources)) bytes += text.length;
  return bytes;
}

async function kept(): Promise<number> {
  const registry = new Registry();
  for (const { name, help, value, labels } of VM_FAMILIES) {
    const labelNames = ['id', 'vm', ...(labels ? ['node', 'state'] : [])];
    const gauge = new Gauge({ name, help, labelNames, registers: [registry] });
    for (const vm of protection.measures())
      gauge.set({ id: vm.id, vm: vm.name, ...labels?.(vm) }, value(vm) ?? 0);
  }
  return (await registry.metrics()).length;
}

async function measured(work: () => Promise<number>) {
  const times: number[] = [];
  const stalls: number[] = [];
  let bytes = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    stalls.push(
      await stallOf(async () => {
        const from = performance.now();
        bytes = await work();
        times.push(performance.now() - from);
      }),
    );
  }
  return { ms: median(times), stallMs: median(stalls), bytes };
}

statements = 0;
const own = await measured(written);
const asked = statements;
const client = await measured(kept);
const listFrom = performance.now();
await protection.list({});
const listMs = performance.now() - listFrom;

const rows: BenchRow[] = [
  { name: 'written in pieces', value: own.ms, unit: 'ms', note: `${(own.bytes / 2 ** 20).toFixed(1)} MiB` },
  { name: 'longest wait of others meanwhile', value: own.stallMs, unit: 'ms' },
  { name: 'statements', value: asked, unit: '', target: 0 },
  { name: 'the same kept in prom-client', value: client.ms, unit: 'ms' },
  { name: 'time against prom-client', value: own.ms / client.ms, unit: '×', target: MOST_TIME },
  { name: 'wait against prom-client', value: own.stallMs / client.stallMs, unit: '×', target: LONGEST_WAIT },
  { name: 'verdicts of all VMs', value: listMs, unit: 'ms' },
  { name: 'loading at start', value: loadMs, unit: 'ms' },
];
if (!printTable(`Metrics of ${NODES} nodes with ${VMS} VMs each`, rows)) process.exitCode = 1;
await db.destroy();
