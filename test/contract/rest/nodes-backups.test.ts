/** Backups, restores and the library over REST, with a scripted agent for what a real one cannot be brought into. */

import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { BackupFile, Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId, uuidV5 } from '@virtkeep/shared/ids';
import { ServerError, Status } from 'nice-grpc-common';
import { makeRestApp, type RestApp } from './app.ts';
import { type Enrolled, ended, enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let node: Enrolled;
let agent: FakeAgent;
let pool: Pool;
let domain: Domain;

beforeAll(async () => {
  rest = await makeRestApp({ agents: { lost_after_s: 0.2 } });
  node = await enrolled(rest, 'n1');
  agent = node.agent;
});
beforeEach(async () => {
  pool = agent.setPool({});
  const disk = { id: randomUUID(), name: 'a', poolId: pool.id, targetDev: 'vda', targetBus: 'virtio' };
  domain = agent.setDomain({ disks: [disk as never] });
  await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 200);
  await status(rest, agent.id, 'ACTIVE');
});
afterEach(() => {
  agent.beforeStart = () => {};
  agent.afterStart = () => {};
});
afterAll(() => stopAll(rest));

/** Changes a pool on the node and waits until the controller has heard of it. */
async function changePool(change: Partial<Pool> & { id: string }, told: object): Promise<void> {
  agent.setPool(change);
  await until(async () => {
    const { body } = await rest.call('GET', `/api/data-pools/${change.id}/`);
    return Object.entries(told).every(([field, value]) => body[field] === value);
  });
}

interface BackupStarted {
  fileId: string;
  taskId: string;
}

async function startBackup(options: object = {}): Promise<BackupStarted> {
  const { body } = await rest.call('POST', '/api/domains/backup/?async=1', {
    body: { domain: domain.id, datapool: pool.id, ...options },
  });
  return { fileId: body.entity, taskId: body._task.id };
}

/** The agent publishes the file of a backup that was started, and says so. */
function finishBackup({ fileId, taskId }: BackupStarted, file: Partial<BackupFile> = {}): BackupFile {
  const made = agent.setFile({
    id: fileId,
    poolId: pool.id,
    domainId: domain.id,
    domainName: domain.name,
    ...file,
  });
  agent.succeed(taskId, { file: made });
  return made;
}

async function backedUp(file: Partial<BackupFile> = {}): Promise<string> {
  const started = await startBackup();
  finishBackup(started, file);
  await ended(rest, started.taskId);
  return started.fileId;
}

async function keyOf(method: string, url: string, body: object): Promise<string> {
  const answer = await rest.call(method, url, { body });
  return answer.body.errors?.[0]?.msg_key ?? `status ${answer.status}`;
}

async function scan(): Promise<void> {
  const { body } = await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
  const files = [...agent.files.values()].filter(file => file.poolId === pool.id);
  agent.succeed(body._task.id, { files });
  await ended(rest, body._task.id);
}

const fileOf = async (id: string) => (await rest.call('GET', `/api/library/${id}/`)).body;
const backupKey = (body: object) => keyOf('POST', '/api/domains/backup/', { domain: domain.id, ...body });

describe('backup', () => {
  test('goes from CREATING to ACTIVE, with progress, and is the record answered', async () => {
    const answer = rest.call('POST', '/api/domains/backup/', {
      body: {
        domain: domain.id,
        datapool: pool.id,
        compress: true,
        hash_sum: true,
        exclude_iso: true,
        description: 'before the update',
        protected: true,
        allow_network_layers: true,
      },
    });
    await until(() => agent.calls.at(-1)?.request.domainId === domain.id);
    const { request } = agent.calls.at(-1)!;
    expect(request).toMatchObject({ poolId: pool.id, compress: true, hashSum: true, excludeIso: true });
    expect(request.allowNetworkLayers).toBe(true);
    const fileId = String(request.fileId);
    expect(await fileOf(fileId)).toMatchObject({ status: 'CREATING', path: '', domain: { id: domain.id } });
    agent.progress(request.operationId, 'copy', 30n, 100n);
    await until(
      async () => (await rest.call('GET', `/api/tasks/${request.operationId}/`)).body.progress === 30,
    );
    const task = (await rest.call('GET', `/api/tasks/${request.operationId}/`)).body;
    expect(task.detail).toMatchObject({ phase: 'copy', bytes_done: 30, bytes_total: 100, rate: 1000 });
    expect(Object.keys(task.entities)).toEqual([fileId, domain.id]);
    finishBackup({ fileId, taskId: request.operationId }, { hashed: true, compressed: true });
    expect((await answer).body).toMatchObject({
      id: fileId,
      status: 'ACTIVE',
      type: 'tar',
      compressed: true,
      protected: true,
      description: 'before the update',
      hash_sum: { algorithm: 'SHA-256', ok: null },
      datapool: { id: pool.id },
      domain: { id: domain.id, verbose_name: domain.name },
      states: [{ consistency: 'quiesced' }],
    });
  });

  test('that fails leaves nothing in the library', async () => {
    const started = await startBackup();
    agent.fail(started.taskId, new VirtkeepError('disk_full', { path: '/x' }));
    const task = await ended(rest, started.taskId, 'FAILED');
    expect(task.error.msg_key).toBe('disk_full');
    expect((await rest.call('GET', `/api/library/${started.fileId}/`)).status).toBe(404);
  });

  test('is cancelled by cancelling its task', async () => {
    const started = await startBackup();
    await rest.call('PUT', `/api/tasks/${started.taskId}/cancel/`, { body: {} });
    await ended(rest, started.taskId, 'CANCELED');
    expect((await rest.call('GET', `/api/library/${started.fileId}/`)).status).toBe(404);
  });

  test('without a pool goes to the base pool of the node', async () => {
    const key = await backupKey({});
    expect(key).toBe('invalid_field');
    await rest.call('PUT', `/api/nodes/${agent.id}/`, { body: { base_datapool: pool.id } });
    const started = await startBackup({ datapool: undefined });
    expect(agent.calls.at(-1)?.request).toMatchObject({ poolId: pool.id, allowNetworkLayers: false });
    agent.fail(started.taskId, new VirtkeepError('interrupted'));
  });

  test('refuses what it cannot do, by its reason', async () => {
    const id = randomUUID();
    expect(await keyOf('POST', '/api/domains/backup/', { domain: id })).toBe('domain_not_found');
    expect(await keyOf('POST', '/api/domains/backup/', {})).toBe('missing_field');
    expect(await backupKey({ colour: 1 })).toBe('unknown_field');
    expect(await backupKey({ compress: 'yes' })).toBe('invalid_field');
    expect(await backupKey({ datapool: id })).toBe('pool_not_found');
    expect(await backupKey({ datapool: id, backup: id })).toBe('conflicting_fields');
    expect(await backupKey({ datapool: pool.id, exclude_vdisks: [id] })).toBe('vdisk_not_found');
    await changePool({ id: pool.id, readonly: true }, { readonly: true });
    expect(await backupKey({ datapool: pool.id })).toBe('pool_read_only');
    await changePool({ id: pool.id, readonly: false, outside: true }, { outside: true });
    expect(await backupKey({ datapool: pool.id })).toBe('pool_outside');
    await changePool({ id: pool.id, outside: false, mounted: false }, { status: 'FAILED' });
    expect(await backupKey({ datapool: pool.id })).toBe('pool_not_active');
  });

  test('with an idempotency key is started once', async () => {
    const body = { domain: domain.id, datapool: pool.id, idempotency_key: randomUUID() };
    const first = await rest.call('POST', '/api/domains/backup/?async=1', { body });
    const second = await rest.call('POST', '/api/domains/backup/?async=1', { body });
    expect(second.body._task.id).toBe(first.body._task.id);
    expect(second.body.entity).toBe(first.body.entity);
    expect(agent.calls.filter(call => call.request.operationId === first.body._task.id).length).toBe(1);
    finishBackup({ fileId: first.body.entity, taskId: first.body._task.id });
    await ended(rest, first.body._task.id);
  });
});

