/** What becomes of tags with the things that bear them. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import { makeRestApp, type RestApp } from './app.ts';
import { ended, enrolled, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let agent: FakeAgent;
let tagId: string;
let poolId: string;

beforeAll(async () => {
  rest = await makeRestApp();
  ({ agent } = await enrolled(rest, 'n1'));
  agent.whenStarted = ({ kind, request }) => {
    if (kind === 'remove_domain') agent.removeDomain(String(request.domainId));
    if (['remove_domain', 'delete_backup'].includes(kind)) agent.succeed(request.operationId);
  };
  tagId = (await post('/api/tags/', { verbose_name: 'kept' })).body.id;
  poolId = agent.setPool({}).id;
  await until(() => isThere(`/api/data-pools/${poolId}/`));
});
afterAll(() => stopAll(rest));

const post = (path: string, body: object = {}) => rest.call('POST', path, { body });
const isThere = async (path: string) => (await rest.call('GET', path)).status === 200;
const isAway = async (path: string) => (await rest.call('GET', path)).status === 404;
const tag = (...ids: string[]) =>
  post(`/api/tags/${tagId}/add-entities/`, { entities: ids.map(entity_uuid => ({ entity_uuid })) });

async function bearers(): Promise<string[]> {
  const { entities } = (await rest.call('GET', `/api/tags/${tagId}/`)).body;
  return entities.map(({ entity_uuid }: { entity_uuid: string }) => entity_uuid);
}

async function domain(...disks: string[]): Promise<string> {
  const { id } = agent.setDomain({ disks: disks.map(disk => ({ id: disk, poolId })) as never });
  await until(() => isThere(`/api/domains/${id}/`));
  return id;
}

async function scan(...files: BackupFile[]): Promise<void> {
  const { body } = await post(`/api/data-pools/${poolId}/scan/?async=1`);
  agent.succeed(body._task.id, { files: files.map(file => BackupFile.toJSON(file)) });
  await ended(rest, body._task.id);
}

test('a VM that is removed has none any more, nor have the disks that go with it', async () => {
  const [own, shared] = [newId(), newId()];
  const [removed, other] = [await domain(own, shared), await domain(shared)];
  await tag(removed, other, own, shared);
  expect((await post(`/api/domains/${removed}/remove/`, { full: true })).status).toBe(200);
  expect((await bearers()).sort()).toEqual([other, shared].sort());
  agent.setDomain({ id: removed });
  await until(() => isThere(`/api/domains/${removed}/`));
  expect((await rest.call('GET', `/api/domains/${removed}/`)).body.tags).toEqual([]);
  await post(`/api/tags/${tagId}/remove-entities/`, {
    entities: [other, shared].map(entity_uuid => ({ entity_uuid })),
  });
});

test('one that leaves its disks leaves them theirs, and one that is merely away keeps its own', async () => {
  const disk = newId();
  const [removed, away] = [await domain(disk), await domain()];
  await tag(removed, away, disk);
  await post(`/api/domains/${removed}/remove/`, { full: false });
  agent.removeDomain(away);
  await until(() => isAway(`/api/domains/${away}/`));
  expect((await bearers()).sort()).toEqual([away, disk].sort());
  await post(`/api/tags/${tagId}/remove-entities/`, {
    entities: [away, disk].map(entity_uuid => ({ entity_uuid })),
  });
});

test('a backup file that is removed or forgotten has none any more, one that is missing has', async () => {
  const [removed, forgotten, missing] = [1, 2, 3].map(() => agent.setFile({ poolId }));
  await scan(removed!, forgotten!, missing!);
  await tag(removed!.id, forgotten!.id, missing!.id);
  expect((await post(`/api/library/${removed!.id}/remove/`)).status).toBe(200);
  expect((await bearers()).sort()).toEqual([forgotten!.id, missing!.id].sort());
  await scan();
  expect((await post(`/api/library/${forgotten!.id}/remove/`)).status).toBe(200);
  expect(await bearers()).toEqual([missing!.id]);
});

test('what was forgotten without a word has none after the next start', async () => {
  const { db, tags } = rest.services;
  const gone = newId();
  await db
    .insertInto('tag_entities')
    .values({ tag_id: tagId, entity_id: gone, entity_class: 'file' })
    .execute();
  await tags.load();
  expect(await bearers()).not.toContain(gone);
  const left = await db
    .selectFrom('tag_entities')
    .select('entity_id')
    .where('entity_id', '=', gone)
    .execute();
  expect(left).toEqual([]);
});

test('whose tags change is told of as changed, once', async () => {
  const disk = newId();
  const id = await domain(disk);
  const told: [string, string, unknown][] = [];
  const viewer = await rest.services.tokens.principal(rest.tokens.operator);
  const stop = rest.services.changes.subscribe(changes => {
    for (const { kind, entityId, action, render } of changes) {
      const record = render(viewer) as { tags?: { verbose_name: string }[] } | null;
      if ([id, disk].includes(entityId))
        told.push([kind, action, record?.tags?.map(({ verbose_name }) => verbose_name)]);
    }
  });
  const during = async (work: Promise<unknown>) => {
    await work;
    rest.services.changes.tell();
    return told.splice(0);
  };
  const put = (tags: string[]) => rest.call('PUT', `/api/domains/${id}/`, { body: { tags } });
  try {
    expect(await during(tag(id, disk))).toEqual([
      ['domain', 'changed', ['kept']],
      ['vdisk', 'changed', undefined],
    ]);
    expect(await during(tag(id))).toEqual([]);
    expect(await during(put(['kept']))).toEqual([]);
    expect(await during(put(['new', 'newer']))).toEqual([['domain', 'changed', ['new', 'newer']]]);
    expect(await during(put(['kept']))).toEqual([['domain', 'changed', ['kept']]]);
    const rename = rest.call('PUT', `/api/tags/${tagId}/`, { body: { verbose_name: 'renamed' } });
    expect(await during(rename)).toEqual([
      ['vdisk', 'changed', undefined],
      ['domain', 'changed', ['renamed']],
    ]);
    const entities = [{ entity_uuid: disk }, { entity_uuid: newId() }];
    expect(await during(post(`/api/tags/${tagId}/remove-entities/`, { entities }))).toEqual([
      ['vdisk', 'changed', undefined],
    ]);
    expect(await during(post(`/api/tags/${tagId}/remove/`))).toEqual([['domain', 'changed', []]]);
  } finally {
    stop();
  }
});
