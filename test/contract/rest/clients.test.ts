/** What clients of the API family expect of the records, whose types are strict: the kind of each value. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { decodeJwt } from 'jose';
import { TagService } from '../../../controller/src/services/tags/tags.ts';
import { makeTestDatabase } from '../../../controller/src/store/test-database.ts';
import { makeRestApp, PASSWORD, type RestApp } from './app.ts';
import { until } from './nodes-world.ts';
import { SEED, seedNode } from './seed.ts';

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
    const records: Record<string, { permissions: string[] }> = {
      node: await get(`/api/nodes/${SEED.node}/`),
      pool: await get(`/api/data-pools/${SEED.pool}/`),
      domain: await get(`/api/domains/${SEED.domain}/`),
      vdisk: await get(`/api/vdisks/${SEED.vdisk}/`),
      file: await get(`/api/library/${SEED.file}/`),
      task: await get(`/api/tasks/${row.id}/`),
      event: await get(`/api/events/${event.id}/`),
      user: await get(`/api/users/${rest.userNumbers.operator}/`),
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
    for (const { username, permissions } of results)
      expect(permissions).toEqual(username === 'the-administrator' ? ['update'] : ['update', 'remove']);
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

describe('the id of a user', () => {
  test('is the same integer in their record, tasks, tokens and the audit', async () => {
    const number = rest.userNumbers.operator;
    expect(Number.isSafeInteger(number)).toBe(true);
    expect((await get(`/api/users/${number}/`)).id).toBe(number);
    const { row } = await rest.services.tasks.create({
      name: 'act',
      verboseName: 'Act',
      user: { id: rest.userIds.operator, username: 'the-operator' },
      entities: [],
    });
    expect((await get(`/api/tasks/${row.id}/`)).user).toEqual({ id: number, username: 'the-operator' });
    const { header } = await rest.session('operator');
    expect(decodeJwt(header.slice(4)).user_id).toBe(number);
    expect((await get('/api/tokens/?name=test', 'operator')).results[0].user.id).toBe(number);
    await rest.call('PUT', `/api/tasks/${row.id}/cancel/`, { as: 'operator' });
    expect((await get('/api/audit/?user=the-operator')).results[0].user.id).toBe(number);
  });

  test('finds what the audit tells of them, as it is written down by UUID', async () => {
    const [number, uuid] = [rest.userNumbers.backup_service, rest.userIds.backup_service];
    const as = await rest.session('administrator');
    const body = { description: 'audited' };
    expect((await rest.call('PUT', `/api/users/${number}/`, { as, body })).status).toBe(200);
    await rest.call('POST', '/auth/', {
      as: null,
      body: { username: 'the-backup_service', password: PASSWORD },
    });
    const found = async (entity: number | string) => (await get(`/api/audit/?entity=${entity}`)).results;
    await until(async () => (await found(number)).length === 2);
    const records = await found(number);
    expect(records).toMatchObject([
      { action: 'POST /auth/', entity: `${number}` },
      { action: 'PUT /api/users/:id/', entity: `${number}` },
    ]);
    expect(await found(uuid)).toEqual(records);
    const rows = await rest.services.db
      .selectFrom('audit')
      .select('id')
      .where('entity_id', '=', uuid)
      .execute();
    expect(rows).toHaveLength(2);
    expect((await rest.call('GET', '/api/audit/?entity=0')).status).toBe(400);
  });

  test('was a UUID in tokens of before, which go on', async () => {
    const now = new Date();
    const header = await rest.signer.sign({
      userId: rest.userIds.auditor,
      username: 'the-auditor',
      jti: newId(),
      family: newId(),
      origIat: new Date(now.getTime() + 1000),
      expiresOn: new Date(now.getTime() + 60_000),
      integration: false,
    });
    const answer = await rest.call('GET', '/api/tasks/', { as: { header: `jwt ${header}` } });
    expect(answer.status).toBe(200);
  });
});

describe('clients that walk from clusters to VMs', () => {
  test.each(['clusters', 'resource-pools'])('find one of %s, which has everything', async kind => {
    const { results, count } = await get(`/api/${kind}/?async=1`);
    expect(count).toBe(1);
    const [{ id }] = results;
    expect(await get(`/api/${kind}/${id}/`)).toEqual(results[0]);
    expect(results[0]).toMatchObject({ built_in: true, nodes_count: 1, domains_count: 1 });
    const field = kind === 'clusters' ? 'cluster' : 'resource_pool';
    for (const list of ['nodes', 'domains', 'data-pools']) {
      expect((await get(`/api/${list}/?${field}=${id}`)).count).toBe(1);
      expect((await get(`/api/${list}/?${field}=${newId()}`)).count).toBe(0);
    }
    expect((await rest.call('GET', `/api/${kind}/${newId()}/`)).status).toBe(404);
  });

  test('see what a node has promised', async () => {
    expect(await get(`/api/nodes/${SEED.node}/usage/?async=1`)).toMatchObject({
      id: SEED.node,
      domains_count: 1,
      cpu_percent: 0,
      memory_percent: 0,
    });
  });

  test('ask a task for the job behind it and get a 404', async () => {
    const answer = await rest.call('GET', `/api/tasks/${newId()}/jid/?async=1`);
    expect([answer.status, answer.body.errors[0].msg_key]).toEqual([404, 'not_found']);
  });
});

describe('calls by their other names', () => {
  const names = [
    ['vdi-prepare', 'prepare'],
    ['attach-veil-utils-iso', 'attach-guest-tools-iso'],
    ['detach-veil-utils-iso', 'detach-guest-tools-iso'],
  ] as const;
  test.each(names)('%s is %s', async (other, known) => {
    const post = async (name: string, as: 'operator' | 'auditor') =>
      (await rest.call('POST', `/api/domains/${SEED.domain}/${name}/?async=1`, { as, body: {} })).body
        .errors[0];
    expect(await post(other, 'operator')).toEqual(await post(known, 'operator'));
    expect(await post(other, 'operator')).toMatchObject({ msg_key: 'node_unreachable' });
    expect(await post(other, 'auditor')).toMatchObject({ msg_key: 'permission_denied' });
  });

  test('can be switched off', async () => {
    const without = await makeRestApp({ api: { other_names: false } }, seedNode);
    try {
      for (const [other] of names) {
        const answer = await without.call('POST', `/api/domains/${SEED.domain}/${other}/`, { body: {} });
        expect(answer.status).toBe(404);
      }
    } finally {
      await without.close();
    }
  });
});

describe('tags', () => {
  const post = (path: string, body: object, as: 'operator' | 'administrator' = 'operator') =>
    rest.call('POST', path, { as, body });
  const make = async (verbose_name: string) => (await post('/api/tags/', { verbose_name })).body;

  test('are given to things, shown with them, and filter lists', async () => {
    const { body: tag } = await post('/api/tags/', { verbose_name: 'nightly', colour: '#1e90ff' });
    expect(tag).toMatchObject({ verbose_name: 'nightly', colour: '#1e90ff', entities_count: 0 });
    const entity = { entity_uuid: SEED.domain.toUpperCase(), entity_class: 'domain' };
    expect((await post(`/api/tags/${tag.id}/add-entity/`, entity)).body.entities).toEqual([
      { entity_uuid: SEED.domain, entity_class: 'domain' },
    ]);
    const others = [SEED.node, SEED.pool, SEED.vdisk, SEED.file];
    const entities = others.map(entity_uuid => ({ entity_uuid }));
    const all = await post(`/api/tags/${tag.id}/add-entities/`, { entities: [...entities, entity] });
    expect(all.body.entities_count).toBe(5);
    for (const list of ['domains', 'nodes', 'data-pools', 'vdisks', 'library']) {
      const { count, results } = await get(`/api/${list}/?tag=${tag.id}&async=1`);
      expect([list, count]).toEqual([list, 1]);
      expect((await get(`/api/${list}/?tag=${newId()}`)).count).toBe(0);
      const borne = await get(`/api/${list}/${results[0].id}/tags/?async=1`);
      expect(borne.results).toEqual([expect.objectContaining({ id: tag.id, verbose_name: 'nightly' })]);
    }
    const shown = [{ id: tag.id, verbose_name: 'nightly', colour: '#1e90ff' }];
    expect((await get(`/api/domains/${SEED.domain}/`)).tags).toEqual(shown);
    expect((await get(`/api/data-pools/${SEED.pool}/`)).tags).toEqual(shown);

    await post(`/api/tags/${tag.id}/remove-entity/`, entity);
    expect((await get(`/api/domains/${SEED.domain}/tags/`)).count).toBe(0);
    expect((await post(`/api/tags/${tag.id}/remove-entities/`, { entities })).body.entities).toEqual([]);
  });

  test('are set with the record of a VM, by id or name', async () => {
    const tag = await make('by id');
    const path = `/api/domains/${SEED.domain}/`;
    const put = async (tags: string[]) =>
      (await rest.call('PUT', path, { body: { tags } })).body.tags.map(
        ({ verbose_name }: { verbose_name: string }) => verbose_name,
      );
    expect(await put([tag.id, 'by name'])).toEqual(['by id', 'by name']);
    expect(await put(['by name'])).toEqual(['by name']);
    expect(await put([])).toEqual([]);
  });

  test('are set by an id in capitals, and an id of none makes no tag', async () => {
    const tag = await make('in capitals');
    const put = (body: object) => rest.call('PUT', `/api/domains/${SEED.domain}/`, { body });
    const set = await put({ tags: [tag.id.toUpperCase()] });
    expect(set.body.tags).toEqual([{ id: tag.id, verbose_name: 'in capitals', colour: '' }]);
    const { count } = await get('/api/tags/');
    for (const id of [newId(), newId().toUpperCase()]) {
      const refused = await put({ tags: ['a new name', id] });
      expect([refused.status, refused.body.errors[0].msg_key]).toEqual([404, 'tag_not_found']);
    }
    expect((await get('/api/tags/')).count).toBe(count);
    expect((await get(`/api/domains/${SEED.domain}/`)).tags).toEqual(set.body.tags);
    await put({ tags: [] });
  });

  test('have one name each, and go from all that bears them', async () => {
    const tag = await make('first');
    const second = await make('second');
    expect((await post('/api/tags/', { verbose_name: 'first' })).body.errors[0].msg_key).toBe('name_taken');
    const renamed = { verbose_name: 'first', description: 'x' };
    expect((await rest.call('PUT', `/api/tags/${tag.id}/`, { body: renamed })).body).toMatchObject(renamed);
    const taken = await rest.call('PUT', `/api/tags/${second.id}/`, { body: renamed });
    expect(taken.body.errors[0].msg_key).toBe('name_taken');
    await post(`/api/tags/${tag.id}/add-entity/`, { entity_uuid: SEED.domain });
    const unknown = { entities: [{ entity_uuid: SEED.node }, { entity_uuid: newId() }] };
    const refused = await post(`/api/tags/${tag.id}/add-entities/`, unknown);
    expect([refused.status, refused.body.errors[0].msg_key]).toEqual([404, 'entity_not_found']);
    expect((await get(`/api/nodes/${SEED.node}/tags/`)).count).toBe(0);
    expect((await post(`/api/tags/${tag.id}/remove/`, {})).status).toBe(200);
    expect((await rest.call('GET', `/api/tags/${tag.id}/`)).body.errors[0].msg_key).toBe('tag_not_found');
    expect((await get(`/api/domains/${SEED.domain}/`)).tags).toEqual([]);
  });

  test('outlive a restart of the controller', async () => {
    const { target, open, release } = await makeTestDatabase();
    try {
      const before = await makeRestApp({}, seedNode, { database: target });
      await before.call('PUT', `/api/domains/${SEED.domain}/`, { body: { tags: ['kept'] } });
      await before.close();
      const db = await open();
      const rows = await db.selectFrom('tag_entities').select('entity_id').execute();
      expect(rows).toEqual([{ entity_id: SEED.domain }]);
      const tags = new TagService({ db } as never);
      await tags.load();
      expect(tags.borneBy(SEED.domain)).toMatchObject([{ verbose_name: 'kept' }]);
      await db.destroy();
    } finally {
      await release();
    }
  });
});
