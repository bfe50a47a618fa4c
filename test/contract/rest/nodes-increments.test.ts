/** Backups that grow: which archive is extended, what is told of it meanwhile and after, and when it ends. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { BackupFile, Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { makeRestApp, type RestApp } from './app.ts';
import { type Enrolled, ended, enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent, StartedCall } from './scripted-node.ts';

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
  domain = agent.setDomain({});
  await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 200);
  await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
  await status(rest, agent.id, 'ACTIVE');
});
afterEach(() => {
  agent.beforeStart = () => {};
});
afterAll(() => stopAll(rest));

const fileOf = async (id: string) => (await rest.call('GET', `/api/library/${id}/`)).body;
const extendableOf = async (domainId: string, can = '1') =>
  (await rest.call('GET', `/api/library/?domain=${domainId}&can_be_incremental=${can}`)).body.results.map(
    (file: { id: string }) => file.id,
  );

interface Started {
  entity: string;
  taskId: string;
  request: StartedCall['request'];
}

async function start(options: object): Promise<Started> {
  const { body } = await rest.call('POST', '/api/domains/backup/?async=1', {
    body: { domain: domain.id, ...options },
  });
  if (!body._task) throw new Error(JSON.stringify(body));
  const taskId = body._task.id;
  const { request } = agent.calls.find(call => call.request.operationId === taskId)!;
  return { entity: body.entity, taskId, request };
}

async function refusal(options: object): Promise<{ msg_key: string; detail: string }> {
  const { body } = await rest.call('POST', '/api/domains/backup/', {
    body: { domain: domain.id, ...options },
  });
  return body.errors[0];
}

/** The agent makes a state on the VM and says that the file holds it now. */
async function finish(started: Started, id: string, file: Partial<BackupFile> = {}): Promise<BackupFile> {
  const { states: before = [], size = 1000n } = agent.files.get(id) ?? {};
  const state = agent.addState(domain.id, { name: `backup_${before.length + 1}_${id}`, backupId: id });
  const made = agent.setFile({
    id,
    poolId: pool.id,
    domainId: domain.id,
    domainName: domain.name,
    canBeIncremental: true,
    requiredStates: [state.name],
    size: size + 100n,
    states: [
      ...before,
      {
        number: before.length + 1,
        name: state.name,
        created: state.created,
        memory: false,
        consistency: 'quiesced',
        excludedDisks: [],
      },
    ],
    ...file,
  });
  agent.succeed(started.taskId, { file: made, state: made.states.length });
  await ended(rest, started.taskId);
  return made;
}

/** A backup with increment capability. */
async function archive(options: object = {}, file: Partial<BackupFile> = {}): Promise<string> {
  const started = await start({ datapool: pool.id, can_be_incremental: true, ...options });
  await finish(started, started.entity, file);
  return started.entity;
}

describe('a backup with increment capability', () => {
  test('is asked for, and can be extended when it is made', async () => {
    const started = await start({ datapool: pool.id, can_be_incremental: true, hold_states: true });
    expect(started.request).toMatchObject({
      canBeIncremental: true,
      holdStates: true,
      fallbackFull: false,
      extendFileId: '',
      extend: undefined,
    });
    const { states } = await finish(started, started.entity);
    expect(await fileOf(started.entity)).toMatchObject({
      can_be_incremental: true,
      not_incremental_reason: '',
      states: [{ number: 1, name: states[0]!.name }],
    });
    expect(await extendableOf(domain.id)).toEqual([started.entity]);
  });

  test('keeps to a rate of its own when one is asked for', async () => {
    const { request, taskId } = await start({ datapool: pool.id, bandwidth: 50_000_000 });
    expect(request.limits).toEqual([{ key: taskId, bytesPerSecond: 50_000_000n }]);
    agent.fail(taskId, new VirtkeepError('interrupted'));
    await ended(rest, taskId, 'FAILED');
    const free = await start({ datapool: pool.id });
    expect(free.request.limits).toEqual([]);
    agent.fail(free.taskId, new VirtkeepError('interrupted'));
    await ended(rest, free.taskId, 'FAILED');
  });

  test('without it a file says why it cannot be extended', async () => {
    const started = await start({ datapool: pool.id });
    await finish(started, started.entity, { canBeIncremental: false, requiredStates: [] });
    expect(await fileOf(started.entity)).toMatchObject({
      can_be_incremental: false,
      not_incremental_reason: 'it was made without increment capability',
    });
    expect(await extendableOf(domain.id)).toEqual([]);
    expect(await extendableOf(domain.id, '0')).toEqual([started.entity]);
  });

  test('states are held only where there are any', async () => {
    expect(await refusal({ datapool: pool.id, hold_states: true })).toMatchObject({
      msg_key: 'invalid_field',
      field: 'hold_states',
    });
  });
});

