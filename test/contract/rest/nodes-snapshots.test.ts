/** The saved states of a VM over REST. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Domain, PowerState, SavedState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { makeRestApp, type RestApp } from './app.ts';
import { type Enrolled, ended, enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let node: Enrolled;
let agent: FakeAgent;
let domain: Domain;
let path: string;

beforeAll(async () => {
  rest = await makeRestApp();
  node = await enrolled(rest, 'n1');
  agent = node.agent;
});
beforeEach(async () => {
  domain = agent.setDomain({});
  path = `/api/domains/${domain.id}/snapshots/`;
  await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 200);
});
afterEach(() => {
  agent.beforeStart = () => {};
});
afterAll(() => stopAll(rest));

const lastCall = () => agent.calls.at(-1)!;
const namesOf = async (query = '') =>
  (await rest.call('GET', `${path}${query}`)).body.results.map(
    (state: { verbose_name: string }) => state.verbose_name,
  );

/** A state that the controller has heard of. */
async function saved(state: Partial<SavedState> & { name: string }): Promise<SavedState> {
  const made = agent.addState(domain.id, state);
  await until(async () => (await namesOf()).includes(state.name));
  return made;
}

describe('saved states', () => {
  test('are a tree with its current one marked, also while the node is away', async () => {
    const backupId = randomUUID();
    const root = await saved({ name: 'root', created: new Date('2026-01-01T00:00:00Z') });
    const leaf = await saved({
      name: 'leaf',
      memory: true,
      description: 'before',
      backupId,
      created: new Date('2026-01-02T00:00:00Z'),
    });
    const { body } = await rest.call('GET', path, { as: 'auditor' });
    const expected = [
      {
        id: root.id,
        verbose_name: 'root',
        description: '',
        parent: null,
        created: '2026-01-01T00:00:00.000Z',
        current: false,
        memory: false,
        backup: null,
        disks: ['vda'],
      },
      {
        id: leaf.id,
        verbose_name: 'leaf',
        description: 'before',
        parent: { id: root.id, verbose_name: 'root' },
        created: '2026-01-02T00:00:00.000Z',
        current: true,
        memory: true,
        backup: backupId,
        disks: ['vda'],
      },
    ];
    expect(body).toMatchObject({ count: 2, results: expected });
    expect(await namesOf('?ordering=-created')).toEqual(['leaf', 'root']);
    expect(await namesOf('?name=EA')).toEqual(['leaf']);
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    expect((await rest.call('GET', path)).body.count).toBe(2);
    const refused = await rest.call('POST', path, { body: { verbose_name: 'x' } });
    expect(refused.body.errors[0].msg_key).toBe('node_unreachable');
    await agent.start(node.tls);
    await status(rest, agent.id, 'ACTIVE');
  });

  test('one is made as a task, whose result is the record', async () => {
    const answer = rest.call('POST', path, {
      as: 'operator',
      body: {
        verbose_name: 'now',
        memory: true,
        description: 'why',
        require_consistency: true,
        allow_network_layers: true,
      },
    });
    await until(() => agent.calls.some(call => call.request.domainId === domain.id));
    const { kind, request } = lastCall();
    expect([kind, request]).toMatchObject([
      'create_snapshot',
      {
        domainId: domain.id,
        name: 'now',
        memory: true,
        description: 'why',
        requireConsistency: true,
        allowNetworkLayers: true,
      },
    ]);
    const state = agent.addState(domain.id, { name: 'now', memory: true, description: 'why' });
    agent.succeed(request.operationId, { snapshot: SavedState.toJSON(state) });
    expect((await answer).body).toMatchObject({ id: state.id, verbose_name: 'now', current: true });
    const task = (await rest.call('GET', `/api/tasks/${request.operationId}/`)).body;
    expect(Object.entries(task.entities)).toEqual([
      [state.id, 'snapshot'],
      [domain.id, 'domain'],
    ]);
  });

  test('one is deleted, with a limit of speed; then it is gone from the list', async () => {
    const state = await saved({ name: 'old' });
    const answer = rest.call('POST', `${path}${state.id}/remove/`, { body: { bandwidth: 1_000_000 } });
    await until(() => lastCall().request.snapshotId === state.id);
    expect(lastCall()).toMatchObject({ kind: 'remove_snapshot', request: { bandwidth: 1_000_000n } });
    agent.setDomain({ id: domain.id, savedStates: [] });
    agent.succeed(lastCall().request.operationId, {});
    expect((await answer).body).toEqual({});
    expect(await namesOf()).toEqual([]);
  });

  test('the VM is reverted to one; the answer is the VM', async () => {
    const state = await saved({ name: 'good' });
    const { body } = await rest.call('POST', `${path}${state.id}/revert/?async=1`, { body: {} });
    expect(body.entity).toBe(domain.id);
    expect(lastCall()).toMatchObject({ kind: 'revert_snapshot', request: { snapshotId: state.id } });
    agent.setDomain({ id: domain.id, powerState: PowerState.OFF });
    agent.succeed(body._task.id, { power_state: 'off' });
    await ended(rest, body._task.id);
    const response = (await rest.call('GET', `/api/tasks/${body._task.id}/response/`)).body.response;
    expect(response).toMatchObject({ id: domain.id, user_power_state: 1 });
  });

  test('what the node refuses is the answer', async () => {
    agent.beforeStart = () => {
      throw new VirtkeepError('snapshot_name_taken', { domain: domain.name, name: 'x' });
    };
    const refused = await rest.call('POST', path, { body: { verbose_name: 'x' } });
    expect(refused.body.errors[0]).toMatchObject({ msg_key: 'snapshot_name_taken', code: '40934' });
  });

  test('unknown ones and unknown VMs are not found; roles are kept', async () => {
    const nothing = randomUUID();
    for (const action of ['remove', 'revert']) {
      const { body } = await rest.call('POST', `${path}${nothing}/${action}/`, { body: {} });
      expect(body.errors[0].msg_key).toBe('snapshot_not_found');
    }
    const { body } = await rest.call('GET', `/api/domains/${nothing}/snapshots/`);
    expect(body.errors[0].msg_key).toBe('domain_not_found');
    for (const as of ['auditor', 'backup_service'] as const)
      expect((await rest.call('POST', path, { as, body: { verbose_name: 'x' } })).status).toBe(403);
    expect((await rest.call('POST', path, { body: { verbose_name: '' } })).status).toBe(400);
  });
});
