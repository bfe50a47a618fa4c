/** What clients of the API family expect of the records, whose types are strict: the kind of each value. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { makeRestApp, type RestApp } from './rest-app.ts';
import { SEED, seedNode } from './rest-seed.ts';

let rest: RestApp;

beforeAll(async () => {
  rest = await makeRestApp({}, seedNode);
});
afterAll(() => rest.close());

const get = async (path: string, as: 'administrator' | 'operator' | 'auditor' = 'administrator') =>
  (await rest.call('GET', path, { as })).body;

describe('permissions', () => {
  test('are the names of what may be done now, on every kind of record', async () => {
    const { row } = await rest.services.tasks.create({
      name: 'act',
      verboseName: 'Act',
      user: { id: rest.userIds.operator, username: 'the-operator' },
      entities: [],
    });
    const event = await rest.services.events.record({ type: 'info', message: 'it happened' });
    const [token] = (await get('/api/tokens/?name=test')).results;
    const [user] = (await get('/api/users/?name=the-operator')).results;
    const records: Record<string, { permissions: string[] }> = {
      node: await get(`/api/nodes/${SEED.node}/`),
      pool: await get(`/api/data-pools/${SEED.pool}/`),
      domain: await get(`/api/domains/${SEED.domain}/`),
      vdisk: await get(`/api/vdisks/${SEED.vdisk}/`),
      file: await get(`/api/library/${SEED.file}/`),
      task: await get(`/api/tasks/${row.id}/`),
      event: await get(`/api/events/${event.id}/`),
      user: await get(`/api/users/${user.id}/`),
      token,
    };
    const told = Object.fromEntries(
      Object.entries(records).map(([kind, record]) => [kind, record.permissions]),
    );
    expect(told).toEqual({
      node: ['update', 'remove'],
      pool: ['update'],
      // the node is away
      domain: [],
      vdisk: [],
      file: expect.arrayContaining(['update', 'verify', 'remove', 'compress', 'download']),
      task: ['cancel'],
      event: [],
      // an integration token changes no user
      user: [],
      token: ['remove'],
    });
  });

  test('are those of the viewer', async () => {
    expect((await get(`/api/library/${SEED.file}/`, 'auditor')).permissions).toEqual([]);
    expect((await get(`/api/nodes/${SEED.node}/`, 'operator')).permissions).toEqual([]);
    const as = await rest.session('administrator');
    const { results } = (await rest.call('GET', '/api/users/', { as })).body;
    for (const { permissions } of results) expect(permissions).toEqual(['update']);
  });
});

test('an event is found by its id', async () => {
  const { id } = await rest.services.events.record({ type: 'warning', message: 'look', entities: [] });
  expect(await get(`/api/events/${id}/`)).toMatchObject({ id, type: 'warning', message: 'look' });
  const absent = await rest.call('GET', `/api/events/${newId()}/`);
  expect([absent.status, absent.body.errors[0].msg_key]).toEqual([404, 'event_not_found']);
});

test('what is not shared has no shared storage', async () => {
  expect(await get(`/api/data-pools/${SEED.pool}/`)).toMatchObject({ shared: false, shared_storage: null });
});
