/** Rows of a node that is known but away, with one VM, one pool and one backup file: enough for requests to get far. */
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Database } from '../../../controller/src/store/schema.ts';

export const SEED = {
  node: '11111111-1111-4111-8111-111111111111',
  pool: '22222222-2222-4222-8222-222222222222',
  domain: 'a3b3c3d3-3333-4333-8333-333333333333',
  file: 'abcdef44-4444-4444-8444-444444444444',
  vdisk: '55555555-5555-4555-8555-555555555555',
} as const;

const NOW = '2026-01-02T03:04:05.678Z';

export async function seedNode(db: Database): Promise<void> {
  const stamps = { created: NOW, modified: NOW };
  await db
    .insertInto('nodes')
    .values({
      id: SEED.node,
      verbose_name: 'away',
      description: '',
      // Nothing listens on the discard port: the node stays away.
      address: '127.0.0.1:9',
      certificate_fingerprint: '',
      service_mode: 0,
      base_datapool: SEED.pool,
      inventory_json: '{}',
      operation_sequence: 0,
      last_seen: NOW,
      ...stamps,
    })
    .execute();
  await db
    .insertInto('pools')
    .values({
      id: SEED.pool,
      verbose_name: 'pool',
      description: '',
      type: 'local',
      outside: 0,
      backup_bandwidth: 0,
      latency_target: 0,
      readonly: 0,
      ...stamps,
    })
    .execute();
  const pool = { id: SEED.pool, name: 'pool', path: '/pool', active: true };
  await db
    .insertInto('pool_nodes')
    .values({ pool_id: SEED.pool, node_id: SEED.node, record_json: JSON.stringify(pool), last_seen: NOW })
    .execute();
  await seedDomain(db);
  await seedFile(db);
}

async function seedDomain(db: Database): Promise<void> {
  const disk = { id: SEED.vdisk, name: 'disk', targetDev: 'vda', targetBus: 'virtio', poolId: SEED.pool };
  const domain = { id: SEED.domain, name: 'web-1', powerState: PowerState.RUNNING, disks: [disk] };
  await db
    .insertInto('domains')
    .values({
      id: SEED.domain,
      node_id: SEED.node,
      verbose_name: 'web-1',
      power_state: 3,
      template: 0,
      thin: 0,
      record_json: JSON.stringify(domain),
      first_seen: NOW,
      modified: NOW,
    })
    .execute();
}

async function seedFile(db: Database): Promise<void> {
  await db
    .insertInto('files')
    .values({
      id: SEED.file,
      pool_id: SEED.pool,
      path: '/pool/backups/web-1.tar',
      filename: 'web-1.tar',
      verbose_name: 'web-1',
      description: '',
      size: 10_240,
      status: 'ACTIVE',
      type: 'tar',
      compressed: 0,
      can_be_incremental: 0,
      protected: 0,
      domain_id: SEED.domain,
      domain_name: 'web-1',
      created: NOW,
      record_json: '{}',
      modified: NOW,
    })
    .execute();
}
