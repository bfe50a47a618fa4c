import { beforeEach, expect, test } from '@jest/globals';
import type { Logger } from '@virtkeep/shared/log';
import type { Database } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import type { NotificationEvent } from '../notifications/events.ts';
import { render } from '../notifications/templates.ts';
import type { ProtectionRecord } from '../protection/protection.ts';
import { Notices } from './notices.ts';
import { newPart, newRun } from './store.ts';

let raised: { event: NotificationEvent; key: string }[];
let now: string;
let vms: ProtectionRecord[];
let notices: Notices;

/** When people are told. */
let hour: string;

beforeEach(() => {
  raised = [];
  vms = [vm('late'), vm('protected')];
  notices = make();
});

const make = (dailyAt = '07:00') => {
  hour = dailyAt;
  return new Notices({
    notifications: {
      raise: async (event, { key }) => {
        raised.push({ event, key });
        return 1;
      },
    },
    backupFiles: { find: async () => ({ filename: 'a.tar', size: 7 }) } as unknown as BackupFiles,
    protection: async () => vms,
    maxAgeDays: () => 7,
    clock: { now: () => new Date(now) },
    dailyAt: () => hour,
    timeZone: 'Europe/Berlin',
    log: {} as Logger,
  });
};

function vm(state: ProtectionRecord['state']): ProtectionRecord {
  const named = { id: state, verbose_name: state };
  return {
    domain: named,
    node: named,
    state,
    last_good: null,
    age: 172_800,
    reason: 'why',
    limit: null,
    tasks: [],
  };
}

const NO_DATABASE = {} as Database;
const TASK = { id: 't', definition_json: '{"verbose_name":"nightly"}', user_id: 'u', username: 'u' };

test('a run is told once under its id, with what became of each VM', async () => {
  now = '2026-03-01T03:00:00Z';
  const run = {
    ...newRun(TASK, new Date('2026-03-01T02:00:00Z')),
    status: 'PARTIAL',
    finished: '2026-03-01T02:10:00.000Z',
    missing_json: '["gone"]',
  };
  const parts = ['a', 'b'].map((id, index) => newPart(run.id, index, { id, class: 'domain', name: id }));
  const good = {
    ...parts[0]!,
    status: 'SUCCESS',
    file_id: 'f',
    started: run.created,
    finished: run.finished,
  };
  const bad = {
    ...parts[1]!,
    status: 'FAILED',
    error_json: '{"detail":"No space."}',
    notes_json: '["Attempt 1 failed"]',
  };
  const hindered = {
    ...good,
    entity_id: 'c',
    entity_name: 'c',
    status: 'PARTIAL',
    error_json: '{"detail":"The disk is full."}',
    notes_json: '["Old restore points were not taken out: The disk is full."]',
  };
  await notices.ended(run, [good, bad, hindered]);
  expect(raised).toEqual([
    {
      key: run.id,
      event: {
        event: 'run_partial',
        data: expect.objectContaining({
          task: { id: 't', verbose_name: 'nightly' },
          duration_s: 600,
          counts: { total: 4, succeeded: 1, partial: 1, failed: 1, skipped: 1, canceled: 0 },
          vms: [
            {
              id: 'a',
              verbose_name: 'a',
              outcome: 'succeeded',
              reason: '',
              file: 'a.tar',
              size: 7,
              duration_s: 600,
            },
            {
              id: 'b',
              verbose_name: 'b',
              outcome: 'failed',
              reason: 'No space. Attempt 1 failed',
              file: '',
              size: 0,
              duration_s: 0,
            },
            {
              id: 'c',
              verbose_name: 'c',
              outcome: 'partial',
              reason: 'Old restore points were not taken out: The disk is full.',
              file: 'a.tar',
              size: 7,
              duration_s: 600,
            },
            {
              id: 'gone',
              verbose_name: 'gone',
              outcome: 'skipped',
              reason: 'it is gone',
              file: '',
              size: 0,
              duration_s: 0,
            },
          ],
        }),
      },
    },
  ]);
});

