/** Controller and real agent on a real libvirtd: what the scripted agents of the contract tests only pretend. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { QUICK_STARTS } from '../../lab/agent.ts';
import type { Guest } from '../../lab/guest.ts';
import type { Rest } from '../../lab/rest.ts';
import { waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';

let world: World;
let rest: Rest;
let guest: Guest;
let domainId: string;
let bulk: string;

type Json = Record<string, never> & Record<string, unknown>;

beforeAll(async () => {
  // these agents start as they are shipped
  delete process.env[QUICK_STARTS];
  world = await startWorld({
    controller: true,
    nodes: 2,
    controllerSettings: { agents: { lost_after_s: 1 } },
  });
  rest = world.rest;
  guest = await world.defineTiny({ name: 'tiny' });
  domainId = await world.known(guest);
  bulk = world.node.pool(1).uuid;
});
afterAll(() => world?.stop());

/** Waits until the controller has noticed that the first node is away. */
async function lost(): Promise<void> {
  const failed = async () => (await rest.get<Json>(`/api/nodes/${world.agent.nodeId}/`)).status === 'FAILED';
  await waitFor('the loss of the node', failed, 120_000);
}

test('the inventory is what libvirt says', async () => {
  const nodes = await rest.list<Json>('/api/nodes/?ordering=verbose_name');
  expect(nodes.length).toBe(2);
  const [node] = nodes;
  expect(node).toMatchObject({ id: world.agent.nodeId, verbose_name: world.node.name, status: 'ACTIVE' });
  expect(node?.base_datapool).toBe(world.node.pool(0).uuid);
  const pools = await rest.list<Json>('/api/data-pools/');
  expect(pools.map(pool => pool.id)).toEqual(expect.arrayContaining([world.node.pool(0).uuid, bulk]));
  const domain = await rest.get<Json>(`/api/domains/${domainId}/`);
  expect(domain).toMatchObject({
    verbose_name: 'tiny',
    user_power_state: 1,
    vdisks_count: 1,
    locked_by: null,
  });
});

test('a pool of the same uuid on both nodes is one', async () => {
  const shared = world.node.pools.find(pool => pool.name === 'shared')!.uuid;
  const pool = await rest.get<{ nodes_connected: Json[] }>(`/api/data-pools/${shared}/`);
  expect(pool).toMatchObject({ shared: true, status: 'ACTIVE' });
  expect(pool.nodes_connected.map(({ connection_status }) => connection_status)).toEqual([
    'ACTIVE',
    'ACTIVE',
  ]);
});

test('an ISO image is uploaded, shown with the VM that has it, and read', async () => {
  const bytes = Buffer.alloc(2_500_000, 'iso');
  const announced = await rest.ok<Json>('PUT', '/api/iso/?async=1', { datapool: bulk, filename: 'new.iso' });
  const sent = await raw('POST', String(announced.upload_url), bytes);
  expect(JSON.parse(sent.toString())).toMatchObject({
    id: announced.id,
    status: 'ACTIVE',
    size: bytes.length,
  });
  const path = join(world.node.pool(1).path, 'new.iso');
  expect(bytes.equals(await readFile(path))).toBe(true);
  const drive = await world.defineTiny({ name: 'drive', disks: [{ path, device: 'cdrom' }] });
  const driveId = await world.known(drive);
  await drive.start();
  const [image] = await rest.list<Json>(`/api/iso/?domain=${driveId}&async=1`);
  expect(image).toMatchObject({ id: announced.id, domains: [{ id: driveId, verbose_name: 'drive' }] });
  const { download_url } = await rest.ok<Json>('PUT', `/api/iso/${announced.id}/download/`, {});
  expect(bytes.equals(await raw('GET', String(download_url)))).toBe(true);
  await drive.destroy();
  const isOff = async () => (await rest.get<Json>(`/api/domains/${driveId}/`)).user_power_state === 1;
  await waitFor('the end of the VM', isOff, 60_000);
  const renamed = await rest.ok<Json>('PUT', `/api/domains/${driveId}/`, { verbose_name: 'driven' });
  expect(renamed.verbose_name).toBe('driven');
  expect((await world.node.virsh('domname', driveId)).trim()).toBe('driven');
});

