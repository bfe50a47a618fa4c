/** Settings that are changed while the controller runs: over a restart, and where they are used. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { cleanUp } from '../../../controller/src/janitor.ts';
import { makeRestApp, type RestApp } from './app.ts';

const DAY_MS = 86_400_000;

let rest: RestApp;
beforeAll(async () => {
  rest = await makeRestApp({ schedules: { per_node: 3 } });
});
afterAll(() => rest.close());

const put = (name: string, value: unknown) => rest.call('PUT', '/api/settings/', { body: { name, value } });
const one = async (wanted: string) =>
  (await rest.call('GET', `/api/settings/?name=${wanted}`)).body.results[0];

test('one is listed with what the file says, changed, kept over a restart and given back', async () => {
  expect(await one('per_node')).toEqual({
    name: 'schedules.per_node',
    value: 3,
    from_file: 3,
    modified: null,
  });
  expect((await put('schedules.per_node', 5)).body).toMatchObject({ value: 5, from_file: 3 });
  await rest.restart();
  expect(await one('per_node')).toMatchObject({ value: 5, from_file: 3, modified: expect.any(String) });
  expect(rest.services.config.schedules.per_node).toBe(5);
  await put('schedules.per_node', null);
  await rest.restart();
  expect(await one('per_node')).toMatchObject({ value: 3, modified: null });
});

test('what is kept for fewer days goes by the next round', async () => {
  await rest.services.events.record({ type: 'info', message: 'old' });
  const inTenDays = new Date(Date.now() + 10 * DAY_MS);
  const count = async () => (await rest.call('GET', '/api/events/?limit=1')).body.count;
  const before = await count();
  await cleanUp(rest.services, inTenDays);
  expect(await count()).toBe(before);
  await put('keep.events_days', 5);
  await cleanUp(rest.services, inTenDays);
  expect(await count()).toBe(0);
  await put('keep.events_days', null);
});

test.each([
  ['no.such', 1, 'name'],
  ['state_dir', '/tmp', 'name'],
  ['schedules.per_node', -1, 'value'],
  ['notifications.daily_at', '7 o’clock', 'value'],
  ['schedules.per_node', true, 'value'],
])('%s: %j is refused at its field', async (name, value, field) => {
  const { status, body } = await put(name, value);
  expect([status, body.errors[0].field]).toEqual([400, field]);
});
