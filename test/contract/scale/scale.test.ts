/** What must not grow with the number of nodes and VMs, told without a clock: statements, and how the database goes about them. */
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { cleanUp } from '../../../controller/src/janitor.ts';
import { BackupFiles } from '../../../controller/src/services/backup-files/backup-files.ts';
import { archiveIdOfRow } from '../../../controller/src/services/backup-files/identity.ts';
import { DomainMap } from '../../../controller/src/services/inventory/domain-map.ts';
import { KeptFiles } from '../../../controller/src/services/schedules/kept-files.ts';
import { ScheduleStore } from '../../../controller/src/services/schedules/store.ts';
import { openDatabase } from '../../../controller/src/store/database.ts';
import { idOf, ownPool, SHARED_POOL } from '../../scale/seeded.ts';
import { scansOf } from './scans.ts';
import { Statements, writesTo } from './statements.ts';
import { World } from './world.ts';

const SMALL = { nodes: 2, vms: 5 };
const LARGE = { nodes: 5, vms: 20 };
const FIRST = idOf('domain', 0, 0);
const LISTS = [
  ...['verbose_name', '-created', 'modified', 'status', '-user_power_state', 'memory_count', 'cpu_count'].map(
    order => `/api/domains/?limit=4&ordering=${order}`,
  ),
  '/api/domains/?limit=4&offset=5&name=vm&template=false',
  `/api/domains/?limit=4&node=${idOf('node', 1)}`,
  '/api/domains/?limit=4&protection=protected&all_content=1',
  ...['verbose_name', 'size', '-used', 'status', 'domain', 'datapool'].map(
    order => `/api/vdisks/?limit=4&ordering=${order}`,
  ),
  `/api/vdisks/?limit=4&datapool=${ownPool(0)}`,
  '/api/nodes/?limit=2&ordering=-domains_count',
  '/api/data-pools/?limit=2&ordering=-file_count',
  ...['-created', 'filename', 'verbose_name', '-size', 'status', 'type'].map(
    order => `/api/library/?limit=4&ordering=${order}`,
  ),
  `/api/library/?limit=4&datapool=${SHARED_POOL}`,
  `/api/library/?limit=4&domain=${FIRST}`,
  '/api/library/?limit=4&status=ACTIVE&offset=6',
  ...['-created', 'finished_time', '-status', 'name', 'verbose_name', 'progress'].map(
    order => `/api/tasks/?limit=4&ordering=${order}`,
  ),
  '/api/tasks/?limit=4&status=SUCCESS',
  `/api/tasks/?limit=4&node=${idOf('node', 0)}`,
  `/api/tasks/?limit=4&entity=${FIRST}`,
  `/api/tasks/?limit=4&parent=${FIRST}`,
  ...['-created', 'type', '-user'].map(order => `/api/events/?limit=4&ordering=${order}`),
  '/api/events/?limit=4&type=info',
  '/api/events/?limit=4&user=system',
  `/api/events/?limit=4&entity=${FIRST}`,
  '/api/audit/?limit=4',
  `/api/audit/?limit=4&entity=${FIRST}`,
  '/api/audit/?limit=4&user=admin',
  '/api/protection/?limit=4',
  '/api/overview/',
  '/metrics',
];
const RECORDS = [
  `/api/domains/${FIRST}/`,
  `/api/vdisks/${idOf('disk', 0, 1)}/`,
  `/api/nodes/${idOf('node', 0)}/`,
  `/api/nodes/${idOf('node', 0)}/usage/`,
  `/api/data-pools/${SHARED_POOL}/`,
  `/api/library/${idOf('file', 0, 0)}/`,
];

let statements: Statements;
let small: World;
let large: World;

beforeAll(async () => {
  statements = new Statements();
  small = await World.make(SMALL);
  large = await World.make(LARGE);
});
afterAll(async () => {
  statements?.end();
  await small?.end();
  await large?.end();
});

const get = async (world: World, path: string) => {
  const answer = await world.rest.call('GET', path);
  if (answer.status !== 200) throw new Error(`${path}: ${answer.text}`);
  return answer;
};

