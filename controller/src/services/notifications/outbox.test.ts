import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { MAX_ATTEMPTS } from './attempts.ts';
import { Outbox } from './outbox.ts';

const DAY_MS = 86_400_000;
const NOW = Date.parse('2026-03-01T02:00:00Z');
const at = (ms: number) => new Date(NOW + ms);

let db: Database;
let outbox: Outbox;

beforeEach(async () => {
  db = await openTestDatabase();
  outbox = new Outbox(db);
  for (const id of ['on', 'off'])
    await db
      .insertInto('notification_targets')
      .values({
        id,
        verbose_name: id,
        kind: 'webhook',
        enabled: Number(id === 'on'),
        events_json: '[]',
        templates_json: '{}',
        settings_json: '{}',
        secrets_sealed: '',
        created: '',
        modified: '',
      })
      .execute();
});

afterEach(() => db.destroy());

const put = (key: string, now: Date, target = 'on') =>
  outbox.put({ event: 'test', data: { user: 'u' } } as never, [target], { key, now }, db);

const failed = async (now: Date) => {
  const [id] = await outbox.due('on', now);
  await outbox.failed((await outbox.pending(id!))!, now, { reason: 'no network yet' });
};

test('what a clock that was a year ahead has put off, or raised, is due when it is put right', async () => {
  await put('put off', at(365 * DAY_MS));
  await failed(at(365 * DAY_MS));
  await put('raised', at(365 * DAY_MS));
  expect(await outbox.due('on', at(0))).toHaveLength(2);
  expect(await outbox.dueTargets(at(0))).toEqual(['on']);
});

test('what was put off is not due before', async () => {
  await put('a', at(0));
  await failed(at(0));
  expect(await outbox.due('on', at(59_999))).toEqual([]);
  expect(await outbox.due('on', at(60_000))).toHaveLength(1);
});

test('a clock that is a year ahead forgets nothing that is still to be sent', async () => {
  await put('waits', at(0));
  await put('was sent', at(0));
  const [, sent] = await outbox.due('on', at(0));
  await outbox.sent((await outbox.pending(sent!))!, at(0), '');
  await put('is not to be sent', at(0), 'off');
  expect(await outbox.prune(at(365 * DAY_MS))).toBe(2);
  expect(await outbox.due('on', at(0))).toHaveLength(1);
});

test('a queue of any length to a target that cannot be reached is given up after three days', async () => {
  for (let number = 0; number < 50; number += 1) await put(`${number}`, at(0));
  let givenUp = 0;
  let attempts = 0;
  for (let now = 0; now < 3 * DAY_MS + 3_600_000; now += 60_000) {
    if ((await outbox.due('on', at(now))).length === 0) continue;
    await failed(at(now));
    givenUp += await outbox.failedToo('on', at(now), 'no network yet');
    attempts += 1;
  }
  expect({ attempts, givenUp }).toEqual({ attempts: MAX_ATTEMPTS, givenUp: 49 });
  expect(await outbox.deadLetters()).toBe(50);
});