describe('a node that fails in the middle', () => {
  test('a start call whose answer is lost is repeated, and begins one operation', async () => {
    let lost = 0;
    agent.afterStart = () => {
      lost += 1;
      if (lost <= 2) throw new VirtkeepError('node_unreachable', { node: 'n1', reason: 'test' });
    };
    const started = await startBackup();
    expect(agent.calls.filter(call => call.request.operationId === started.taskId).length).toBe(3);
    finishBackup(started);
    await ended(rest, started.taskId);
  });

  test('when all answers are lost, the node is asked what it knows', async () => {
    agent.beforeStart = () => {
      throw new VirtkeepError('node_unreachable', { node: 'n1', reason: 'test' });
    };
    const { taskId, fileId } = await startBackup();
    const task = await ended(rest, taskId, 'FAILED');
    expect(task.error.msg_key).toBe('operation_unknown');
    expect((await rest.call('GET', `/api/library/${fileId}/`)).status).toBe(404);
  });

  test('one of before, which does not know the call, is asked once, and says so', async () => {
    agent.beforeStart = () => {
      throw new ServerError(Status.UNIMPLEMENTED, 'The server does not implement the method');
    };
    const begun = agent.calls.length;
    const body = { domain: domain.id, datapool: pool.id };
    const answer = await rest.call('POST', '/api/domains/backup/?async=1', { body });
    expect([answer.status, answer.body.errors[0].msg_key]).toEqual([409, 'node_outdated']);
    expect(agent.calls.length - begun).toBe(1);
  });

  test('its tasks are LOST, and final when it returns', async () => {
    const started = await startBackup();
    await agent.stop();
    await until(async () => (await rest.call('GET', `/api/tasks/${started.taskId}/`)).body.status === 'LOST');
    expect((await fileOf(started.fileId)).status).toBe('CREATING');
    finishBackup(started);
    await agent.start(node.tls);
    await ended(rest, started.taskId);
    expect((await fileOf(started.fileId)).status).toBe('ACTIVE');
  });

  test('a task that was given up has failed, but what it made after all is in the library', async () => {
    const made = await givenUp();
    finishBackup(made);
    await agent.start(node.tls);
    await until(async () => (await fileOf(made.fileId)).status === 'ACTIVE');
    expect((await rest.call('GET', `/api/tasks/${made.taskId}/`)).body.status).toBe('FAILED');
    await status(rest, agent.id, 'ACTIVE');
    const nothing = await givenUp();
    agent.loseJournal();
    await agent.start(node.tls);
    await until(async () => (await rest.call('GET', `/api/library/${nothing.fileId}/`)).status === 404);
  });

  async function givenUp(): Promise<BackupStarted> {
    const started = await startBackup();
    await agent.stop();
    await until(async () => (await rest.call('GET', `/api/tasks/${started.taskId}/`)).body.status === 'LOST');
    await rest.call('PUT', `/api/tasks/${started.taskId}/release-locks/`, { body: {} });
    return started;
  }

  test('still running when it returns: the task goes on', async () => {
    const started = await startBackup();
    await agent.stop();
    await until(async () => (await rest.call('GET', `/api/tasks/${started.taskId}/`)).body.status === 'LOST');
    await agent.start(node.tls);
    await until(
      async () => (await rest.call('GET', `/api/tasks/${started.taskId}/`)).body.status === 'IN_PROGRESS',
    );
    finishBackup(started);
    await ended(rest, started.taskId);
  });

  test('without its journal: what it does not know has failed, and later operations are heard', async () => {
    const started = await startBackup();
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    agent.loseJournal();
    await agent.start(node.tls);
    const task = await ended(rest, started.taskId, 'FAILED');
    expect(task.error.msg_key).toBe('operation_unknown');
    await status(rest, agent.id, 'ACTIVE');
    await backedUp();
  });
});

