import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { clockStopped } from '../../auth/stopped-clock.ts';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { type AuditEntry, AuditService, requestJson } from './audit.ts';
import { RepeatedRefusals } from './repeated-refusals.ts';

let db: Database;
let audit: AuditService;

beforeEach(async () => {
  db = await openTestDatabase();
  audit = new AuditService(db, { audit_records: 5, audit_days: 1 });
});
afterEach(() => db.destroy());

const entry = (part: Partial<AuditEntry> = {}): AuditEntry => ({
  userId: 'u',
  username: 'u',
  address: '10.0.0.1',
  method: 'POST',
  path: '/api/users/',
  action: 'POST /api/users/',
  entityId: null,
  status: 403,
  errorKey: 'permission_denied',
  taskId: null,
  requestId: 'r',
  body: null,
  ...part,
});

const all = async () =>
  (await audit.list({ descending: false, limit: 100, offset: 0 })).records.map(({ count, status }) => [
    status,
    count,
  ]);

test('the same refusal is one record with a count, what was done is always a record', async () => {
  for (let time = 0; time < 100; time += 1) await audit.record(entry({ path: `/api/users/${time}/` }));
  await audit.record(entry({ address: '10.0.0.2' }));
  await audit.record(entry({ status: 200, errorKey: null }));
  await audit.record(entry({ status: 200, errorKey: null }));
  expect(await all()).toEqual([
    [403, 100],
    [403, 1],
    [200, 1],
    [200, 1],
  ]);
});

const guess = (name: number, address = '10.0.0.1', part: Partial<AuditEntry> = {}) =>
  audit.record(
    entry({ userId: null, username: '(unknown)', subject: `name ${name}`, status: 401, address, ...part }),
  );

test('whoever guesses at ever other names fills the audit from no place, and from all places together', async () => {
  audit = many();
  for (let name = 0; name < 200; name += 1) await guess(name);
  expect((await all()).length).toBeLessThan(30);
  expect((await all()).reduce((sum, [, count]) => sum + count!, 0)).toBe(200);
  for (let name = 0; name < 1000; name += 1) await guess(name, `10.0.${name % 200}.1`);
  expect((await audit.list({ descending: false, limit: 1000, offset: 0 })).count).toBeLessThan(250);
});

test(
  'of many guesses from one place nothing is written at once that would tell which names there are',
  clockStopped(async () => {
    audit = many();
    for (let name = 0; name < 21; name += 1) await guess(name);
    await guess(30, '10.0.0.1', { userId: 'u', username: 'u' });
    await guess(31, '10.0.0.1', { status: 429, userId: 'u', username: 'u', entityId: 'u' });
    await guess(32, '10.0.0.1', { status: 429 });
    const written = () => db.selectFrom('audit').selectAll().orderBy('sequence').execute();
    expect((await written()).slice(20).map(row => [row.username, row.entity_id])).toEqual([
      ['(several)', null],
      ['(several)', null],
    ]);
    await audit.flush();
    expect((await written()).slice(20).map(row => [row.username, row.status, row.count])).toEqual([
      ['(several)', 401, 2],
      ['u', 401, 1],
      ['u', 429, 1],
      ['(several)', 429, 2],
    ]);
  }),
);

test('what is being written when the controller ends is waited for', async () => {
  const began = Promise.withResolvers<void>();
  const written: string[] = [];
  const write = async (name: string) => {
    await began.promise;
    written.push(name);
    if (name === 'other') throw new Error('disk full');
  };
  const all = ['one', 'other'].map(name => audit.during(write(name)));
  const settled = audit.settled().then(() => written.length);
  began.resolve();
  await expect(Promise.all(all)).rejects.toThrow('disk full');
  expect(await settled).toBe(2);
});

const many = () => new AuditService(db, { audit_records: 1_000_000, audit_days: 730 });

/** What stands of a user's refused logins: where from, how often. */
const toldOf = async (user: string) =>
  (await audit.list({ user, descending: false, limit: 100, offset: 0 })).records.map(
    ({ address, status, count, entity }) => [address, status, count, entity],
  );
const ADMIN = { userId: 'a', username: 'admin', entityId: 'a', subject: 'admin' };

test(
  'at whom one guesses is told, whatever is done first to hide it',
  clockStopped(async () => {
    audit = many();
    for (let name = 0; name < 30; name += 1) await guess(name);
    for (let time = 0; time < 5; time += 1) await guess(0, '10.0.0.1', ADMIN);
    expect(await toldOf('admin')).toEqual([['(several)', 401, 5, 'a']]);
    for (let place = 0; place < 100; place += 1) await guess(place, `2001:db8:0:${place}::1`);
    for (let time = 0; time < 7; time += 1) await guess(0, '10.9.0.1', ADMIN);
    await guess(0, '10.9.0.1', { ...ADMIN, status: 429 });
    expect(await toldOf('admin')).toEqual([
      ['(several)', 401, 12, 'a'],
      ['(several)', 429, 1, 'a'],
    ]);
    await guess(0, '10.9.0.2', ADMIN);
    expect((await toldOf('admin'))[0]).toEqual(['(several)', 401, 13, 'a']);
  }),
);