describe('extending a chosen backup', () => {
  test('grows it: UPDATING, then ACTIVE with the new size and state', async () => {
    const id = await archive();
    const { size } = await fileOf(id);
    const started = await start({ backup: id, description: 'monday', hash_sum: true });
    expect(started.entity).toBe(id);
    expect(started.request).toMatchObject({
      extendFileId: id,
      extend: { poolId: pool.id, filename: `${id}.tar` },
      fallbackFull: false,
      canBeIncremental: true,
      holdStates: false,
    });
    expect(await fileOf(id)).toMatchObject({ status: 'UPDATING', can_be_incremental: true, size });
    const task = (await rest.call('GET', `/api/tasks/${started.taskId}/`)).body;
    expect(Object.keys(task.entities)).toEqual([id, domain.id]);
    await finish(started, id);
    const after = await fileOf(id);
    expect(after).toMatchObject({
      status: 'ACTIVE',
      size: size + 100,
      can_be_incremental: true,
      description: 'monday',
    });
    expect(after.states.map((state: { number: number }) => state.number)).toEqual([1, 2]);
    expect((await rest.call('GET', `/api/tasks/${started.taskId}/response/`)).body.response.id).toBe(id);
  });

  test('leaves its information there, and has it read anew', async () => {
    const id = await archive();
    const shows = (size: bigint) => {
      const disks = [{ id: 'd', targetDev: 'vda', size }];
      agent.show = ShowBackupResponse.fromPartial({ configuration: { memoryCount: 256n, disks } });
    };
    const stored = async () => (await fileOf(id)).information?.sizes.stored;
    shows(4n);
    await rest.call('POST', '/api/domains/show-backup/', { body: { file: id } });
    shows(9n);
    await finish(await start({ backup: id }), id);
    expect(await stored()).toBe(9);
    agent.show = undefined; // it cannot be read now: what is known stays
    await finish(await start({ backup: id }), id);
    expect(await stored()).toBe(9);
  });

  test.each(['FAILED', 'CANCELED'])('that ends %s leaves it as it was', async outcome => {
    const id = await archive({ description: 'mine' });
    const before = await fileOf(id);
    const started = await start({ backup: id, description: 'other' });
    if (outcome === 'CANCELED') await rest.call('PUT', `/api/tasks/${started.taskId}/cancel/`, { body: {} });
    else agent.fail(started.taskId, new VirtkeepError('disk_full', { path: '/x' }));
    await ended(rest, started.taskId, outcome);
    expect(await fileOf(id)).toEqual(before);
  });

  test('a file in work is refused to others, and their refusal does not free it', async () => {
    const id = await archive();
    const started = await start({ backup: id });
    expect((await refusal({ backup: id })).msg_key).toBe('file_busy');
    for (const action of ['verify', 'compress', 'remove']) {
      const { body } = await rest.call('POST', `/api/library/${id}/${action}/`, { body: {} });
      expect([action, body.errors[0].msg_key]).toEqual([action, 'file_busy']);
    }
    expect((await fileOf(id)).status).toBe('UPDATING');
    await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} }).then(({ body }) => {
      agent.succeed(body._task.id, { files: [agent.files.get(id)] });
      return ended(rest, body._task.id);
    });
    expect((await fileOf(id)).status).toBe('UPDATING');
    await finish(started, id);
    expect((await fileOf(id)).status).toBe('ACTIVE');
  });

  test('in another form, or with hashes, is what is asked for and nothing else; what is not given stays as it is', async () => {
    const id = await archive();
    const asked = async (options: object) => {
      const started = await start({ backup: id, ...options });
      await finish(started, id);
      const { extendCompressed, extendHashed } = started.request;
      return [extendCompressed, extendHashed];
    };
    expect(await asked({})).toEqual([undefined, undefined]);
    expect(await asked({ compress: true, hash_sum: true })).toEqual([true, true]);
    expect(await asked({ compress: false, hash_sum: false })).toEqual([false, false]);
    const fresh = await start({ datapool: pool.id, compress: true });
    expect(fresh.request).toMatchObject({ compress: true, extendCompressed: undefined });
    await finish(fresh, fresh.entity);
  });

  test.each([
    ['', false],
    [' although its task was given up meanwhile', true],
  ])('converted on the way it stays the file that it is, under its new name%s', async (_, givenUp) => {
    const id = await archive({ description: 'monday' });
    const started = await start({ backup: id, compress: true, protected: true });
    if (givenUp) {
      await agent.stop();
      await until(
        async () => (await rest.call('GET', `/api/tasks/${started.taskId}/`)).body.status === 'LOST',
      );
      await rest.call('PUT', `/api/tasks/${started.taskId}/release-locks/`, { body: {} });
    }
    const filename = `${id}.tar.zst`;
    const converted = { filename, path: `/p/backups/${filename}`, compressed: true, hashed: true };
    await (givenUp
      ? finish(started, id, converted).catch(() => agent.start(node.tls))
      : finish(started, id, converted));
    await until(async () => (await fileOf(id)).states.length === 2);
    expect(await fileOf(id)).toMatchObject({
      ...{ filename, compressed: true, status: 'ACTIVE', description: 'monday' },
      ...{ hash_sum: { algorithm: 'SHA-256' }, protected: !givenUp, can_be_incremental: true },
    });
    expect(await extendableOf(domain.id)).toEqual([id]);
    await status(rest, agent.id, 'ACTIVE');
  });

  test('whoever makes backups takes no protection from one that grows', async () => {
    const id = await archive();
    await rest.call('PUT', `/api/library/${id}/`, { body: { protected: true } });
    const started = await start({ backup: id, protected: false });
    await finish(started, id);
    await until(async () => (await fileOf(id)).states.length === 2);
    expect(await fileOf(id)).toMatchObject({ status: 'ACTIVE', protected: true });
  });

  test("a node's refusal is the answer, and the file is free again", async () => {
    const id = await archive();
    agent.beforeStart = () => {
      throw new VirtkeepError('not_extendable', { file: 'x', reason: 'its chain is broken' });
    };
    expect((await refusal({ backup: id })).msg_key).toBe('not_extendable');
    expect((await fileOf(id)).status).toBe('ACTIVE');
  });

  test('which the node finished while it was away is in the library when it returns', async () => {
    const id = await archive();
    const started = await start({ backup: id });
    await agent.stop();
    await until(async () => (await rest.call('GET', `/api/tasks/${started.taskId}/`)).body.status === 'LOST');
    await rest.call('PUT', `/api/tasks/${started.taskId}/release-locks/`, { body: {} });
    expect((await fileOf(id)).status).toBe('ACTIVE');
    const { states } = agent.files.get(id)!;
    const made = agent.setFile({ id, poolId: pool.id, states: [...states, { ...states[0]!, number: 2 }] });
    agent.succeed(started.taskId, { file: made });
    await agent.start(node.tls);
    await until(async () => (await fileOf(id)).states.length === 2);
    expect((await fileOf(id)).status).toBe('ACTIVE');
    await status(rest, agent.id, 'ACTIVE');
  });

  test('given as data pool is understood', async () => {
    const id = await archive();
    const started = await start({ datapool: id });
    expect(started.request).toMatchObject({ extendFileId: id, fallbackFull: false });
    await finish(started, id);
    const plain = await start({ datapool: pool.id });
    await finish(plain, plain.entity, { canBeIncremental: false });
    expect((await refusal({ datapool: plain.entity })).msg_key).toBe('pool_not_found');
  });

  test('is refused with the reason when it cannot be', async () => {
    const id = await archive();
    expect((await refusal({ backup: randomUUID() })).msg_key).toBe('file_not_found');
    expect((await refusal({ backup: id, datapool: pool.id })).msg_key).toBe('conflicting_fields');
    const other = agent.setDomain({});
    await until(async () => (await rest.call('GET', `/api/domains/${other.id}/`)).status === 200);
    expect(await refusal({ backup: id, domain: other.id })).toMatchObject({
      msg_key: 'not_extendable',
      detail: expect.stringContaining('another VM'),
    });
    await rest.call('PUT', `/api/data-pools/${pool.id}/`, { body: { readonly: true } });
    expect((await refusal({ backup: id })).msg_key).toBe('pool_read_only');
    await rest.call('PUT', `/api/data-pools/${pool.id}/`, { body: { readonly: false } });
    agent.setPool({ id: pool.id, mounted: false, readonly: false });
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body.status === 'FAILED');
    expect((await refusal({ backup: id })).detail).toContain('data pool cannot be used');
  });
});