describe('library', () => {
  test('lists by VM, pool, status and type, newest first', async () => {
    const first = await backedUp({ created: new Date('2026-01-01T00:00:00Z') });
    const second = await backedUp({ created: new Date('2026-01-02T00:00:00Z') });
    const list = await rest.call(
      'GET',
      `/api/library/?domain=${domain.id}&datapool=${pool.id}&status=ACTIVE&type=tar`,
    );
    expect(list.body.results.map((file: { id: string }) => file.id)).toEqual([second, first]);
    const none = await rest.call('GET', `/api/library/?domain=${domain.id}&can_be_incremental=true`);
    expect(none.body.count).toBe(0);
    expect((await rest.call('GET', '/api/library/?status=GOOD')).status).toBe(400);
  });

  test('a protected file is not removed, another one is', async () => {
    const id = await backedUp();
    await rest.call('PUT', `/api/library/${id}/`, { body: { protected: true, description: 'keep' } });
    expect(await keyOf('POST', `/api/library/${id}/remove/`, {})).toBe('file_protected');
    await rest.call('PUT', `/api/library/${id}/`, { body: { protected: false } });
    const started = await rest.call('POST', `/api/library/${id}/remove/?async=1`, { body: {} });
    expect((await fileOf(id)).status).toBe('DELETING');
    expect(await keyOf('POST', `/api/library/${id}/verify/`, {})).toBe('file_busy');
    agent.files.delete(id);
    agent.succeed(started.body._task.id);
    await ended(rest, started.body._task.id);
    expect((await rest.call('GET', `/api/library/${id}/`)).status).toBe(404);
  });

  test('a failed removal leaves the file as it was', async () => {
    const id = await backedUp();
    const started = await rest.call('POST', `/api/library/${id}/remove/?async=1`, { body: {} });
    agent.fail(
      started.body._task.id,
      new VirtkeepError('io_failed', { operation: 'x', path: 'y', reason: 'z' }),
    );
    await ended(rest, started.body._task.id, 'FAILED');
    expect((await fileOf(id)).status).toBe('ACTIVE');
  });

  test('verification marks a damaged file, and a scan does not take that back', async () => {
    const id = await backedUp({ hashed: true });
    const verify = async (result: object, asBefore = false) => {
      const { body } = await rest.call('POST', `/api/library/${id}/verify/?async=1`, { body: {} });
      const verified = { verified_at: '2026-02-02T00:00:00Z', hashed: true, ...result };
      agent.succeed(body._task.id, verified, { asBefore });
      await ended(rest, body._task.id);
      return (await rest.call('GET', `/api/tasks/${body._task.id}/response/`)).body.response;
    };
    const problems = [{ member: 'a.qcow2', reason: 'hash' }];
    const response = await verify({ ok: false, problems, restorable_states: [2] });
    expect(response).toMatchObject({
      id,
      ok: false,
      hashed: true,
      problems,
      restorable_states: [2],
      verified_at: '2026-02-02T00:00:00Z',
      signature: { trust: 'foreign', signer: null, reason: expect.any(String), covers_content: false },
    });
    expect(await fileOf(id)).toMatchObject({
      status: 'DAMAGED',
      not_incremental_reason: 'it was made without increment capability',
      hash_sum: { ok: false, problems, restorable_states: [2] },
    });
    await scan();
    expect((await fileOf(id)).status).toBe('DAMAGED');
    const signature = { trust: 'own', signer: id, reason: '', covers_content: true };
    const again = await verify({ ok: true, problems: [], signature }, true);
    expect(again).toMatchObject({ restorable_states: null, signature: { ...signature, reason: null } });
    expect(await fileOf(id)).toMatchObject({
      status: 'ACTIVE',
      hash_sum: { ok: true, verified_at: '2026-02-02T00:00:00Z' },
    });
  });

  test.each([
    ['read and compared with nothing: it is not proved', { hashed: false, unproven_members: 2 }, null, 2],
    ['by an agent that does not tell, without hashes', { hashed: false }, null, 1],
    ['by an agent that does not tell, with hashes', { hashed: true }, true, 0],
  ])('a verification %s', async (_what, told, ok, unproven) => {
    const id = await backedUp({ hashed: told.hashed });
    const { body } = await rest.call('POST', `/api/library/${id}/verify/?async=1`, { body: {} });
    agent.succeed(body._task.id, { verified_at: '2026-02-02T00:00:00Z', ok: true, problems: [], ...told });
    await ended(rest, body._task.id);
    const { body: answer } = await rest.call('GET', `/api/tasks/${body._task.id}/response/`);
    expect(answer.response).toMatchObject({ ok: true, unproven_members: unproven, hash_sum: { ok } });
    expect(await fileOf(id)).toMatchObject({
      ...{ status: 'ACTIVE', hash_sum: { ok, verified_at: '2026-02-02T00:00:00Z' } },
    });
  });

  test('follows what scans find: missing, found again, foreign, broken', async () => {
    const id = await backedUp();
    const copy = agent.files.get(id)!;
    agent.files.delete(id);
    await scan();
    expect((await fileOf(id)).status).toBe('MISSING');
    expect(await keyOf('POST', `/api/library/${id}/verify/`, {})).toBe('file_not_found');
    agent.setFile(copy);
    const foreign = agent.setFile({ poolId: pool.id, filename: 'other.ova', type: 'OVA' });
    const broken = agent.setFile({ poolId: pool.id, damage: 'it is cut short' });
    await scan();
    expect((await fileOf(id)).status).toBe('ACTIVE');
    expect(await fileOf(foreign.id)).toMatchObject({ status: 'ACTIVE', type: 'OVA', domain: null });
    expect((await fileOf(broken.id)).status).toBe('DAMAGED');
    expect(await keyOf('POST', `/api/library/${foreign.id}/verify/`, {})).toBe('file_not_backup');
  });

  test('a missing file is forgotten when it is removed', async () => {
    const id = await backedUp();
    agent.files.delete(id);
    await scan();
    expect((await rest.call('POST', `/api/library/${id}/remove/`, { body: {} })).status).toBe(200);
    expect((await rest.call('GET', `/api/library/${id}/`)).status).toBe(404);
  });
});