test.each([...LISTS, ...RECORDS])('%s asks as many statements of many VMs as of few', async path => {
  // what is written now and then is written now
  for (const world of [small, large]) await get(world, path);
  const [ofSmall, ofLarge] = [
    await statements.of(() => get(small, path)),
    await statements.of(() => get(large, path)),
  ];
  expect(ofSmall.length).toBeGreaterThan(0);
  expect(ofLarge.length).toBe(ofSmall.length);
});

test('no node was lost while all that they have was taken over', async () => {
  const { count } = (await get(large, '/api/events/?name=is not reachable')).body;
  expect(count).toBe(0);
});

describe('the change of a VM', () => {
  /** How many times the domains were looked into, one by one and all together, and the database was asked. */
  async function workOf(world: World): Promise<{ looks: number; rounds: number; statements: number }> {
    const looks = jest.spyOn(DomainMap.prototype, 'get');
    const rounds = (['values', 'keys', 'entries', 'forEach'] as const).map(name =>
      jest.spyOn(DomainMap.prototype, name),
    );
    const asked = await statements.during(async () => {
      const changed = world.agents[0]!.change(3);
      await world.when(
        () => world.rest.services.domains.find(changed.id, null)?.description === changed.description,
      );
    });
    const work = {
      looks: looks.mock.calls.length,
      rounds: rounds.reduce((sum, spy) => sum + spy.mock.calls.length, 0),
      statements: asked.length,
    };
    for (const spy of [looks, ...rounds]) spy.mockRestore();
    return work;
  }

  /** Of several times the least of each: whatever the process does beside only adds to it. */
  async function leastOf(world: World): Promise<Awaited<ReturnType<typeof workOf>>> {
    const times = [await workOf(world), await workOf(world), await workOf(world)];
    const least = (name: 'looks' | 'rounds' | 'statements') => Math.min(...times.map(time => time[name]));
    return { looks: least('looks'), rounds: least('rounds'), statements: least('statements') };
  }

  test('is as much work among many as among few', async () => {
    const ofSmall = await leastOf(small);
    expect(await leastOf(large)).toEqual(ofSmall);
    expect(ofSmall.rounds).toBe(0);
  });
});

describe('a backup', () => {
  async function begin(world: World) {
    const begun = Promise.withResolvers<string>();
    const [agent] = world.agents;
    agent!.started = ({ id, kind }) => {
      if (kind === 'backup') begun.resolve(id);
    };
    const answer = await world.rest.call('POST', '/api/domains/backup/?async=1', { body: { domain: FIRST } });
    expect(answer.status).toBe(202);
    return { agent: agent!, id: await begun.promise };
  }
  const taskOf = async (world: World, id: string) => (await get(world, `/api/tasks/${id}/`)).body;

  test('tells how far it is without asking the database for it', async () => {
    const { agent, id } = await begin(large);
    const { tasks } = large.rest.services;
    const askedUntil = async (last: number) => {
      const asked = await statements.during(async () => {
        for (let told = 1; told <= 50; told += 1) agent.progress(id, last - 15 + Math.ceil((told * 15) / 50));
        await large.when(() => tasks.progressOf(id) >= last);
      });
      // the place in the stream is written now and then
      return asked.filter(text => /"(tasks|task_entities|events|users)"/.test(text));
    };
    // progress itself is written every few seconds: not during each of these
    const rounds = [await askedUntil(20), await askedUntil(35), await askedUntil(50)];
    expect(rounds.toSorted((a, b) => a.length - b.length)[0]).toEqual([]);
    expect((await taskOf(large, id)).progress).toBe(50);
    await large.rest.services.tasks.flush();
    const row = await large.rest.services.db
      .selectFrom('tasks')
      .selectAll()
      .where('id', '=', id)
      .executeTakeFirst();
    expect(row?.progress).toBe(50);
    agent.succeed(id);
    await large.when(async () => (await taskOf(large, id)).status === 'SUCCESS');
  });

  test('begins and ends with as many statements among many as among few', async () => {
    const statementsOf = async (world: World) => {
      const { tasks } = world.rest.services;
      let ended = '';
      const all = await statements.during(async () => {
        const { agent, id } = await begin(world);
        agent.succeed(id);
        await world.when(async () => (await tasks.get(id)).row.status === 'SUCCESS');
        ended = id;
      });
      // what the waiting asks, which is asked more often where it takes longer
      const waiting = new Set(await statements.during(() => tasks.get(ended)));
      return all.filter(text => !waiting.has(text)).length;
    };
    // as above
    const leastOf = async (world: World) => Math.min(await statementsOf(world), await statementsOf(world));
    const [ofSmall, ofLarge] = [await leastOf(small), await leastOf(large)];
    // a place in a stream may be written besides
    expect(Math.abs(ofLarge - ofSmall)).toBeLessThanOrEqual(4);
  });
});