describe('incrementing the latest', () => {
  test('takes the newest that can be extended, of any pool unless one is named', async () => {
    const old = await archive({}, { created: new Date('2026-01-01T00:00:00Z') });
    const newest = await archive();
    const elsewhere = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${elsewhere.id}/`)).status === 200);
    const started = await start({ increment: true, compress: true });
    expect(started.request).toMatchObject({
      extendFileId: newest,
      fallbackFull: true,
      fallbackReason: '',
      poolId: pool.id,
      compress: true,
    });
    await finish(started, newest);
    expect(await extendableOf(domain.id)).toEqual(expect.arrayContaining([old, newest]));
    const there = await start({ increment: true, datapool: elsewhere.id });
    expect(there.request).toMatchObject({ extendFileId: '', poolId: elsewhere.id, canBeIncremental: true });
    await finish(there, there.entity, { poolId: elsewhere.id });
  });

  test('makes a new one with increment capability when there is none', async () => {
    const started = await start({ increment: true, datapool: pool.id });
    expect(started.request).toMatchObject({
      extend: undefined,
      fallbackFull: false,
      canBeIncremental: true,
      fallbackReason: '',
    });
    await finish(started, started.entity);
  });

  test('makes a new one and says why when none can be extended any more', async () => {
    const id = await archive();
    agent.setDomain({ id: domain.id, savedStates: [], statesDeleted: new Date(Date.now() + 1000) });
    await until(async () => !(await fileOf(id)).can_be_incremental);
    const started = await start({ increment: true, datapool: pool.id });
    expect(started.request).toMatchObject({ extendFileId: '', canBeIncremental: true });
    expect(started.request.fallbackReason).toContain(`${id}.tar cannot be extended: a saved state of the VM`);
    const fallbackReason = String(started.request.fallbackReason);
    await finish(started, started.entity, { fallbackReason });
    expect((await fileOf(started.entity)).fallback_reason).toBe(fallbackReason);
  });

  test('makes a new one and says why when it has grown as long as one may be; chosen, it is refused', async () => {
    const grown = 'it has grown to 3000 states, and 3000 are enough for one archive';
    const id = await archive({}, { grown });
    expect(await fileOf(id)).toMatchObject({ can_be_incremental: false, not_incremental_reason: grown });
    expect(await refusal({ backup: id })).toMatchObject({
      msg_key: 'not_extendable',
      detail: expect.stringContaining(grown),
    });
    const started = await start({ increment: true, datapool: pool.id });
    expect(started.request).toMatchObject({ extendFileId: '', canBeIncremental: true });
    expect(started.request.fallbackReason).toBe(`${id}.tar cannot be extended: ${grown}`);
    await finish(started, started.entity);
  });

  test('the node may find that it must be a new one: task, library and answer follow', async () => {
    const id = await archive();
    const before = await fileOf(id);
    const answer = rest.call('POST', '/api/domains/backup/', {
      body: { domain: domain.id, increment: true, description: 'tuesday', protected: true },
    });
    await until(() => agent.calls.at(-1)?.request.extendFileId === id);
    const { request } = agent.calls.at(-1)!;
    const fileId = String(request.fileId);
    await finish({ entity: id, taskId: request.operationId, request }, fileId, {
      fallbackReason: 'the chain was merged by hand',
    });
    expect((await answer).body).toMatchObject({
      id: fileId,
      fallback_reason: 'the chain was merged by hand',
      description: 'tuesday',
      protected: true,
    });
    const task = (await rest.call('GET', `/api/tasks/${request.operationId}/`)).body;
    expect(Object.keys(task.entities)).toEqual([fileId, id, domain.id]);
    expect(await fileOf(id)).toEqual(before);
  });
});

describe('the end of increments', () => {
  test('any deletion of a saved state ends it for all backups of the VM, and events tell', async () => {
    const mine = agent.addState(domain.id, { name: 'by-hand' });
    const first = await archive();
    const second = await archive();
    const { body } = await rest.call(
      'POST',
      `/api/domains/${domain.id}/snapshots/${mine.id}/remove/?async=1`,
      {
        body: {},
      },
    );
    const { savedStates } = agent.domains.get(domain.id)!;
    agent.setDomain({
      id: domain.id,
      savedStates: savedStates.filter(state => state.id !== mine.id),
      statesDeleted: new Date(Date.now() + 1000),
    });
    agent.succeed(body._task.id, {});
    await ended(rest, body._task.id);
    for (const id of [first, second]) {
      expect(await fileOf(id)).toMatchObject({
        can_be_incremental: false,
        not_incremental_reason: expect.stringContaining('was deleted or reverted to'),
        status: 'ACTIVE',
      });
      const events = (await rest.call('GET', `/api/events/?entity=${id}&type=warning`)).body.results;
      expect(events[0]).toMatchObject({
        message: expect.stringContaining('can no longer be extended'),
        detail_message: expect.stringContaining('was deleted'),
      });
    }
    expect(await extendableOf(domain.id)).toEqual([]);
    expect((await refusal({ backup: first })).msg_key).toBe('not_extendable');
  });

  test('also behind our back, also while the VM is gone; it can be extended again when the VM is back', async () => {
    const id = await archive();
    const whole = agent.domains.get(domain.id)!;
    agent.setDomain({ id: domain.id, savedStates: [] });
    await until(async () => (await extendableOf(domain.id)).length === 0);
    expect((await fileOf(id)).not_incremental_reason).toContain('no longer has the saved state');
    agent.removeDomain(domain.id);
    await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 404);
    expect((await fileOf(id)).not_incremental_reason).toContain('on no known node');
    agent.setDomain(whole);
    await until(async () => (await extendableOf(domain.id)).length === 1);
    await until(async () => {
      const { body } = await rest.call('GET', `/api/events/?entity=${id}&type=info`);
      return body.results[0]?.message.includes('can be extended again');
    });
  });

  test('a damaged archive is not extended', async () => {
    const id = await archive();
    const { body } = await rest.call('POST', `/api/library/${id}/verify/?async=1`, { body: {} });
    const problems = [{ member: 'tail', reason: 'torn' }];
    const found = { ok: false, hashed: true, verified_at: '2026-02-02T00:00:00Z', problems };
    agent.succeed(body._task.id, found);
    await ended(rest, body._task.id);
    expect(await fileOf(id)).toMatchObject({
      can_be_incremental: false,
      not_incremental_reason: 'it is damaged',
      hash_sum: { restorable_states: null },
    });
    expect(await extendableOf(domain.id)).toEqual([]);
  });
});

describe('the states that an archive has on its VM', () => {
  test('are named in its record; those of a removed one are told to the next increment', async () => {
    const [gone, other] = [await archive(), await archive()];
    const names = (id: string) =>
      agent.domains
        .get(domain.id)!
        .savedStates.filter(state => state.backupId === id)
        .map(({ name }) => name);
    expect((await fileOf(gone)).states_on_vm).toEqual(names(gone));
    await finish(await start({ backup: other }), other);
    expect((await fileOf(other)).states_on_vm).toEqual(names(other));
    expect(names(other)).toHaveLength(2);
    const { body } = await rest.call('POST', `/api/library/${gone}/remove/?async=1`, { body: {} });
    agent.files.delete(gone);
    agent.succeed(body._task.id);
    await ended(rest, body._task.id);
    const next = await start({ backup: other });
    expect(next.request.removedArchives).toEqual([gone]);
    agent.fail(next.taskId, new VirtkeepError('interrupted'));
    await ended(rest, next.taskId, 'FAILED');
    // merged, or found again as a copy: nothing to tell
    agent.setFile({
      id: randomUUID(),
      archiveId: gone,
      poolId: pool.id,
      domainId: domain.id,
      canBeIncremental: true,
    });
    const scan = await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
    const files = [...agent.files.values()].filter(file => file.poolId === pool.id);
    agent.succeed(scan.body._task.id, { files });
    await ended(rest, scan.body._task.id);
    expect((await start({ backup: other })).request.removedArchives).toEqual([]);
  });
});

describe('trimming', () => {
  const states = [1, 2, 3].map(number => ({
    ...{ number, name: `s${number}`, created: new Date(number), memory: false, consistency: 'off' },
    excludedDisks: [],
  }));
  const trim = (id: string, keep: number) =>
    rest.call('POST', `/api/library/${id}/trim/?async=1`, { body: { keep_states: keep } });

  test('drops the oldest restore points of a file, which stays the same', async () => {
    const id = await archive({ description: 'mine' }, { states });
    const { body } = await trim(id, 2);
    expect(body._task.name).toBe('file_trim');
    await until(async () => agent.calls.some(call => call.kind === 'trim'));
    expect((await fileOf(id)).status).toBe('UPDATING');
    const { request } = agent.calls.findLast(call => call.kind === 'trim')!;
    expect(request).toMatchObject({
      fileId: id,
      keepStates: 2,
      file: { poolId: pool.id, filename: `${id}.tar` },
    });
    const file = agent.setFile({ ...agent.files.get(id)!, size: 7n, states: states.slice(1) });
    agent.succeed(body._task.id, { file, removed_states: [1] });
    await ended(rest, body._task.id);
    const { response } = (await rest.call('GET', `/api/tasks/${body._task.id}/response/`)).body;
    expect(response).toMatchObject({ id, size: 7, removed_states: [1], description: 'mine' });
    expect(await fileOf(id)).toMatchObject({ status: 'ACTIVE', size: 7, can_be_incremental: true });
  });

  test('that fails leaves the file as it was', async () => {
    const id = await archive({}, { states });
    const before = await fileOf(id);
    const { body } = await trim(id, 1);
    agent.fail(body._task.id, new VirtkeepError('disk_full', { path: '/x' }));
    await ended(rest, body._task.id, 'FAILED');
    expect(await fileOf(id)).toEqual(before);
  });

  test('is refused where it cannot be', async () => {
    const id = await archive({}, { states });
    const keyOf = async (file: string, keep: number) => (await trim(file, keep)).body.errors[0].msg_key;
    expect(await keyOf(id, 3)).toBe('nothing_to_trim');
    expect(await keyOf(id, 0)).toBe('invalid_field');
    expect(await keyOf(randomUUID(), 1)).toBe('file_not_found');
    await rest.call('PUT', `/api/library/${id}/`, { body: { protected: true } });
    expect(await keyOf(id, 1)).toBe('file_protected');
    await rest.call('PUT', `/api/library/${id}/`, { body: { protected: false } });
    await rest.call('PUT', `/api/data-pools/${pool.id}/`, { body: { readonly: true } });
    expect(await keyOf(id, 1)).toBe('pool_read_only');
    await rest.call('PUT', `/api/data-pools/${pool.id}/`, { body: { readonly: false } });
  });
});

describe('conversion', () => {
  test('compresses into another pool and back; the record follows the file', async () => {
    const id = await archive({ description: 'mine', protected: true });
    const target = agent.setPool({});
    await until(async () => (await rest.call('GET', `/api/data-pools/${target.id}/`)).status === 200);
    const convert = async (action: string, body: object, file: Partial<BackupFile>) => {
      const begun = () => agent.calls.filter(call => call.kind === 'recompress').length;
      const before = begun();
      const answer = rest.call('POST', `/api/library/${id}/${action}/`, { body });
      await until(async () => (await fileOf(id)).status === 'UPDATING' && begun() > before);
      const { request } = agent.calls.findLast(call => call.kind === 'recompress')!;
      agent.succeed(request.operationId, { file: agent.setFile({ id, poolId: pool.id, ...file }) });
      return { request, record: (await answer).body };
    };
    const there = await convert(
      'compress',
      { datapool: target.id, level: 9 },
      { poolId: target.id, filename: 'a.tar.zst', compressed: true },
    );
    expect(there.request).toMatchObject({
      fileId: id,
      compress: true,
      compressionLevel: 9,
      poolId: target.id,
      file: { poolId: pool.id, filename: `${id}.tar` },
    });
    expect(there.record).toMatchObject({
      id,
      compressed: true,
      filename: 'a.tar.zst',
      status: 'ACTIVE',
      description: 'mine',
      protected: true,
      can_be_incremental: true,
      datapool: { id: target.id },
    });
    const same = await rest.call('POST', `/api/library/${id}/compress/`, { body: {} });
    expect(same.body.errors[0].msg_key).toBe('compression_same');
    const back = await convert('unpack', {}, { poolId: target.id, filename: 'a.tar', compressed: false });
    expect(back.request).toMatchObject({ compress: false, poolId: '' });
    expect(back.record).toMatchObject({ id, compressed: false, filename: 'a.tar' });
  });

  test('that fails leaves the file as it was; a file of another id takes the place of the old one', async () => {
    const id = await archive({ description: 'mine' });
    const before = await fileOf(id);
    const failing = await rest.call('POST', `/api/library/${id}/compress/?async=1`, { body: {} });
    agent.fail(failing.body._task.id, new VirtkeepError('disk_full', { path: '/x' }));
    await ended(rest, failing.body._task.id, 'FAILED');
    expect(await fileOf(id)).toEqual(before);
    const { body } = await rest.call('POST', `/api/library/${id}/compress/?async=1`, { body: {} });
    const { id: _old, path: _path, ...same } = agent.files.get(id)!;
    const made = agent.setFile({ ...same, id: randomUUID(), filename: 'other.tar.zst', compressed: true });
    agent.succeed(body._task.id, { file: made });
    await ended(rest, body._task.id);
    expect((await rest.call('GET', `/api/library/${id}/`)).status).toBe(404);
    expect(await fileOf(made.id)).toMatchObject({ description: 'mine', status: 'ACTIVE' });
  });

  test('is refused where it cannot be', async () => {
    const id = await archive();
    const keyOf = async (file: string, action: string, body: object) =>
      (await rest.call('POST', `/api/library/${file}/${action}/`, { body })).body.errors[0].msg_key;
    expect(await keyOf(id, 'unpack', {})).toBe('compression_same');
    expect(await keyOf(id, 'compress', { datapool: randomUUID() })).toBe('pool_not_found');
    expect(await keyOf(id, 'compress', { level: 10 })).toBe('invalid_field');
    expect(await keyOf(randomUUID(), 'compress', {})).toBe('file_not_found');
    await rest.call('PUT', `/api/data-pools/${pool.id}/`, { body: { readonly: true } });
    expect(await keyOf(id, 'compress', {})).toBe('pool_read_only');
  });
});