describe('show and refresh', () => {
  test('tell the configuration and remember it', async () => {
    const id = await backedUp();
    agent.show = ShowBackupResponse.fromPartial({
      file: {
        manifestJson: '{"members":[{"name":"d.qcow2","kind":"disk","sizeBytes":4,"sha256":null}]}',
      },
      xml: '<domain/>',
      configuration: {
        domainId: domain.id,
        name: domain.name,
        memoryCount: 256n,
        cpuCount: 1,
        disks: [{ id: 'd', targetDev: 'vda', targetBus: 'virtio', path: '/d', virtualSize: 10n, size: 4n }],
        macs: ['52:54:00:00:00:01'],
      },
      warnings: [{ key: 'template_missing', text: 'The template is absent.' }],
    });
    expect((await fileOf(id)).information).toBeNull();
    const shown = await rest.call('POST', '/api/domains/show-backup/?async=1', {
      body: { file: id },
      as: 'auditor',
    });
    expect(shown.status).toBe(200);
    expect(shown.body).toMatchObject({
      file: { id },
      configuration: { verbose_name: domain.name, disks: [{ target_dev: 'vda', virtual_size: 10 }] },
      members: [{ name: 'd.qcow2', kind: 'disk', size: 4 }],
      warnings: [{ key: 'template_missing' }],
    });
    expect((await fileOf(id)).information).toMatchObject({ sizes: { stored: 4, virtual: 10 } });
    const refreshed = await rest.call('POST', `/api/library/${id}/refresh/`, { body: {} });
    expect(refreshed.body).toMatchObject({ id, information: { memory_count: 256 } });
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    const remembered = await rest.call('POST', '/api/domains/show-backup/', { body: { file: id } });
    expect(remembered.body).toMatchObject({
      configuration: { verbose_name: domain.name, macs: ['52:54:00:00:00:01'] },
      warnings: [{ key: 'template_missing' }, { key: 'not_current' }],
    });
    expect(await keyOf('POST', '/api/domains/show-backup/', { file: id, state: '1' })).toBe(
      'node_unreachable',
    );
    await agent.start(node.tls);
    await status(rest, agent.id, 'ACTIVE');
    agent.show = undefined;
    expect(await keyOf('POST', `/api/library/${id}/refresh/`, {})).toBe('archive_damaged');
    expect(await keyOf('POST', '/api/domains/show-backup/', { file: randomUUID() })).toBe('file_not_found');
  });
});

test('a template that one node lacks is looked for on all that have the pool, before its absence is told', async () => {
  const two = (await enrolled(rest, 'with-template')).agent;
  two.setPool({ id: pool.id });
  const nodes = async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body.nodes_connected;
  await until(async () => (await nodes()).length === 2);
  const id = await backedUp();
  const text = 'The template tpl is not on this node; restore it first.';
  const shows = (...keys: string[]) =>
    ShowBackupResponse.fromPartial({
      configuration: { domainId: domain.id, name: domain.name },
      warnings: keys.map(key => ({ key, text })),
    });
  const warnings = async () =>
    (await rest.call('POST', '/api/domains/show-backup/', { body: { file: id } })).body.warnings;
  agent.show = shows('template_missing', 'lun_not_copied');
  two.show = shows('lun_not_copied');
  const found = (await warnings()) as { key: string; text: string }[];
  expect(found.map(({ key }) => key)).toEqual(['lun_not_copied', 'template_elsewhere']);
  expect(found[1]!.text).toContain('with-template');
  two.show = shows('template_missing');
  expect(await warnings()).toContainEqual({
    key: 'template_missing',
    text: 'The template tpl is on no node that has the data pool; restore it first.',
  });
  await two.stop();
  await status(rest, two.id, 'FAILED');
  expect(await warnings()).toContainEqual({
    key: 'template_missing',
    text: expect.stringContaining('Not asked, since they are not reachable: with-template.'),
  });
  agent.show = undefined;
});