async function raw(method: string, path: string, body?: Buffer): Promise<Buffer> {
  const sent = request(new URL(path, rest.url), {
    method,
    rejectUnauthorized: false,
    headers: { authorization: `jwt ${rest.token}`, 'content-type': 'application/octet-stream' },
  });
  sent.end(body);
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  return Buffer.concat(await answer.toArray());
}

test('a backup on the shared pool is restored on the other node, in place of the lost VM', async () => {
  const lost = await world.defineTiny({ name: 'lost' });
  const lostId = await world.known(lost);
  const shared = world.node.pools.find(pool => pool.name === 'shared')!.uuid;
  const { entity: file } = await rest.action('/api/domains/backup/', { domain: lostId, datapool: shared });
  const other = world.agents[1]!;
  const { signature } = await rest.ok<{ signature: Json }>('POST', '/api/domains/show-backup/', { file });
  expect(['own', 'fleet']).toContain(signature.trust);
  const restore = { file, node: other.nodeId, datapool: shared, keep_identity: true };
  const early = await rest.send<Json>('POST', '/api/domains/automated-restore/', restore);
  expect(early.body.errors).toMatchObject([{ msg_key: 'identity_in_use' }]);
  await rest.action(`/api/domains/${lostId}/remove/`, { full: true });
  const restored = await rest.ok<Json>('POST', '/api/domains/automated-restore/', restore);
  expect(restored).toMatchObject({ id: lostId, verbose_name: 'lost', node: { id: other.nodeId } });
  const own = await rest.action('/api/domains/backup/', { domain: domainId, datapool: bulk });
  const unseen = await rest.send<Json>('POST', '/api/domains/automated-restore/', {
    file: own.entity,
    node: other.nodeId,
  });
  expect(unseen.body.errors).toMatchObject([{ msg_key: 'pool_not_active' }]);
});

test('the agent is killed in the middle of a backup: the task has an outcome, nothing half is listed', async () => {
  const { entity: fileId, taskId } = await rest.begin('/api/domains/backup/', {
    domain: domainId,
    datapool: bulk,
    compress: true,
  });
  await world.agent.daemon.kill();
  await lost();
  await world.agent.daemon.start();
  await world.connected();
  const task = await waitFor(
    'the outcome',
    async () => {
      const now = await rest.task(taskId);
      return ['SUCCESS', 'FAILED'].includes(now.status) ? now : undefined;
    },
    180_000,
  );
  const { status } = await rest.send('GET', `/api/library/${fileId}/`);
  expect(status).toBe(task.status === 'SUCCESS' ? 200 : 404);
  if (task.status === 'FAILED') expect(task.error?.msg_key).toBe('interrupted');
});

test('a power action ends with the new state in the record', async () => {
  const record = await rest.ok<Json>('POST', `/api/domains/${domainId}/start/`, {});
  expect(record.user_power_state).toBe(3);
  expect(await guest.state()).toBe('running');
  const again = await rest.send<Json>('POST', `/api/domains/${domainId}/start/`, {});
  expect(again.status).toBe(409);
  const off = await rest.ok<Json>('POST', `/api/domains/${domainId}/shutdown/`, { force: true });
  expect(off.user_power_state).toBe(1);
});