test('a run that did not happen is told to those who are told of failed ones', async () => {
  now = '2026-03-02T08:00:00Z';
  const run = (status: string, day: string, missed_count = 0) => ({
    ...newRun(TASK, new Date(now)),
    id: `of ${day}`,
    due_time: `2026-03-0${day}T02:00:00.000Z`,
    status,
    reason: 'why',
    missed_count,
    finished: '2026-03-02T08:00:00.000Z',
  });
  await notices.notRun(run('MISSED', '2', 5), undefined, NO_DATABASE);
  expect(raised).toEqual([
    {
      key: 'of 2',
      event: {
        event: 'run_failed',
        data: {
          task: { id: 't', verbose_name: 'nightly' },
          run: '',
          started: '2026-03-02T02:00:00.000Z',
          finished: '2026-03-02T08:00:00.000Z',
          duration_s: 0,
          reason: 'It did not run (5 times): why',
          counts: { total: 0, succeeded: 0, partial: 0, failed: 0, skipped: 0, canceled: 0 },
          vms: [],
        },
      },
    },
  ]);
  expect(render({ ...raised[0]!.event, created: now, controller: 'here' })).toEqual({
    subject: 'Backup "nightly" did not run',
    text: 'It did not run (5 times): why\n\nDue       2026-03-02T02:00:00.000Z\n\nThis is virtkeep at here.\n',
  });
  // of all that are due while one run goes on, one a day is told
  for (const day of ['3', '3', '4']) await notices.notRun(run('SKIPPED', day), 'the one before', NO_DATABASE);
  expect(raised.slice(1).map(({ key }) => key)).toEqual([
    'skipped for the one before 2026-03-03',
    'skipped for the one before 2026-03-03',
    'skipped for the one before 2026-03-04',
  ]);
});

test('of all VMs once a day, at the hour of the zone, and of those that are late only when there are any', async () => {
  now = '2026-03-29T04:59:00Z'; // 06:59 on the day when the clocks are put forward
  await notices.tick();
  // after a start; whoever was told the day before is not told again
  expect(raised.splice(0).map(({ key }) => key)).toEqual(['summary 2026-03-28', 'late 2026-03-28']);
  now = '2026-03-29T05:00:00Z';
  await notices.tick();
  await notices.tick();
  expect(raised.map(({ key }) => key)).toEqual(['summary 2026-03-29', 'late 2026-03-29']);
  expect(raised[0]!.event.data).toMatchObject({ counts: { late: 1, protected: 1 }, date: '2026-03-29' });
  expect(raised[1]!.event.data).toMatchObject({ days: 7, vms: [{ id: 'late', age_days: 2 }] });
  // after a restart under the same keys, so that nobody is told again
  notices = make();
  await notices.tick();
  expect(raised.map(({ key }) => key).slice(2)).toEqual(['summary 2026-03-29', 'late 2026-03-29']);
  vms = [vm('protected')];
  now = '2026-03-30T12:00:00Z';
  await notices.tick();
  expect(raised.map(({ key }) => key).slice(4)).toEqual(['summary 2026-03-30']);
});

test('of a day whose hour was passed over when the next one has begun', async () => {
  notices = make('23:59');
  vms = [vm('protected')];
  const days = [];
  // ticks that take longer than a minute, the change of a year, and a controller that was away all evening
  for (now of [
    '2026-12-30T22:59:00Z',
    '2026-12-31T22:58:59Z',
    '2026-12-31T23:00:05Z',
    '2027-01-02T05:00:00Z',
  ]) {
    await notices.tick();
    days.push(...raised.splice(0).map(({ key }) => key));
  }
  expect(days).toEqual(['summary 2026-12-30', 'summary 2026-12-31', 'summary 2027-01-01']);
});

test('an hour that is put off when people were told tells nothing of the day before, and one of a clock that was ahead nothing less', async () => {
  const days = () => raised.filter(({ event }) => event.event === 'summary').map(({ key }) => key);
  now = '2026-03-01T09:00:00Z';
  await notices.tick();
  hour = '18:00';
  await notices.tick();
  expect(days()).toEqual(['summary 2026-03-01']);
  now = '2026-03-05T20:00:00Z';
  await notices.tick();
  now = '2026-03-02T20:00:00Z';
  await notices.tick();
  expect(days()).toEqual(['summary 2026-03-01', 'summary 2026-03-05', 'summary 2026-03-02']);
});