describe('a conversion that keeps the file', () => {
  async function copied(file: string, body: object, action = 'compress') {
    const answer = rest.call('POST', `/api/library/${file}/${action}/`, { body });
    const begun = () =>
      agent.calls.find(call => call.kind === 'recompress_copy' && call.request.fileId === file);
    await until(() => begun() !== undefined);
    const { request } = begun()!;
    expect(await fileOf(file)).toMatchObject({ status: 'ACTIVE' });
    expect(await keyOf('POST', `/api/library/${file}/remove/`, {})).toBe('file_busy');
    const poolId = String(request.poolId || pool.id);
    const filename = `${file}.tar.zst`;
    const made = agent.setFile({
      id: uuidV5(poolId, filename), archiveId: file, poolId, filename, compressed: true, domainId: domain.id,
      domainName: domain.name,
    }); // biome-ignore format: one record
    agent.succeed(String(request.operationId), { file: made });
    return { request, record: (await answer).body, id: made.id };
  }

  test('makes a second record, described as the first, which stays', async () => {
    const file = await backedUp();
    await rest.call('PUT', `/api/library/${file}/`, { body: { description: 'mine' } });
    const before = await fileOf(file);
    const { record, id, request } = await copied(file, { keep_source: true });
    expect(record).toMatchObject({ id, compressed: true, status: 'ACTIVE', description: 'mine' });
    expect(await fileOf(file)).toEqual(before);
    const task = (await rest.call('GET', `/api/tasks/${String(request.operationId)}/`)).body;
    expect([task.name, Object.keys(task.entities)]).toEqual(['file_compress_copy', [id, file]]);
  });

  test('is what is done on a read-only or outside pool, which needs another one', async () => {
    const file = await backedUp();
    const target = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${target.id}/`)).status === 200);
    await changePool({ id: pool.id, readonly: true }, { readonly: true });
    const compress = `/api/library/${file}/compress/`;
    expect(await keyOf('POST', compress, {})).toBe('pool_read_only');
    expect(await keyOf('POST', compress, { datapool: pool.id })).toBe('pool_read_only');
    // said to go, where it cannot: no copy is made instead
    const going = { datapool: target.id, keep_source: false };
    expect(await keyOf('POST', compress, going)).toBe('pool_read_only');
    const { record } = await copied(file, { datapool: target.id });
    expect(record.datapool.id).toBe(target.id);
    expect(await fileOf(file)).toMatchObject({ status: 'ACTIVE', datapool: { id: pool.id } });
    await changePool({ id: pool.id, readonly: false, outside: true }, { outside: true });
    expect(await keyOf('POST', compress, {})).toBe('pool_outside');
    await changePool({ id: pool.id, outside: false }, { outside: false });
  });
});

describe('an OVA that is packed as a whole', () => {
  test('is read by a task of the node, and keeps its name when a scan does not unpack it', async () => {
    const packed = { poolId: pool.id, filename: `${newId()}.ova`, type: 'OVA', states: [] };
    const { id: file } = agent.setFile(packed);
    await scan();
    expect(await fileOf(file)).toMatchObject({ verbose_name: packed.filename, information: null });
    const answer = rest.call('POST', `/api/library/${file}/refresh/`, { body: {} });
    const begun = () =>
      agent.calls.find(call => call.kind === 'refresh_backup' && call.request.fileId === file);
    await until(() => begun() !== undefined);
    const shown = ShowBackupResponse.fromPartial({
      file: { ...agent.files.get(file)!, domainName: 'shop' },
      configuration: { name: 'shop', memoryCount: 512n, cpuCount: 2, disks: [{ id: 'd', size: 4n }] },
      systems: [{ id: 'vm1', name: 'shop' }],
    });
    agent.succeed(String(begun()!.request.operationId), { shown: ShowBackupResponse.toJSON(shown) });
    const told = { verbose_name: 'shop', information: { memory_count: 512, sizes: { stored: 4 } } };
    expect((await answer).body).toMatchObject({ id: file, ...told });
    await scan();
    expect(await fileOf(file)).toMatchObject(told);
  });
});

describe('a backup out of an archive of Proxmox VE', () => {
  test('is made by the node, and both are there then; an archive of ours is refused', async () => {
    const filename = `${newId()}.vma.zst`;
    const { id: file } = agent.setFile({ poolId: pool.id, filename, type: 'vma', states: [] });
    await scan();
    const url = `/api/library/${file}/convert-backup/`;
    expect(await keyOf('POST', url, { inject_drivers: true })).toBe('conflicting_fields');
    const body = { compress: true, level: 9, virtio: true, inject_drivers: true };
    const answer = rest.call('POST', url, { body });
    const begun = () =>
      agent.calls.find(call => call.kind === 'convert_backup' && call.request.fileId === file);
    await until(() => begun() !== undefined);
    const { request } = begun()!;
    expect(request).toMatchObject({
      compress: true,
      compressionLevel: 9,
      hashSum: false,
      virtio: true,
      injectDrivers: true,
      poolId: '',
    });
    expect(await keyOf('POST', `/api/library/${file}/remove/`, {})).toBe('file_busy');
    const made = agent.setFile({ poolId: pool.id, filename: `${newId()}.tar.zst`, compressed: true });
    agent.succeed(String(request.operationId), { file: made, drivers_injected: true });
    const told = { id: made.id, type: 'tar', status: 'ACTIVE', signed_by: null, drivers_injected: true };
    expect((await answer).body).toMatchObject(told);
    expect(await fileOf(file)).toMatchObject({ status: 'ACTIVE', type: 'vma' });
    const task = (await rest.call('GET', `/api/tasks/${String(request.operationId)}/`)).body;
    expect([task.name, Object.keys(task.entities)]).toEqual(['file_convert', [made.id, file]]);
    const archive = await backedUp();
    expect(await keyOf('POST', `/api/library/${archive}/convert-backup/`, {})).toBe('file_not_convertible');
  });
});

test('a backup out of a foreign file is made by the node that is chosen, if that can use the file', async () => {
  const two = (await enrolled(rest, 'converts')).agent;
  const filename = `${newId()}.ova`;
  const { id: file } = agent.setFile({ poolId: pool.id, filename, type: 'OVA', states: [] });
  await scan();
  const url = '/api/domains/convert-backup/';
  expect(await keyOf('POST', url, { file, node: newId() })).toBe('node_not_found');
  expect(await keyOf('POST', url, { file, node: two.id })).toBe('pool_not_active');
  expect(await keyOf('POST', url, { file: newId() })).toBe('file_not_found');
  two.setPool({ id: pool.id });
  const nodes = async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body.nodes_connected;
  await until(async () => (await nodes()).length === 2);
  for (const [path, body] of [
    [url, { file, node: two.id, datapool: pool.id, compress: true }],
    [`/api/library/${file}/convert-backup/`, { node: two.id, compress: true }],
  ] as const) {
    const answer = rest.call('POST', path, { body });
    const begun = () => two.calls.find(({ kind }) => kind === 'convert_backup');
    await until(() => begun() !== undefined);
    const { request } = begun()!;
    expect(request).toMatchObject({ fileId: file, compress: true });
    two.calls.length = 0;
    const made = two.setFile({ poolId: pool.id, filename: `${newId()}.tar.zst`, compressed: true });
    two.succeed(String(request.operationId), { file: made });
    expect((await answer).body).toMatchObject({ id: made.id, status: 'ACTIVE' });
  }
  await two.stop();
});

describe('a signed appliance', () => {
  test('tells who signed it, when it is shown and when it becomes a backup or several', async () => {
    const filename = `${newId()}.ova`;
    const { id: file } = agent.setFile({ poolId: pool.id, filename, type: 'OVA', states: [] });
    await scan();
    const show = async () => (await rest.call('POST', '/api/domains/show-backup/', { body: { file } })).body;
    const foreign = { trust: 'foreign', reason: 'only archives are signed' };
    agent.show = ShowBackupResponse.fromPartial({ signature: foreign, signedBy: 'CN=signer, O=Shop' });
    expect(await show()).toMatchObject({ signed_by: 'CN=signer, O=Shop', signature: foreign });
    agent.show = ShowBackupResponse.fromPartial({ signature: foreign });
    expect(await show()).toMatchObject({ signed_by: null, signature: foreign });
    agent.show = undefined;
    for (const kind of ['convert_backup', 'convert_all']) {
      const all = kind === 'convert_all';
      const answer = rest.call('POST', `/api/library/${file}/convert-backup/`, { body: { all } });
      const begun = () => agent.calls.find(call => call.kind === kind && call.request.fileId === file);
      await until(() => begun() !== undefined);
      const made = agent.setFile({ poolId: pool.id, filename: `${newId()}.tar` });
      const result = all ? { files: [made] } : { file: made };
      agent.succeed(String(begun()!.request.operationId), { ...result, signed_by: 'CN=signer' });
      const told = { id: made.id, signed_by: 'CN=signer', drivers_injected: false };
      expect((await answer).body).toMatchObject(told);
    }
  });
});

describe('a backup for another hypervisor', () => {
  test('is written by the node, and is in the library then; what is no archive is refused', async () => {
    const archive = await backedUp();
    const url = `/api/library/${archive}/export/`;
    const options = { format: 'ovf', state: '1', filename: 'web', allow_foreign: true };
    const answer = rest.call('POST', url, { body: options });
    const begun = () =>
      agent.calls.find(call => call.kind === 'export_backup' && call.request.fileId === archive);
    await until(() => begun() !== undefined);
    const { request } = begun()!;
    expect(request).toMatchObject({
      ...{ format: 'ovf', state: '1', name: 'web', poolId: '', compress: false, allowForeign: true },
    });
    expect(await keyOf('POST', `/api/library/${archive}/remove/`, {})).toBe('file_busy');
    const made = agent.setFile({ poolId: pool.id, filename: 'web/web.ovf', type: 'OVF', states: [] });
    const files = ['/p/backups/web/web.ovf', '/p/backups/web/web.mf'];
    agent.succeed(String(request.operationId), { file: made, path: '/p/backups/web', files });
    expect((await answer).body).toMatchObject({
      ...{ id: made.id, type: 'OVF', status: 'ACTIVE', path: '/p/backups/web', files },
    });
    const task = (await rest.call('GET', `/api/tasks/${String(request.operationId)}/`)).body;
    expect([task.name, Object.keys(task.entities)]).toEqual(['file_export', [made.id, archive]]);
    expect(await keyOf('POST', `/api/library/${made.id}/export/`, { format: 'ova' })).toBe('file_not_backup');
    expect(await keyOf('POST', url, { format: 'vhd' })).toBe('invalid_field');
  });
});

describe('restore without disks', () => {
  const url = '/api/domains/config-restore/?async=1';

  test('of a descriptor: what was chosen goes to the node; an archive is refused', async () => {
    const { id: file } = agent.setFile({
      poolId: pool.id,
      filename: `${newId()}.ovf`,
      type: 'OVF',
      domainName: 'web',
    });
    const { id: xml } = agent.setFile({
      ...{ poolId: pool.id, filename: `${newId()}.xml`, type: 'xml', states: [] },
      ...{ domainId: newId(), domainName: 'db' },
    });
    const { id: appliance } = agent.setFile({
      poolId: pool.id,
      filename: `${newId()}.ova`,
      type: 'OVA',
      domainName: 'shop',
    });
    const { id: vma } = agent.setFile({
      poolId: pool.id,
      filename: `${newId()}.vma.zst`,
      type: 'vma',
      domainName: 'mail',
    });
    await scan();
    const { results } = (await rest.call('GET', `/api/library/?datapool=${pool.id}`)).body;
    const listed = (id: string) => results.find((one: { id: string }) => one.id === id);
    const flags = (can_be_domained: boolean) => ({
      additional_flags: { can_be_domained, can_be_compressed: false, can_be_unpacked: false },
    });
    expect(listed(file)).toMatchObject({ type: 'OVF', verbose_name: 'web', domain: null, ...flags(true) });
    expect(listed(xml)).toMatchObject({ type: 'xml', domain: { verbose_name: 'db' }, ...flags(true) });
    expect(listed(vma)).toMatchObject({ type: 'vma', verbose_name: 'mail', domain: null, ...flags(true) });
    for (const id of [file, xml])
      expect(listed(id)).toMatchObject({
        filename: agent.files.get(id)!.filename,
        datapool: { id: pool.id },
        size: 1_048_576,
        status: 'ACTIVE',
        created: agent.files.get(id)!.created!.toISOString(),
      });
    expect(listed(appliance)).toMatchObject({ type: 'OVA', verbose_name: 'shop', ...flags(true) });
    const networks = { LAN: 'default' };
    const choice = { system: 'vm1', configuration: 'small', virtio: true, networks, keep_macs: true };
    const body = { file, node: agent.id, verbose_name: 'again', ...choice };
    expect((await rest.call('POST', url, { body })).status).toBe(202);
    const { id: operationId } = await agent.started('config_restore');
    const { request } = agent.calls.find(call => call.request.operationId === operationId)!;
    expect(request).toMatchObject({
      ...{ fileId: file, name: 'again', system: 'vm1', configuration: 'small' },
      ...{ virtio: true, keepMacs: true, networks },
    });
    const archive = await backedUp();
    expect(await keyOf('POST', url, { file: archive, node: agent.id })).toBe('file_not_definition');
    expect((await rest.call('POST', url, { as: 'operator', body })).status).toBe(403);
  });
});

describe('restore of a foreign file with its disks', () => {
  const url = '/api/domains/automated-restore/?async=1';
  const put = (ending: string) =>
    agent.setFile({
      ...{ poolId: pool.id, filename: `${newId()}.${ending}`, states: [], domainName: 'shop' },
      type: ending === 'vma' ? 'vma' : ending.toUpperCase(),
    }).id;

  test('what was chosen goes to the node, and each VM is named', async () => {
    const file = put('ova');
    await scan();
    const choice = {
      ...{ configuration: 'small', virtio: true, inject_drivers: true },
      ...{ networks: { LAN: 'default' }, keep_macs: true, exclude_iso: true },
    };
    const body = { file, node: agent.id, datapool: pool.id, start_on: true, all: true, ...choice };
    const answer = await rest.call('POST', url, { body });
    expect(answer.status).toBe(202);
    const { id: operationId, entities } = await agent.started('appliance_restore');
    const { request } = agent.calls.find(call => call.request.operationId === operationId)!;
    expect(request).toMatchObject({
      ...{ fileId: file, poolId: pool.id, name: '', configuration: 'small', startOn: true, all: true },
      ...{ virtio: true, injectDrivers: true, keepMacs: true, networks: { LAN: 'default' } },
      excludeIso: true,
    });
    expect(entities[0]).toMatchObject({ id: request.domainId });
  });

  test('only for those who may, and only with what means something', async () => {
    const [file, vma] = [put('ovf'), put('vma')];
    await scan();
    const body = { file, node: agent.id };
    expect((await rest.call('POST', url, { as: 'operator', body })).status).toBe(403);
    const wrong: object[] = [
      { state: '1' },
      { keep_identity: true },
      { flatten: true },
      { instant: true },
      { luns: ['sdb'] },
      { all: true, system: 'vm1' },
      { all: true, verbose_name: 'x' },
      { inject_drivers: true },
    ];
    for (const one of wrong)
      expect(await keyOf('POST', url, { ...body, file: vma, ...one })).toBe('conflicting_fields');
    const archive = await backedUp();
    for (const one of [
      { system: 'vm1' },
      { all: true },
      { virtio: true },
      { inject_drivers: true },
      { exclude_iso: true },
      { networks: { a: 'b' } },
    ])
      expect(await keyOf('POST', url, { ...body, file: archive, ...one })).toBe('conflicting_fields');
  });
});

describe('restore', () => {
  const restoreKey = (body: object) =>
    keyOf('POST', '/api/domains/automated-restore/', { node: agent.id, ...body });

  test('as a new VM: its id is known at once, and the record is answered', async () => {
    const file = await backedUp();
    const answer = rest.call('POST', '/api/domains/automated-restore/', {
      body: {
        file,
        node: agent.id,
        datapool: pool.id,
        verbose_name: 'again',
        start_on: true,
        state: '2',
        flatten: true,
        instant: true,
        bandwidth: 5_000_000,
        luns: ['sdb'],
      },
    });
    const { id: operationId } = await agent.started('restore');
    const { request } = agent.calls.find(call => call.request.operationId === operationId)!;
    expect(request).toMatchObject({
      fileId: file,
      poolId: pool.id,
      name: 'again',
      startOn: true,
      keepIdentity: false,
      state: '2',
      flatten: true,
      instant: true,
      bandwidth: 5_000_000n,
      luns: ['sdb'],
    });
    expect(request.domainId).not.toBe(domain.id);
    const id = String(request.domainId);
    agent.setDomain({ ...domain, id, name: 'again', powerState: PowerState.RUNNING });
    agent.succeed(request.operationId, {
      domain_id: id,
      name: 'again',
      disks: [],
      warnings: [],
      pool_changed: false,
    });
    expect((await answer).body).toMatchObject({ id, verbose_name: 'again', user_power_state: 3 });
  });

  test('in place of a lost VM only when no node has it', async () => {
    const file = await backedUp();
    expect(await restoreKey({ file, keep_identity: true })).toBe('identity_in_use');
    agent.removeDomain(domain.id);
    await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 404);
    const { body } = await rest.call('POST', '/api/domains/automated-restore/?async=1', {
      body: { file, node: agent.id, keep_identity: true },
    });
    expect(body.entity).toBe(domain.id);
    agent.fail(body._task.id, new VirtkeepError('interrupted'));
    await ended(rest, body._task.id, 'FAILED');
    expect((await fileOf(file)).status).toBe('ACTIVE');
  });

  test('refuses what it cannot do, by its reason', async () => {
    const file = await backedUp();
    const id = randomUUID();
    expect(await restoreKey({ file: id })).toBe('file_not_found');
    expect(await restoreKey({ file, node: id })).toBe('node_not_found');
    expect(await restoreKey({ file, bandwidth: 1000 })).toBe('invalid_field');
    expect(await restoreKey({ file: await backedUp({ compressed: true }), instant: true })).toBe(
      'instant_restore_unsupported',
    );
    expect(await restoreKey({ file, datapool: id })).toBe('pool_not_found');
    expect(await restoreKey({ file, verbose_name: 'x'.repeat(300) })).toBe('invalid_field');
    const other = randomUUID();
    await changePool({ id: other, readonly: true }, { readonly: true });
    expect(await restoreKey({ file, datapool: other })).toBe('pool_read_only');
    await changePool({ id: pool.id, readonly: true }, { readonly: true });
    expect(await restoreKey({ file })).toBe('pool_read_only');
    const refused = await rest.call('POST', '/api/domains/automated-restore/', {
      as: 'backup_service',
      body: { file, node: agent.id },
    });
    expect(refused.status).toBe(403);
  });

  test('of what nobody vouches for only by an administrator who says so', async () => {
    const file = await backedUp();
    const url = '/api/domains/automated-restore/?async=1';
    const body = { file, node: agent.id, allow_foreign: true };
    const refused = await rest.call('POST', url, { as: 'operator', body });
    expect(refused).toMatchObject({
      status: 403,
      body: {
        errors: [{ msg_key: 'permission_denied', detail: expect.stringContaining('restore_foreign') }],
      },
    });
    const allowance = async (given: object) => {
      const answer = await rest.call('POST', url, { body: { ...body, allow_foreign: false, ...given } });
      const call = agent.calls.find(({ request }) => request.operationId === answer.body._task.id)!;
      agent.fail(answer.body._task.id, new VirtkeepError('interrupted'));
      await ended(rest, answer.body._task.id, 'FAILED');
      return call.request.allowForeign;
    };
    expect(await allowance({})).toBe(false);
    expect(await allowance({ allow_foreign: true })).toBe(true);
  });

  test('on a node that does not see the file is refused', async () => {
    const file = await backedUp();
    const second = await enrolled(rest, 'n2');
    expect(await restoreKey({ file, node: second.agent.id })).toBe('pool_not_active');
    await rest.call('POST', `/api/nodes/${second.agent.id}/remove/`, { body: {} });
    await second.agent.stop();
  });
});

describe('removal of a node', () => {
  test('is refused while tasks run; then its files are missing, and found when it is back', async () => {
    const { agent: other } = await enrolled(rest, 'n3');
    const own = other.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${own.id}/`)).status === 200);
    const kept = other.setFile({ poolId: own.id });
    const scan = await rest.call('POST', `/api/data-pools/${own.id}/scan/?async=1`, { body: {} });
    expect(await keyOf('POST', `/api/nodes/${other.id}/remove/`, {})).toBe('node_has_tasks');
    other.succeed(scan.body._task.id, { files: [kept] });
    await ended(rest, scan.body._task.id);
    await rest.call('PUT', `/api/library/${kept.id}/`, { body: { protected: true } });
    expect((await rest.call('POST', `/api/nodes/${other.id}/remove/`, { body: {} })).status).toBe(200);
    expect((await rest.call('GET', `/api/nodes/${other.id}/`)).status).toBe(404);
    expect((await rest.call('GET', `/api/data-pools/${own.id}/`)).status).toBe(404);
    expect(await fileOf(kept.id)).toMatchObject({ status: 'MISSING', protected: true });
    await other.stop();
    const before = other.calls.length;
    await enrolled(rest, 'n3', other);
    const quietScan = () => other.calls.slice(before).find(call => call.request.poolId === own.id);
    await until(() => quietScan() !== undefined);
    other.succeed(quietScan()!.request.operationId, { files: [kept] });
    await until(async () => (await fileOf(kept.id)).status === 'ACTIVE');
    expect((await fileOf(kept.id)).protected).toBe(true);
    await other.stop();
  });
});

