import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { type ControllerConfig, configSchema } from '../../config.ts';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { SETTING_NAMES, SettingService, withOwnSections } from './settings.ts';

const NOW = new Date('2026-03-01T08:00:00.000Z');
const FILE = configSchema.parse({ schedules: { per_node: 3 } });

let db: Database;
let config: ControllerConfig;

beforeEach(async () => {
  db = await openTestDatabase();
});
afterEach(() => db.destroy());

/** As a controller has them after a start. */
async function started(): Promise<SettingService> {
  config = withOwnSections(FILE);
  const settings = new SettingService({ db, config, log: createLogger('test', 'error') });
  await settings.load();
  return settings;
}

const one = (settings: SettingService, wanted: string) => settings.list().find(({ name }) => name === wanted);

test('each of them is that of the file at first', async () => {
  const settings = await started();
  expect(settings.list().map(({ name }) => name)).toEqual(SETTING_NAMES);
  expect(one(settings, 'schedules.per_node')).toEqual({
    name: 'schedules.per_node',
    value: 3,
    from_file: 3,
    modified: null,
  });
  expect(one(settings, 'notifications.daily_at')).toMatchObject({ value: '07:00' });
});

test('what is set counts at once and after a restart, until that of the file is wanted again', async () => {
  const first = await started();
  await first.set('schedules.per_node', 5, NOW);
  await first.set('schedules.per_node', 0, NOW);
  await first.set('notifications.daily_at', '06:30', NOW);
  expect([config.schedules.per_node, config.notifications.daily_at]).toEqual([0, '06:30']);
  const second = await started();
  expect([config.schedules.per_node, config.notifications.daily_at]).toEqual([0, '06:30']);
  expect(one(second, 'schedules.per_node')).toMatchObject({
    value: 0,
    from_file: 3,
    modified: NOW.toISOString(),
  });
  expect(await second.set('schedules.per_node', null)).toMatchObject({ value: 3, modified: null });
  await started();
  expect([config.schedules.per_node, config.notifications.daily_at]).toEqual([3, '06:30']);
  // whoever has the settings of the file keeps them
  expect(FILE.notifications.daily_at).toBe('07:00');
});

describe('what cannot be', () => {
  test.each([
    ['schedules.per_node', -1],
    ['schedules.per_node', 1.5],
    ['schedules.per_node', '2'],
    ['keep.notifications_days', 6],
    ['keep.tasks_days', 999_999_999],
    ['notifications.daily_at', '25:00'],
    ['notifications.daily_at', 7],
  ] as const)('%s: %j is refused, and changes nothing', async (name, value) => {
    const settings = await started();
    const before = settings.list();
    await expect(settings.set(name, value)).rejects.toMatchObject({
      msgKey: 'invalid_field',
      message: expect.stringContaining(name),
    });
    expect(settings.list()).toEqual(before);
    expect(await db.selectFrom('settings').selectAll().execute()).toEqual([]);
  });

  test('was set by another version: that of the file counts', async () => {
    const modified = NOW.toISOString();
    await db
      .insertInto('settings')
      .values([
        { name: 'schedules.per_node', value: '-1', modified },
        { name: 'schedules.per_pool', value: 'no JSON', modified },
        { name: 'not.there', value: '1', modified },
        { name: 'keep.runs_days', value: '100', modified },
      ])
      .execute();
    const settings = await started();
    expect([config.schedules.per_node, config.schedules.per_pool, config.keep.runs_days]).toEqual([
      3, 0, 100,
    ]);
    expect(one(settings, 'schedules.per_node')).toMatchObject({ value: 3, modified });
    // and can be taken back
    expect(await settings.set('schedules.per_node', null)).toMatchObject({ modified: null });
  });
});
