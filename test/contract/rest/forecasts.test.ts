/** In how many days data pools are full: what is written down each day, and what lists and the overview tell of it. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { makeRestApp, type RestApp } from './app.ts';
import { type Enrolled, ended, enrolled, stopAll, until } from './nodes-world.ts';

const GiB = 1024n ** 3n;
const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 0, 1, 12);
let rest: RestApp;
let node: Enrolled;
let pool: string;

beforeAll(async () => {
  rest = await makeRestApp();
  node = await enrolled(rest, 'node-1');
  pool = use(100n);
  await until(async () => (await rest.call('GET', '/api/data-pools/')).body.count === 1);
});
afterAll(() => stopAll(rest));

/** So many GiB are used of 400. */
function use(used: bigint): string {
  const part = {
    name: 'backups',
    capacity: 400n * GiB,
    allocation: used * GiB,
    available: (400n - used) * GiB,
  };
  return node.agent.setPool(pool === undefined ? part : { ...part, id: pool }).id;
}
const told = async () => (await rest.call('GET', `/api/data-pools/${pool}/`)).body;

test('what is used is written down once a day, for ninety days, and tells when the pool is full', async () => {
  const { poolForecasts, db } = rest.services;
  expect((await told()).forecast).toEqual({
    state: 'unknown',
    days: null,
    growth_per_day: null,
    basis: null,
  });
  for (let day = 0; day < 100; day += 1) {
    const used = 100n + BigInt(day);
    use(used);
    await until(async () => (await told()).used_space === Number(used * GiB));
    // of a day the first look counts
    for (const hour of [0, 3]) await poolForecasts.round(new Date(START + day * DAY_MS + hour * 3_600_000));
  }
  const rows = await db.selectFrom('pool_samples').selectAll().orderBy('day').execute();
  expect(rows).toHaveLength(91);
  expect(rows[0]).toEqual({ pool_id: pool, day: '2026-01-10', used: Number(109n * GiB) });
  const forecast = { state: 'filling', days: 201, growth_per_day: Number(GiB), basis: 'samples' };
  expect((await told()).forecast).toEqual(forecast);
  const list = await rest.call('GET', '/api/data-pools/?fields=id,forecast');
  expect(list.body.results).toEqual([{ id: pool, forecast }]);
  const overview = await rest.call('GET', '/api/overview/');
  expect(overview.body.pools.results).toMatchObject([{ id: pool, forecast }]);
});

test('a pool that was not watched yet is told of by its backups', async () => {
  const { poolForecasts, db } = rest.services;
  await db.deleteFrom('pool_samples').execute();
  const now = Date.now();
  for (const days of [20, 10, 1]) {
    const created = new Date(now - days * DAY_MS);
    node.agent.setFile({ poolId: pool, size: 20n * GiB, created });
  }
  const { body } = await rest.call('POST', `/api/data-pools/${pool}/scan/?async=1`, { body: {} });
  node.agent.succeed(body._task.id, { files: [...node.agent.files.values()] });
  await ended(rest, body._task.id);
  await poolForecasts.refresh(new Date(now));
  expect((await told()).forecast).toMatchObject({ state: 'filling', days: 67, basis: 'backups' });
});