describe('a disk image', () => {
  const url = '/api/domains/import-disk/?async=1';
  const image = { format: 'vmdk', virtualSize: 4096n, allocatedSize: 1024n };
  const anImage = async (fields: object = {}) => {
    const { id } = agent.setFile({
      ...{ poolId: pool.id, filename: `${newId()}.vmdk`, type: 'disk', states: [], image },
      ...{ domainId: '', domainName: '' },
      ...fields,
    });
    await scan();
    return id;
  };
  const begun = async () => {
    const { id } = await agent.started('import_disk');
    return agent.calls.find(call => call.request.operationId === id)!.request;
  };

  test('is listed with what it is, as no backup of any VM', async () => {
    const id = await anImage();
    expect(await fileOf(id)).toMatchObject({
      ...{ type: 'disk', domain: null, states: [], status: 'ACTIVE', damage: '', can_be_incremental: false },
      image: { format: 'vmdk', virtual_size: 4096, allocated_size: 1024 },
      additional_flags: { can_be_domained: false, can_be_unpacked: false, can_be_compressed: false },
      permissions: ['update', 'refresh', 'remove', 'import_disk', 'download'],
    });
    // the file itself may become another
    agent.setFile({ ...agent.files.get(id)!, image: undefined, damage: 'it is cut off' });
    await scan();
    expect(await fileOf(id)).toMatchObject({ status: 'DAMAGED', image: null });
    agent.setFile({ ...agent.files.get(id)!, image, damage: '' });
    await scan();
    const damaged = await anImage({ image: undefined, damage: 'it stands on another image' });
    expect(await fileOf(damaged)).toMatchObject({
      ...{ status: 'DAMAGED', image: null, damage: 'it stands on another image' },
    });
    const { results } = (await rest.call('GET', `/api/library/?type=disk&datapool=${pool.id}`)).body;
    expect(results.map((one: { id: string }) => one.id).sort()).toEqual([id, damaged].sort());
    for (const action of ['verify', 'compress', 'convert-backup'])
      expect(await keyOf('POST', `/api/library/${id}/${action}/`, {})).toMatch(/^file_not_/);
  });

  test('becomes the disk of a new VM, as it was asked for', async () => {
    const file = await anImage();
    const vm = { verbose_name: 'shop', memory_count: 512, cpu_count: 2, os_type: 'Linux', firmware: 'uefi' };
    const body = { file, node: agent.id, ...vm, network: 'lan', format: 'vmdk', target_bus: 'scsi' };
    expect((await rest.call('POST', url, { body })).status).toBe(202);
    expect(await begun()).toMatchObject({
      ...{ fileId: file, poolId: '', format: 'vmdk', targetBus: 'scsi' },
      newDomain: {
        ...{ name: 'shop', memoryCount: 512n, cpuCount: 2, osType: 'Linux', firmware: 'uefi' },
        ...{ network: 'lan', virtio: true },
      },
    });
    expect((await rest.call('POST', url, { as: 'operator', body })).status).toBe(403);
  });

  test('is refused with what does not go together, or lacks something', async () => {
    const file = await anImage();
    const base = { file, node: agent.id };
    expect(await keyOf('POST', url, base)).toBe('missing_field');
    expect(await keyOf('POST', url, { ...base, verbose_name: 'x', memory_count: 64 })).toBe('missing_field');
    const further = { ...base, domain: newId() };
    expect(await keyOf('POST', url, { ...further, memory_count: 64 })).toBe('conflicting_fields');
    expect(await keyOf('POST', url, further)).toBe('domain_not_found');
    const vm = { verbose_name: 'x', memory_count: 64, cpu_count: 1 };
    expect(await keyOf('POST', url, { ...base, ...vm, file: await backedUp() })).toBe('file_not_disk_image');
    await changePool({ id: pool.id, readonly: true }, { readonly: true });
    expect(await keyOf('POST', url, { ...base, ...vm })).toBe('pool_read_only');
    await changePool({ id: pool.id, readonly: false }, { readonly: false });
  });
});