test('backup, show, verify, restore, remove', async () => {
  const { entity: fileId, task } = await rest.action('/api/domains/backup/', {
    domain: domainId,
    datapool: bulk,
    hash_sum: true,
    description: 'first',
  });
  expect(task.detail.bytes_done).toBeGreaterThan(0);
  const file = await rest.get<Json>(`/api/library/${fileId}/`);
  expect(file).toMatchObject({
    status: 'ACTIVE',
    type: 'tar',
    description: 'first',
    domain: { id: domainId },
  });
  expect(existsSync(String(file.path))).toBe(true);

  const shown = await rest.ok<Json>('POST', '/api/domains/show-backup/', { file: fileId });
  expect(shown.configuration).toMatchObject({ domain: domainId, verbose_name: 'tiny' });
  const verified = await rest.ok<Json>('POST', `/api/library/${fileId}/verify/`, {});
  expect(verified.hash_sum).toMatchObject({ ok: true });

  const restored = await rest.ok<Json>('POST', '/api/domains/automated-restore/', {
    file: fileId,
    node: world.agent.nodeId,
    datapool: bulk,
    verbose_name: 'tiny-again',
  });
  expect(restored).toMatchObject({ verbose_name: 'tiny-again', user_power_state: 1, vdisks_count: 1 });
  expect(restored.id).not.toBe(domainId);
  await rest.action(`/api/domains/${String(restored.id)}/remove/`, { full: true });
  expect((await rest.send('GET', `/api/domains/${String(restored.id)}/`)).status).toBe(404);

  const kept = await rest.send<Json>('POST', '/api/domains/automated-restore/', {
    file: fileId,
    node: world.agent.nodeId,
    keep_identity: true,
  });
  expect(kept.body.errors).toMatchObject([{ msg_key: 'identity_in_use' }]);

  await rest.action(`/api/library/${fileId}/remove/`);
  expect((await rest.send('GET', `/api/library/${fileId}/`)).status).toBe(404);
  expect(existsSync(String(file.path))).toBe(false);
});

test('an archive stays signed when it is extended, and one that was changed before stays without', async () => {
  const { entity: file } = await rest.action('/api/domains/backup/', {
    domain: domainId,
    datapool: bulk,
    can_be_incremental: true,
  });
  const extend = () => rest.action('/api/domains/backup/', { domain: domainId, backup: file });
  const shown = () =>
    rest.ok<{ signature: Json; members: Json[] }>('POST', '/api/domains/show-backup/', { file });
  await extend();
  expect((await shown()).signature).toMatchObject({ trust: 'own' });
  const { path } = await rest.get<{ path: string }>(`/api/library/${file}/`);
  const bytes = await readFile(path);
  bytes.write('"name": "tinx"', bytes.lastIndexOf('"name": "tiny"'));
  await writeFile(path, bytes);
  const { task } = await extend();
  expect(task.detail.message).toContain('stays without a signature');
  const { signature, members } = await shown();
  expect(signature).toMatchObject({ trust: 'foreign', reason: 'it is not signed' });
  expect(members.map(({ name }) => name)).toContain('0003_tiny.xml');
  await rest.action(`/api/library/${file}/remove/`);
});

