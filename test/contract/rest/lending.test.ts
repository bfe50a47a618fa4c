/** Lending disks over REST: the four endpoints of the specification (4.1 to 4.3, 2.5), within one node. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { Attachment, Disk, type Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { makeRestApp, type RestApp } from './app.ts';
import { goOn, LENT, lendHonestly } from './fake-lending.ts';
import { type Enrolled, ended, enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let node: Enrolled;
let agent: FakeAgent;
let pool: Pool;
let owner: Domain;
let borrower: Domain;

beforeAll(async () => {
  rest = await makeRestApp();
  node = await enrolled(rest, 'n1');
  agent = node.agent;
  pool = agent.setPool({ name: 'fast', type: 'local' });
});
beforeEach(async () => {
  lendHonestly(agent);
  owner = agent.setDomain({ disks: [makeDisk('vda'), makeDisk('vdb')] });
  borrower = agent.setDomain({ disks: [makeDisk('vda')] });
  await until(async () => (await rest.call('GET', `/api/domains/${borrower.id}/`)).status === 200);
});
afterEach(() => {
  agent.beforeStart = () => {};
});
afterAll(() => stopAll(rest));

function makeDisk(targetDev: string, more: Partial<Disk> = {}): Disk {
  const id = randomUUID();
  return Disk.fromPartial({
    id,
    name: `disk-${id.slice(0, 8)}`,
    path: `/pool/${id}.qcow2`,
    poolId: pool.id,
    targetDev,
    targetBus: 'virtio',
    driverType: 'qcow2',
    driverCache: 'writeback',
    virtualSize: 8_388_608n,
    allocatedSize: 196_616n,
    usedSize: 4_194_304n,
    ...more,
  });
}

const attach = (body: object, query = '') =>
  rest.call('POST', `/api/domains/${borrower.id}/attach-vdisk/${query}`, { as: 'backup_service', body });
const detach = (body: object, query = '') =>
  rest.call('POST', `/api/domains/${borrower.id}/detach-vdisk/${query}`, { as: 'backup_service', body });
const list = async (query: string) => (await rest.call('GET', `/api/vdisks/?${query}`)).body;
const lent = () => list(`another_domain=${borrower.id}`);
const first = () => owner.disks[0]!;
const keyOf = (answer: { body: { errors: { msg_key: string }[] } }) => answer.body.errors[0]!.msg_key;
const lastCall = (kind: string) => agent.calls.findLast(call => call.kind === kind)!;

describe('disks', () => {
  test('are listed with the fields of the specification', async () => {
    const body = await list(`domain=${owner.id}&ordering=verbose_name`);
    expect(body).toMatchObject({ count: 2, next: null, previous: null });
    const record = body.results.find((one: { id: string }) => one.id === first().id);
    expect(record).toEqual({
      id: first().id,
      status: 'ACTIVE',
      verbose_name: first().name,
      size: 8_388_608,
      used: 4_194_304,
      datapool: { id: pool.id, verbose_name: 'fast', type: 'local' },
      domain: { id: owner.id, verbose_name: owner.name },
      hints: 0,
      shareable: false,
    });
  });

  test('of a node of the version before have their active layer as what they use', async () => {
    const { disks } = agent.setDomain({ disks: [makeDisk('vda', { usedSize: 0n })] });
    await until(async () => (await rest.call('GET', `/api/vdisks/${disks[0]!.id}/`)).status === 200);
    const { body } = await rest.call('GET', `/api/vdisks/${disks[0]!.id}/`);
    expect(body).toMatchObject({ size: 8_388_608, used: 196_616 });
  });

  test('alone have their devices too', async () => {
    const state = agent.addState(owner.id, { name: 'kept', targets: ['vda'] });
    agent.addState(owner.id, { name: 'other', targets: ['vdb'] });
    const path = `/api/vdisks/${first().id}/`;
    await until(async () => (await rest.call('GET', path)).body.snapshots?.length === 1);
    const { body } = await rest.call('GET', path);
    expect(body).toEqual({
      ...(await list(`domain=${owner.id}`)).results.find((one: { id: string }) => one.id === first().id),
      virtual_size: 8_388_608,
      target_bus: 'virtio',
      target_dev: 'vda',
      driver_type: 'qcow2',
      driver_cache: 'writeback',
      readonly: false,
      snapshots: [{ id: state.id, verbose_name: 'kept' }],
      permissions: ['attach'],
    });
    expect((await list(`domain=${owner.id}&all_content=1`)).results).toContainEqual(body);
    expect((await list(`domain=${owner.id}&fields=id,target_dev&ordering=size`)).results).toContainEqual({
      id: first().id,
      target_dev: 'vda',
    });
  });

  test('are filtered, paged and ordered as every list', async () => {
    expect((await list(`datapool=${pool.id}&domain=${owner.id}&node=${agent.id}`)).count).toBe(2);
    for (const filter of ['datapool', 'domain', 'node', 'another_domain'])
      expect(await list(`${filter}=${randomUUID()}`)).toEqual({
        count: 0,
        next: null,
        previous: null,
        results: [],
      });
    const page = await list(`domain=${owner.id}&limit=1&ordering=-verbose_name`);
    expect(page.results).toHaveLength(1);
    expect(page.next).toContain('offset=1');
    expect((await list(`name=${first().name}`)).results).toMatchObject([{ id: first().id }]);
    expect((await rest.call('GET', '/api/vdisks/?ordering=hints')).status).toBe(400);
    const unknown = await rest.call('GET', `/api/vdisks/${randomUUID()}/`);
    expect(unknown.body.errors[0]).toMatchObject({ code: '40409', msg_key: 'vdisk_not_found' });
  });
});

describe('attaching a disk of another VM', () => {
  test('allows layers on the network by its query, since its body has the disk alone', async () => {
    await attach({ vdisk: first().id, allow_network_layers: true });
    expect(lastCall('attach_disk').request.allowNetworkLayers).toBe(false);
    await detach({ vdisk: first().id });
    await attach({ vdisk: first().id }, '?allow_network_layers=1');
    expect(lastCall('attach_disk').request.allowNetworkLayers).toBe(true);
    await detach({ vdisk: first().id });
  });

  test('answers what was attached and the state that it shows', async () => {
    const answer = await attach({ vdisk: first().id });
    expect(answer.status).toBe(200);
    const attachment = agent.domains.get(borrower.id)!.attachments[0]!;
    const state = agent.domains.get(owner.id)!.savedStates[0]!;
    expect(answer.body).toEqual({
      vdisk: first().id,
      attached: {
        id: attachment.attachedId,
        target_dev: 'vdb',
        target_bus: 'virtio',
        driver_cache: 'none',
        readonly: true,
      },
      snapshot: {
        id: state.id,
        verbose_name: LENT,
        description: '',
        parent: null,
        created: state.created!.toISOString(),
        current: true,
        memory: false,
        backup: null,
        disks: ['vda'],
      },
    });
    expect(lastCall('attach_disk').request).toMatchObject({
      domainId: borrower.id,
      diskId: first().id,
      thinCloneId: '',
      source: undefined,
      allowNetworkLayers: false,
    });
    const record = (await rest.call('GET', `/api/domains/${borrower.id}/`)).body;
    expect(record.vdisks).toHaveLength(1);
    expect(await lent()).toMatchObject({
      count: 1,
      results: [{ id: first().id, domain: { id: owner.id, verbose_name: owner.name } }],
    });
  });

  test('ignores every other parameter, whatever it holds', async () => {
    const answer = await attach({
      vdisk: first().id,
      thin_clone: null,
      target_bus: 'ide',
      readonly: false,
      driver_cache: { deep: [1] },
      name: 17,
      '': null,
    });
    expect(answer.status).toBe(200);
    expect(answer.body.attached).toMatchObject({
      target_bus: 'virtio',
      driver_cache: 'none',
      readonly: true,
    });
    const calls = agent.calls.length;
    expect((await detach({ vdisk: first().id, force: 'yes', shareable: [] })).status).toBe(200);
    expect(agent.calls).toHaveLength(calls + 1);
  });

  test('is a task: 202 at once, the VM that changes first', async () => {
    lendHonestly(agent, new Set(['attach_disk']));
    const { status: code, body } = await attach({ vdisk: first().id }, '?async=1');
    expect([code, body.entity, body._task.status]).toEqual([202, borrower.id, 'IN_PROGRESS']);
    expect(Object.entries(body._task.entities)).toEqual([
      [borrower.id, 'domain'],
      [first().id, 'vdisk'],
      [owner.id, 'domain'],
    ]);
    goOn(agent, lastCall('attach_disk'));
    const task = await ended(rest, body._task.id);
    expect(task).toMatchObject({ name: 'vdisk_attach', user: { username: 'the-backup_service' } });
    const events = (await rest.call('GET', `/api/events/?entity=${first().id}`)).body.results;
    expect(events[0]).toMatchObject({ type: 'info', task: body._task.id });
    const { results } = (await rest.call('GET', `/api/audit/?entity=${borrower.id}`)).body;
    expect(results[0]).toMatchObject({ action: 'POST /api/domains/:id/attach-vdisk/', status: 202 });
  });

  test('is done once for an idempotency key', async () => {
    const body = { vdisk: first().id, idempotency_key: randomUUID() };
    const before = agent.operations.size;
    const answers = [await attach(body), await attach(body)];
    expect(answers.map(answer => answer.status)).toEqual([200, 200]);
    expect(answers[0]!.body).toEqual(answers[1]!.body);
    expect(agent.operations.size).toBe(before + 1);
  });

  test('ignores a key of idempotency that is none, and what else differs under one that is', async () => {
    for (const idempotency_key of ['', 'no-uuid', 17, null, [], { deep: true }]) {
      expect((await attach({ vdisk: first().id, idempotency_key })).status).toBe(200);
      expect((await detach({ vdisk: first().id, idempotency_key })).status).toBe(200);
    }
    const idempotency_key = randomUUID().toUpperCase();
    const before = agent.operations.size;
    expect((await attach({ vdisk: first().id, idempotency_key, colour: 'red' })).status).toBe(200);
    const again = { vdisk: first().id, idempotency_key: idempotency_key.toLowerCase(), colour: 'blue' };
    expect((await attach(again)).status).toBe(200);
    expect(agent.operations.size).toBe(before + 1);
  });

  test('takes ids in capitals and answers them in lower case; an empty one is none', async () => {
    const vdisk = first().id.toUpperCase();
    const url = `/api/domains/${borrower.id.toUpperCase()}/attach-vdisk/`;
    const answer = await rest.call('POST', url, { body: { vdisk, thin_clone: '' } });
    expect([answer.status, answer.body.vdisk]).toEqual([200, first().id]);
    expect(lastCall('attach_disk').request).toMatchObject({
      domainId: borrower.id,
      diskId: first().id,
      thinCloneId: '',
    });
    expect((await list(`another_domain=${borrower.id.toUpperCase()}`)).count).toBe(1);
    expect((await list('another_domain=')).count).toBeGreaterThan(1);
    expect((await detach({ vdisk, thin_clone: '' })).body).toMatchObject({ vdisk: first().id });
  });

  test('names what is wrong with the disk that was given', async () => {
    await attach({ vdisk: first().id });
    const { attachedId } = agent.domains.get(borrower.id)!.attachments[0]!;
    const wrong = await attach({ vdisk: attachedId });
    expect(wrong.status).toBe(400);
    expect(wrong.body.errors[0]).toMatchObject({ code: '40010', field: 'vdisk' });
    expect(wrong.body.detail).toContain(first().id);
    const unknown = await attach({ vdisk: randomUUID() });
    expect([unknown.status, keyOf(unknown)]).toEqual([404, 'vdisk_not_found']);
    expect((await attach({})).body.errors[0]).toMatchObject({ msg_key: 'missing_field', field: 'vdisk' });
    for (const vdisk of [1, null, 'x', '', `${first().id}0`])
      expect((await attach({ vdisk })).status).toBe(400);
    expect((await attach({ vdisk: first().id, thin_clone: 1 })).status).toBe(400);
    const again = await attach({ vdisk: first().id });
    expect([again.status, keyOf(again)]).toEqual([409, 'vdisk_attached_already']);
  });

  test('hands on what the node refuses', async () => {
    agent.beforeStart = () => {
      throw new VirtkeepError('no_free_slot', { domain: borrower.name });
    };
    const refused = await attach({ vdisk: first().id });
    expect([refused.status, keyOf(refused)]).toEqual([409, 'no_free_slot']);
  });

  test('is of a VM and for roles that may', async () => {
    const path = `/api/domains/${randomUUID()}/attach-vdisk/`;
    expect(keyOf(await rest.call('POST', path, { body: { vdisk: first().id } }))).toBe('domain_not_found');
    for (const action of ['attach-vdisk', 'detach-vdisk']) {
      const url = `/api/domains/${borrower.id}/${action}`;
      expect((await rest.call('POST', url, { as: 'auditor', body: { vdisk: first().id } })).status).toBe(403);
    }
    expect((await rest.call('GET', '/api/vdisks/', { as: 'auditor' })).status).toBe(200);
    expect((await rest.call('GET', '/api/vdisks', { as: 'backup_service' })).status).toBe(200);
  });
});

describe('detaching it', () => {
  test('by the original answers the state that other disks keep, then none', async () => {
    const [one, two] = owner.disks.map(disk => disk.id) as [string, string];
    await attach({ vdisk: one });
    await attach({ vdisk: two });
    expect((await lent()).count).toBe(2);
    const answer = await detach({ vdisk: one });
    expect(answer.body).toMatchObject({ vdisk: one, domain: borrower.id, snapshot: { verbose_name: LENT } });
    const last = await detach({ vdisk: two });
    expect(last.body).toEqual({ vdisk: two, domain: borrower.id, snapshot: null });
    expect((await lent()).count).toBe(0);
  });

  test('what is not attached, and a guest that does not let go', async () => {
    const nothing = await detach({ vdisk: first().id });
    expect([nothing.status, keyOf(nothing)]).toEqual([409, 'vdisk_not_attached']);
    await attach({ vdisk: first().id });
    lendHonestly(agent, new Set(['detach_disk']));
    const answer = detach({ vdisk: first().id });
    const operation = () => agent.operations.get(lastCall('detach_disk').request.operationId)!;
    await until(() => operation().state === OperationState.RUNNING);
    const operationId = operation().id;
    agent.fail(operationId, new VirtkeepError('device_did_not_detach', { id: borrower.id }));
    const refused = await answer;
    expect([refused.status, keyOf(refused)]).toEqual([502, 'device_did_not_detach']);
    expect(refused.body.detail).toContain(`Domain ${borrower.id} device did not detach`);
    expect((await lent()).count).toBe(1);
  });
});

describe('a thin clone', () => {
  let template: Domain;
  let clone: Domain;
  beforeEach(async () => {
    template = agent.setDomain({ template: true, disks: [makeDisk('vda')] });
    const own = makeDisk('vda', { backingChain: [template.disks[0]!.path] });
    clone = agent.setDomain({ parentId: template.id, disks: [own] });
    await until(async () => (await rest.call('GET', `/api/domains/${clone.id}/`)).status === 200);
  });

  test('is named to have its own state; its disk is what is listed, and what is given back', async () => {
    const [base, own] = [template.disks[0]!.id, clone.disks[0]!.id];
    const borrowed = Attachment.fromPartial({ diskId: base, ownerId: clone.id, thinClone: true });
    agent.setDomain({ id: borrower.id, attachments: [borrowed] });
    await until(async () => (await lent()).count === 1);
    expect((await lent()).results).toMatchObject([{ id: own, domain: { id: clone.id } }]);
    await detach({ vdisk: own });
    expect(lastCall('detach_disk').request).toMatchObject({ diskId: base, thinCloneId: clone.id });
  });

  test('named as one is checked to be one, and to have the disk', async () => {
    const own = clone.disks[0]!.id;
    expect((await attach({ vdisk: own, thin_clone: clone.id })).status).toBe(200);
    expect(lastCall('attach_disk').request).toMatchObject({ diskId: own, thinCloneId: clone.id });
    const wrong: [string, string, string][] = [
      [own, owner.id, 'is not a thin clone'],
      [own, randomUUID(), 'does not exist'],
      [first().id, clone.id, 'has no disk'],
    ];
    for (const [vdisk, thin_clone, reason] of wrong) {
      const refused = await attach({ vdisk, thin_clone });
      expect([refused.status, keyOf(refused)]).toEqual([400, 'invalid_thin_clone']);
      expect(refused.body.detail).toContain(reason);
    }
  });

  test('not named means its template', async () => {
    agent.beforeStart = () => {
      throw new VirtkeepError('domain_busy', { domain: 'x', operation: 'o', kind: 'k' });
    };
    await attach({ vdisk: clone.disks[0]!.id });
    const tasks = (await rest.call('GET', `/api/tasks/?entity=${borrower.id}`)).body.results;
    expect(Object.keys(tasks[0].entities)).toEqual([borrower.id, clone.disks[0]!.id, template.id]);
  });
});

describe('what is lent', () => {
  test('fixes its VM: the permissions say so', async () => {
    await attach({ vdisk: first().id });
    const permissions = async (id: string) =>
      (await rest.call('GET', `/api/domains/${id}/`)).body.permissions;
    for (const action of ['snapshot', 'backup', 'remove'])
      expect(await permissions(owner.id)).not.toContain(action);
    expect(await permissions(borrower.id)).toEqual(
      expect.arrayContaining(['snapshot', 'backup', 'detach_vdisk']),
    );
  });

  test('is listed while the node is away, and when nobody knows the owner', async () => {
    await attach({ vdisk: first().id });
    const stray = Attachment.fromPartial({ diskId: randomUUID(), ownerId: randomUUID() });
    const present = agent.domains.get(borrower.id)!.attachments;
    agent.setDomain({ id: borrower.id, attachments: [...present, stray] });
    await until(async () => (await lent()).count === 2);
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    const away = await lent();
    expect(away.count).toBe(2);
    expect(away.results).toContainEqual(
      expect.objectContaining({
        id: stray.diskId,
        status: 'FAILED',
        domain: { id: stray.ownerId, verbose_name: '' },
      }),
    );
    const refused = await detach({ vdisk: first().id });
    expect([refused.status, keyOf(refused)]).toEqual([503, 'node_unreachable']);
    await agent.start(node.tls);
    await status(rest, agent.id, 'ACTIVE');
  });
});