test('a day of guesses from everywhere pushes nothing out of the audit that is to be kept for years', async () => {
  jest.useFakeTimers({
    now: Date.UTC(2026, 0, 1),
    doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask'],
  });
  try {
    audit = many();
    for (let window = 0; window < 144; window += 1) {
      for (let name = 0; name < 150; name += 1) await guess(name, `10.0.${name}.1`);
      await guess(0, '10.1.1.1', ADMIN);
      jest.setSystemTime(Date.now() + 10 * 60 * 1000 + 1);
    }
    const { count } = await audit.list({ descending: false, limit: 1, offset: 0 });
    expect(count * 730).toBeLessThan(260_000);
    expect((await toldOf('admin')).reduce((sum, [, , times]) => sum + (times as number), 0)).toBe(144);
    const before = count;
    jest.setSystemTime(Date.now() + 86_400_000);
    await guess(1);
    expect((await audit.list({ descending: false, limit: 1, offset: 0 })).count).toBe(before + 1);
  } finally {
    jest.useRealTimers();
  }
});

test('is bounded in number: the oldest go', async () => {
  for (let time = 0; time < 8; time += 1) await audit.record(entry({ status: 200 + time }));
  expect(await audit.cut()).toBe(3);
  expect((await all()).map(([status]) => status)).toEqual([203, 204, 205, 206, 207]);
  expect(await audit.cut()).toBe(0);
});

test('is bounded in bytes: no record is longer than it may be, whatever is sent', async () => {
  const long = (text: string) => text.repeat(200_000);
  const bodies = [
    { text: long('x') },
    { text: long('"') },
    { text: long('\\') },
    { text: long('\u0000') },
    { text: long('\u{1f600}') },
    { text: long('\ud800') },
    { [long('ключ')]: 1 },
    { text: '\u20ac'.repeat(8000) },
    Array.from({ length: 100_000 }, () => ({})),
    long('x'),
  ];
  for (const body of bodies)
    await audit.record(
      entry({
        ...{ status: 200, errorKey: null, body, username: long('u'), address: long('a') },
        ...{ path: long('/ü'), action: long('POST '), entityId: long('e'), requestId: long('r') },
      }),
    );
  for (const row of await db.selectFrom('audit').selectAll().execute()) {
    expect(Buffer.byteLength(Object.values(row).join(''))).toBeLessThan(12 * 1024);
    expect(JSON.parse(row.request_json)).toMatch(/… \(cut: \d+ characters\)$/);
  }
  expect((await all()).length).toBe(bodies.length);
});

test('after a while a refusal is a record of its own again, and no count is lost', () => {
  const refusals = new RepeatedRefusals();
  const at = (minutes: number) => new Date(Date.UTC(2026, 0, 1, 0, minutes));
  expect([refusals.meet('a', '1', at(0)), refusals.meet('a', '2', at(1))]).toEqual([false, true]);
  expect(refusals.meet('a', '3', at(11))).toBe(false);
  expect(refusals.takeGrown()).toMatchObject([{ id: '1', count: 2 }]);
  expect(refusals.takeGrown()).toEqual([]);
});

test('what is known of a request is kept where what is not known is too long', () => {
  const body = { filler: 'x'.repeat(20_000), vdisk: 'the disk' };
  expect(requestJson(body, ['vdisk'])).toContain('the disk');
  expect(requestJson(body, ['vdisk']).length).toBeLessThan(10_000);
});

test('records are found by when they were asked for or repeated, and by what came of them', async () => {
  audit = many();
  await audit.record(entry({ status: 200, errorKey: null }));
  await audit.record(entry());
  const counted = async (filter: object) =>
    (await audit.list({ descending: false, limit: 100, offset: 0, ...filter })).count;
  const [hourAgo, hence] = [new Date(Date.now() - 3_600_000), new Date(Date.now() + 3_600_000)];
  expect([await counted({ outcome: 'done' }), await counted({ outcome: 'refused' })]).toEqual([1, 1]);
  expect([await counted({ since: hourAgo }), await counted({ since: hence })]).toEqual([2, 0]);
  expect([await counted({ until: hourAgo }), await counted({ until: hence, outcome: 'done' })]).toEqual([
    0, 1,
  ]);
});
