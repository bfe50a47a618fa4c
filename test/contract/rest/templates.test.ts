/** Templates, clones and the change of a template over REST. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { makeRestApp, type RestApp } from './app.ts';
import { ended, enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let agent: FakeAgent;
let template: Domain;
let clone: Domain;

beforeAll(async () => {
  rest = await makeRestApp();
  ({ agent } = await enrolled(rest, 'n1'));
});
beforeEach(async () => {
  const off = { powerState: PowerState.OFF };
  template = agent.setDomain({ ...off, name: 'base', template: true, templateVersion: 1 });
  clone = agent.setDomain({ ...off, name: 'thin', parentId: template.id, parentVersion: 1 });
  await until(async () => (await rest.call('GET', `/api/domains/${clone.id}/`)).status === 200);
});
afterEach(() => {
  agent.beforeStart = () => {};
});
afterAll(() => stopAll(rest));

const lastCall = () => agent.calls.at(-1)!;
const keyOf = (answer: { body: { errors: { msg_key: string }[] } }) => answer.body.errors[0]!.msg_key;
const idsOf = async (query: string) =>
  (await rest.call('GET', `/api/domains/?${query}&limit=1000`)).body.results.map((one: Domain) => one.id);

describe('templates', () => {
  test('and thin clones are found by what they are', async () => {
    expect(await idsOf('template=true')).toContain(template.id);
    expect(await idsOf('template=true')).not.toContain(clone.id);
    expect(await idsOf('thin=true')).toContain(clone.id);
    expect(await idsOf(`parent=${template.id}`)).toEqual([clone.id]);
    const { body } = await rest.call('GET', `/api/domains/${clone.id}/`);
    expect(body).toMatchObject({
      thin: true,
      template: false,
      parent: { id: template.id, verbose_name: 'base' },
      permissions: expect.arrayContaining(['change_template', 'clone']),
    });
    const { permissions } = (await rest.call('GET', `/api/domains/${template.id}/`)).body;
    expect(permissions).toContain('clone');
    for (const action of ['start', 'template', 'remove', 'snapshot'])
      expect(permissions).not.toContain(action);
  });

  test('are not started', async () => {
    const refused = await rest.call('POST', `/api/domains/${template.id}/start/`, { body: {} });
    expect([refused.status, keyOf(refused)]).toEqual([409, 'template_not_startable']);
  });
});

describe('a clone', () => {
  test('is made as a task, whose result is the new VM', async () => {
    const pool = agent.setPool({ name: 'fast' });
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const asked = { verbose_name: 'new', thin: true, datapool: pool.id, description: 'why' };
    const { status, body } = await rest.call('POST', `/api/domains/${template.id}/clone/?async=1`, {
      body: asked,
    });
    expect([status, lastCall().kind]).toEqual([202, 'clone_domain']);
    const { request } = lastCall();
    expect(request).toEqual({
      operationId: body._task.id,
      domainId: template.id,
      newDomainId: body.entity,
      name: 'new',
      thin: true,
      poolId: pool.id,
      description: 'why',
    });
    expect(Object.keys(body._task.entities)).toEqual([body.entity, template.id]);
    agent.setDomain({ ...clone, id: body.entity, name: 'new' });
    agent.succeed(body._task.id, { domain_id: body.entity, name: 'new', disks: [], warnings: [] });
    await ended(rest, body._task.id);
    const { response } = (await rest.call('GET', `/api/tasks/${body._task.id}/response/`)).body;
    expect(response).toMatchObject({ id: body.entity, verbose_name: 'new', thin: true });
  });

  test('needs no name, a pool that can be written to, and an administrator', async () => {
    const path = `/api/domains/${template.id}/clone/`;
    const { body } = await rest.call('POST', `${path}?async=1`, { body: {} });
    expect(lastCall().request).toMatchObject({ name: '', thin: false, poolId: '', description: '' });
    agent.fail(body._task.id, new VirtkeepError('not_template', { domain: 'base' }));
    await ended(rest, body._task.id, 'FAILED');
    const readonly = agent.setPool({ name: 'ro', readonly: true });
    await until(async () => (await rest.call('GET', `/api/data-pools/${readonly.id}/`)).status === 200);
    expect(keyOf(await rest.call('POST', path, { body: { datapool: readonly.id } }))).toBe('pool_read_only');
    expect(keyOf(await rest.call('POST', path, { body: { datapool: randomUUID() } }))).toBe('pool_not_found');
    for (const as of ['operator', 'backup_service', 'auditor'] as const)
      expect((await rest.call('POST', path, { as, body: {} })).status).toBe(403);
  });

  test('is not made when the node refuses', async () => {
    agent.beforeStart = () => {
      throw new VirtkeepError('not_template', { domain: 'base' });
    };
    const refused = await rest.call('POST', `/api/domains/${template.id}/clone/`, { body: { thin: true } });
    expect([refused.status, keyOf(refused)]).toEqual([409, 'not_template']);
  });
});

describe('the change of a template', () => {
  const change = (id: string, query = '') =>
    rest.call('POST', `/api/domains/${id}/change-template/${query}`, { body: {} });

  test('is a task of the template; all that changed is told', async () => {
    const { body } = await change(clone.id, '?async=1');
    expect([lastCall().kind, lastCall().request]).toEqual([
      'change_template',
      { operationId: body._task.id, domainId: clone.id },
    ]);
    expect(Object.keys(body._task.entities)).toEqual([template.id, clone.id]);
    const result = { template_id: template.id, version: 2, clones: [clone.id] };
    agent.succeed(body._task.id, result);
    await ended(rest, body._task.id);
    expect((await rest.call('GET', `/api/tasks/${body._task.id}/response/`)).body.response).toEqual(result);
    const waited = change(clone.id);
    await until(() => lastCall().request.operationId !== body._task.id);
    await until(() => agent.operations.has(lastCall().request.operationId));
    agent.succeed(lastCall().request.operationId, result);
    expect((await waited).body).toEqual(result);
  });

  test('is begun on a thin clone, and refused with all reasons', async () => {
    expect(keyOf(await change(template.id))).toBe('not_thin_clone');
    const reasons = 'thin runs; other has saved states';
    agent.beforeStart = () => {
      throw new VirtkeepError('template_change_refused', { domain: 'base', reasons });
    };
    const refused = await change(clone.id);
    expect([refused.status, keyOf(refused)]).toEqual([409, 'template_change_refused']);
    expect(refused.body.detail).toContain(reasons);
  });
});