test('an archive that somebody changed in its pool is restored by an administrator only, and said to be so', async () => {
  const { entity: file } = await rest.action('/api/domains/backup/', { domain: domainId, datapool: bulk });
  const shown = () => rest.ok<Json>('POST', '/api/domains/show-backup/', { file });
  const signer = world.agent.nodeId;
  expect((await shown()).signature).toEqual({ trust: 'own', signer, reason: null, covers_content: false });
  const { path } = await rest.get<{ path: string }>(`/api/library/${file}/`);
  const bytes = await readFile(path);
  const [xml, forged] = [`<vcpu placement='static'>1</vcpu>`, `<vcpu placement='static'>2</vcpu>`];
  const at = bytes.indexOf(xml);
  expect(at).toBeGreaterThan(0);
  bytes.write(forged, at);
  await writeFile(path, bytes);
  const restore = { file, node: signer, datapool: bulk, verbose_name: 'tiny-changed' };
  const changed = await rest.send<Json>('POST', '/api/domains/automated-restore/', restore);
  expect(changed.body.errors).toMatchObject([{ msg_key: 'hash_mismatch' }]);

  const end = bytes.lastIndexOf('"name": "tiny"');
  bytes.write('"name": "tinx"', end);
  bytes.write(xml, at);
  await writeFile(path, bytes);
  expect((await shown()).signature).toMatchObject({
    trust: 'foreign',
    reason: expect.stringContaining('changed'),
  });
  await rest.ok('POST', '/api/users/', { username: 'op', password: 'a long password', role: 'operator' });
  const operator = await world.controller.anonymous().login('op', 'a long password');
  for (const client of [operator, rest]) {
    const refused = await client.send<Json>('POST', '/api/domains/automated-restore/', restore);
    expect(refused).toMatchObject({ status: 403, body: { errors: [{ msg_key: 'archive_foreign' }] } });
  }
  const allowed = { ...restore, allow_foreign: true };
  const denied = await operator.send<Json>('POST', '/api/domains/automated-restore/', allowed);
  expect(denied).toMatchObject({ status: 403, body: { errors: [{ msg_key: 'permission_denied' }] } });
  const { entity, task } = await rest.action('/api/domains/automated-restore/', allowed);
  expect(task.detail.message).toContain('Nobody vouches');
  await rest.action(`/api/domains/${entity}/remove/`, { full: true });
  const verified = await rest.ok<Json>('POST', `/api/library/${file}/verify/`, {});
  expect(verified).toMatchObject({ ok: true, signature: { trust: 'foreign' } });
  // an administrator who trusts it has it signed: then it is restored as one of another node
  const compress = `/api/library/${file}/compress/`;
  const unsigned = await operator.send<Json>('POST', compress, { sign: true });
  expect(unsigned).toMatchObject({ status: 403, body: { errors: [{ msg_key: 'permission_denied' }] } });
  await rest.action(compress, { sign: true });
  expect((await shown()).signature).toMatchObject({ trust: 'fleet', signer });
  const { entity: again } = await operator.action('/api/domains/automated-restore/', restore);
  await rest.action(`/api/domains/${again}/remove/`, { full: true });
  await rest.action(`/api/library/${file}/remove/`);
});

test('the controller is killed in the middle of a backup: the task is final when it is back', async () => {
  const { entity: fileId, taskId } = await rest.begin('/api/domains/backup/', {
    domain: domainId,
    datapool: bulk,
  });
  await world.controller.daemon.kill();
  await world.controller.daemon.start();
  await world.connected();
  const task = await rest.waitTask(taskId);
  expect(task).toMatchObject({ status: 'SUCCESS' });
  expect(await rest.get<Json>(`/api/library/${fileId}/`)).toMatchObject({ status: 'ACTIVE' });
});

test('the node goes and comes: its things stay, marked, and its backup files are found again', async () => {
  await world.agent.daemon.kill();
  await lost();
  expect(await rest.get<Json>(`/api/domains/${domainId}/`)).toMatchObject({
    status: 'FAILED',
    user_power_state: 0,
  });
  const refused = await rest.send<Json>('POST', `/api/domains/${domainId}/start/`, {});
  expect(refused.status).toBe(503);
  await world.agent.daemon.start();
  await world.connected();
  expect(await rest.get<Json>(`/api/domains/${domainId}/`)).toMatchObject({ user_power_state: 1 });
});

test('a foreign file is found by a scan, and one that was taken away is missing', async () => {
  const { entity: fileId } = await rest.action('/api/domains/backup/', { domain: domainId, datapool: bulk });
  const { path } = await rest.get<{ path: string }>(`/api/library/${fileId}/`);
  await rename(path, join(world.dir, 'away.tar'));
  await rest.action(`/api/data-pools/${bulk}/scan/`);
  expect(await rest.get<Json>(`/api/library/${fileId}/`)).toMatchObject({ status: 'MISSING' });
  await rename(join(world.dir, 'away.tar'), path);
  await rest.action(`/api/data-pools/${bulk}/scan/`);
  expect(await rest.get<Json>(`/api/library/${fileId}/`)).toMatchObject({ status: 'ACTIVE' });
});