test('a scan that finds what was known writes nothing of it', async () => {
  const { services } = large.rest;
  const user = { id: large.rest.userIds.administrator, username: 'the-administrator' };
  const asked = await statements.during(async () => {
    const { row } = await services.pools.scan(ownPool(1), user, idOf('pool', 1, 77));
    await large.when(async () => (await services.tasks.get(row.id)).row.status === 'SUCCESS');
  });
  expect(asked.filter(writesTo('files'))).toEqual([]);
  expect(asked.filter(text => text.includes('"files"')).length).toBeLessThan(10);
});

test('room for a backup is looked for among what lies in its pool, whatever tasks there are and have made', async () => {
  const { db } = large.rest.services;
  const pool = ownPool(2);
  const store = new ScheduleStore(db);
  const backupFiles = new BackupFiles(
    db,
    () => {},
    () => undefined,
  );
  const keptFiles = new KeptFiles({
    store,
    backupFiles,
    inventory: { domains: new Map(), isOrphaned: () => false },
    presence: async () => new Map(),
    draining: new AbortController().signal,
  } as never);
  const make = async (name: string, archiveIds: string[]) => {
    const times = { periodicity: 'daily', start_date: '2100-01-01T00:00:00Z' };
    const body = {
      verbose_name: name,
      action: 'backup',
      entities: [FIRST],
      free_space_cleanup: true,
      ...times,
    };
    const answer = await large.rest.call('POST', '/api/scheduled-tasks/', { body });
    expect([answer.status, answer.text]).toEqual([200, expect.any(String)]);
    for (const archiveId of archiveIds)
      await store.recordOrigin({ archiveId, taskId: answer.body.id, domainId: FIRST, now: new Date() });
  };
  const plan = async () => {
    expect(await backupFiles.isDeletedFrom(pool)).toBe(false);
    expect(await keptFiles.doomedForSpace(pool, 1, Date.now())).toHaveLength(1);
  };
  await make('of what is there', (await backupFiles.filesOf({ pool })).map(archiveIdOfRow));
  const among = await statements.during(plan);
  for (let task = 0; task < 5; task += 1)
    await make(
      `of years ago ${task}`,
      Array.from({ length: 20 }, (_, day) => `gone-${task}-${day}`),
    );
  const amongMany = await statements.during(plan);
  expect(amongMany.length).toBe(among.length);
  expect(amongMany.filter(text => text.includes('from "file_origins"'))).toEqual([
    expect.stringContaining('where "archive_id" in'),
  ]);
  expect(amongMany.filter(text => text.includes('from "files"')).length).toBe(2);
});

/** Asked once, at the start of the process. */
const AT_START = [
  'select * from "nodes"',
  'select * from "domains"',
  'select * from "domain_copies"',
  'select * from "pool_nodes"',
  'select * from "backup_attempts"',
  'select "scheduled_task_id", max("due_time") as "due_time" from "scheduled_runs" where "due_time" is not null group by "scheduled_task_id"',
];
/** A part of a text is looked for in all of them. */
const isOfPart = (text: string): boolean => / like (\?|\$\d+) escape /.test(text);

test('no statement reads all of a table that grows', async () => {
  const { services } = large.rest;
  await cleanUp(services, new Date());
  await services.tasks.check();
  await services.tasks.markLost(idOf('node', 3));
  const ofMigrations = await statements.during(async () => {
    await (await openDatabase({ kind: 'sqlite', path: ':memory:' })).destroy();
    await (await large.database.open()).destroy();
  });
  const past = new Set([...ofMigrations, ...AT_START]);
  const asked = statements.all().filter(text => !past.has(text) && !isOfPart(text));
  expect(asked.length).toBeGreaterThan(100);
  expect(await scansOf(large.database, asked)).toEqual([]);
});
