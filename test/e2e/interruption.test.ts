/**
 * Backup and restore over REST, cut by a kill of the agent and by a cancel: afterwards the guest is thawed
 * and on its own disk, no saved state, overlay, domain or partial file is left, and what was there before is untouched.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import type { Guest } from '../lab/guest.ts';
import type { TaskRecord } from '../lab/rest.ts';
import { waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';

let world: World;
let guest: Guest;
/** What must look the same after every interrupted operation. */
let untouched: Picture;
let paths: Record<'backup' | 'restore', [path: string, body: object]>;

interface Picture {
  disks: Record<string, string>;
  states: string[];
  domains: string[];
  /** Files of each pool; backups with their hash. */
  files: string[][];
}

beforeAll(async () => {
  world = await startWorld({ controller: true });
  guest = await world.defineTiny();
  await (await guest.start()).waitForAgent();
  const domain = await world.known(guest);
  const pools = await world.rest.list<{ id: string; verbose_name: string }>('/api/data-pools/');
  const [fast, bulk] = ['fast', 'bulk'].map(name => pools.find(pool => pool.verbose_name === name)!.id);
  const { entity } = await world.rest.action('/api/domains/backup/', { domain, datapool: bulk });
  paths = {
    backup: ['/api/domains/backup/', { domain, datapool: bulk, compress: true }],
    restore: ['/api/domains/automated-restore/', { file: entity, node: world.agent.nodeId, datapool: fast }],
  };
  untouched = await picture();
});
afterAll(() => world.stop());

async function picture(): Promise<Picture> {
  const names = await world.node.virsh('list', '--all', '--name');
  return {
    disks: await guest.disks(),
    states: await guest.snapshots(),
    domains: names.split('\n').filter(name => name !== ''),
    files: [0, 1].map(index => filesOf(world.node.pool(index).path)),
  };
}

function filesOf(directory: string): string[] {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true }).filter(entry =>
    entry.isFile(),
  );
  return entries
    .map(({ parentPath, name }) => join(parentPath, name))
    .map(path => (path.includes('/backups/') ? `${path} ${hashOf(path)}` : path))
    .sort();
}

function hashOf(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex');
}

/** Restarts the agent with a fault and begins the operation. */
async function begin(kind: 'backup' | 'restore', fault: string): Promise<string> {
  await world.agent.daemon.restart({ VIRTKEEP_FAULTS: fault });
  await world.connected();
  return (await world.rest.begin(...paths[kind])).taskId;
}

async function expectUntouched(): Promise<void> {
  expect(await picture()).toEqual(untouched);
  expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
}

/** A backup past its point of no return is good and stays; it is removed for the next test. */
async function expectOneBackupMore(task: TaskRecord): Promise<void> {
  expect(task.status).toBe('SUCCESS');
  const [file] = Object.entries(task.entities).find(([, kind]) => kind !== 'domain')!;
  await world.rest.action(`/api/library/${file}/remove/`);
  await expectUntouched();
}

/** Each step is cut on its own, without a controller, in the tests of faults; here the whole way from REST is cut. */
const KILLS = ['backup.copy.mid', 'backup.merge.before', 'restore.extract.mid'];

test.each(KILLS)('killed at %s', async point => {
  const [kind, step] = point.split('.') as ['backup' | 'restore', string];
  const taskId = await begin(kind, `${point}=kill`);
  await waitFor('the end of the agent', async () => world.agent.daemon.pid === undefined, 120_000);
  await world.agent.daemon.restart();
  // the task is ended while the node returns, and its pools can be worked on a moment later
  const task = await world.rest.waitTask(taskId);
  await world.connected();
  if (kind === 'backup' && step === 'merge') return expectOneBackupMore(task);
  expect(task).toMatchObject({ status: 'FAILED', error: { msg_key: 'interrupted' } });
  await expectUntouched();
});

const CANCELS = ['backup.copy.after', 'restore.extract.after'];

test.each(CANCELS)('cancelled at %s', async point => {
  const gate = join(world.dir, `gate-${newId()}`);
  const taskId = await begin(point.split('.')[0] as 'backup' | 'restore', `${point}=pause:${gate}`);
  await waitFor('the pause', async () => existsSync(`${gate}.reached`), 120_000);
  await world.rest.ok('PUT', `/api/tasks/${taskId}/cancel/`);
  expect(await world.rest.waitTask(taskId)).toMatchObject({
    status: 'CANCELED',
    error: { msg_key: 'canceled' },
  });
  await expectUntouched();
});

test('a restore works after all that', async () => {
  await world.agent.daemon.restart();
  await world.connected();
  const { task } = await world.rest.action(...paths.restore);
  expect(task.status).toBe('SUCCESS');
});
