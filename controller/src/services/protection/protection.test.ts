import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import BetterSqlite from 'better-sqlite3';
import { Kysely, SqliteDialect } from 'kysely';
import { migrate } from '../../store/migrate.ts';
import type { Database, FileRow, Schema, TaskRow } from '../../store/schema.ts';
import { Inventory } from '../inventory/inventory.ts';
import { entryOf, nodeRow } from '../inventory/test-kit.ts';
import { compareKeys } from '../list-order.ts';
import { type ProtectionFilter, ProtectionService } from './protection.ts';
import { PROTECTION_STATES } from './rules.ts';

const NOW = Date.parse('2026-03-10T08:00:00.000Z');
const DAY_MS = 86_400_000;
const at = (days: number) => new Date(NOW - days * DAY_MS).toISOString();

let sqlite: BetterSqlite.Database;
let db: Database;
let inventory: Inventory;
let told: string[];
/** Every statement since the database was made, with its parameters. */
let statements: { sql: string; parameters: readonly unknown[] }[];

beforeEach(async () => {
  sqlite = new BetterSqlite(':memory:');
  statements = [];
  told = [];
  db = new Kysely<Schema>({
    dialect: new SqliteDialect({ database: sqlite }),
    log: ({ query }) => {
      statements.push(query);
    },
  });
  await migrate(db);
  statements.length = 0;
  inventory = new Inventory(db, () => {});
  for (const id of ['a', 'b', 'c']) known(id);
});
afterEach(() => db.destroy());

function known(id: string, nodeId = 'n1') {
  const stamps = { firstSeen: at(0), modified: at(0) };
  inventory.domains.set(id, entryOf({ id, name: `vm-${id}` }, nodeId, stamps));
}

async function service(now = NOW): Promise<ProtectionService> {
  const made = new ProtectionService({
    db,
    inventory,
    tags: { has: () => true },
    tell: id => told.push(id),
    maxAgeDays: () => 7,
    keepDays: () => 180,
    now: () => now,
  });
  await made.load();
  return made;
}

let files = 0;
async function file(
  domain_id: string,
  newest_point: string | null,
  status = 'ACTIVE',
  newest_whole_point = newest_point,
): Promise<string> {
  files += 1;
  const id = `f${files}`;
  const row: FileRow = {
    id,
    pool_id: 'p',
    path: `/p/${id}`,
    filename: id,
    verbose_name: id,
    description: '',
    size: 1,
    status,
    type: 'tar',
    compressed: 0,
    can_be_incremental: 0,
    protected: 0,
    domain_id,
    domain_name: domain_id,
    created: at(0),
    record_json: '{}',
    newest_point,
    newest_whole_point,
    modified: at(0),
  };
  await db.insertInto('files').values(row).execute();
  return id;
}

function task(id: string, status: string, finished: string, patch: Partial<TaskRow> = {}): TaskRow {
  const error = { code: '50701', detail: 'The disk is full.', msg_key: 'disk_full' };
  return {
    id,
    name: 'domain_backup',
    verbose_name: id,
    status,
    progress: 100,
    created: new Date(Date.parse(finished) - 90_000).toISOString(),
    finished_time: finished,
    error_json: status === 'FAILED' ? JSON.stringify(error) : null,
    is_cancellable: 0,
    is_multitask: 0,
    parent: null,
    node_id: 'n1',
    user_id: 'u',
    username: 'u',
    detail_json: '{}',
    result_json: null,
    cancel_requested: 0,
    locks_released: 0,
    noted: 0,
    leaves_out: 0,
    ...patch,
  };
}
async function store(row: TaskRow, domain: string): Promise<void> {
  await db.insertInto('tasks').values(row).execute();
  await db
    .insertInto('task_entities')
    .values({ task_id: row.id, position: 0, entity_id: domain, entity_class: 'domain' })
    .execute();
}

/** A task has ended, and those who hear of it do. */
async function end(protection: ProtectionService, row: TaskRow, domain: string): Promise<void> {
  await store(row, domain);
  await protection.taskEnded({ row });
}

describe('the newest good restore point', () => {
  test('is that of all good files of the VM, whatever becomes of the others', async () => {
    await file('a', at(3));
    await file('a', at(2), 'UPDATING');
    for (const status of ['FAILED', 'DAMAGED', 'MISSING', 'DELETING', 'CREATING'])
      await file('a', at(1), status);
    await file('a', null);
    await file('b', at(1));
    expect((await service()).verdict('a')).toEqual({ state: 'protected', last_good: at(2), age: 172_800 });
  });

  test('is read anew for the VMs whose files have changed, and told when it is another', async () => {
    const id = await file('a', at(1));
    const protection = await service();
    await protection.filesChanged(new Set(['a', 'b']));
    expect(told).toEqual([]);
    await db.deleteFrom('files').where('id', '=', id).execute();
    await protection.filesChanged(new Set(['a', 'b']));
    expect(told).toEqual(['a']);
    expect(protection.verdict('a')).toEqual({ state: 'never', last_good: null, age: null });
  });

  test('is one with all disks; of one that leaves some out it is told', async () => {
    const id = await file('a', at(1), 'ACTIVE', null);
    await file('b', at(1), 'ACTIVE', at(9));
    const protection = await service();
    expect(protection.whole('a')).toMatchObject({ state: 'never', last_good: null });
    expect(protection.whole('a').reason).toContain(`${at(1)}, leaves out disks`);
    expect(protection.whole('b')).toMatchObject({ state: 'late', last_good: at(9) });
    expect([...protection.measures()].map(({ lastGood }) => lastGood)).toEqual([
      null,
      Date.parse(at(9)),
      null,
    ]);
    await db
      .updateTable('files')
      .set({ newest_whole_point: at(1) })
      .where('id', '=', id)
      .execute();
    await protection.filesChanged(new Set(['a', 'b']));
    expect(told).toEqual(['a']);
    expect(protection.whole('a').reason).toBe(`Its newest good restore point is of ${at(1)}.`);
  });

  test('of a VM that is away is there when it comes back', async () => {
    await file('z', at(1));
    const protection = await service();
    known('z');
    expect(protection.verdict('z').state).toBe('protected');
  });
});

describe('attempts', () => {
  test('that failed since are told until one succeeds; one that was cancelled says nothing', async () => {
    await file('a', at(2));
    const protection = await service();
    await end(protection, task('t1', 'FAILED', at(1)), 'a');
    await end(protection, task('t2', 'CANCELED', at(0.9)), 'a');
    expect(protection.whole('a')).toMatchObject({ state: 'failing' });
    expect(protection.whole('a').reason).toContain('The disk is full.');
    await end(protection, task('t3', 'SUCCESS', at(0.5)), 'a');
    expect(protection.verdict('a').state).toBe('protected');
    expect(told).toEqual(['a', 'a']);
  });

  test('of backups that leave out disks say nothing, whatever becomes of them', async () => {
    await file('a', at(2));
    const protection = await service();
    const partial = { leaves_out: 1 };
    await end(protection, task('t1', 'FAILED', at(1), partial), 'a');
    expect(protection.verdict('a').state).toBe('protected');
    await end(protection, task('t2', 'FAILED', at(0.8)), 'a');
    await end(protection, task('t3', 'SUCCESS', at(0.5), partial), 'a');
    expect(protection.verdict('a').state).toBe('failing');
    expect(protection.attempts.of('a')?.lastSuccess).toBeNull();
    expect((await service()).verdict('a').state).toBe('failing');
  });

  test('are those of backups alone', async () => {
    await file('a', at(2));
    const protection = await service();
    await end(protection, task('t1', 'FAILED', at(1), { name: 'domain_restore' }), 'a');
    expect(protection.verdict('a').state).toBe('protected');
  });

  test('a failure leaves what is known of the last backup', async () => {
    const protection = await service();
    const tell = (phase: string, done: bigint, total: bigint) =>
      protection.attempts.progressed({
        id: 't1',
        kind: 'backup',
        progress: { phase, bytesDone: done, bytesTotal: total, rate: 0n, message: '' },
      });
    tell('copy', 1024n, 4096n);
    tell('merge', 0n, 9999n);
    protection.attempts.wrote('t1', 512);
    await end(protection, task('t1', 'SUCCESS', at(1)), 'a');
    await end(protection, task('t2', 'FAILED', at(0.5)), 'a');
    const again = await service();
    expect(again.attempts.of('a')).toEqual({
      ended: NOW - DAY_MS / 2,
      failed: true,
      error: 'The disk is full.',
      lastSuccess: NOW - DAY_MS,
      durationMs: 90_000,
      bytesRead: 4096,
      bytesWritten: 512,
    });
  });

  test('that ended while nobody noted them are read at the next start, page by page', async () => {
    const first = await service();
    await end(first, task('t0', 'SUCCESS', at(9)), 'b');
    for (let number = 0; number < 1200; number += 1) {
      const when = new Date(NOW - 8 * DAY_MS + Math.floor(number / 3) * 1000).toISOString();
      await store(
        task(`t${number + 1}`, number === 1199 ? 'FAILED' : 'SUCCESS', when),
        ['a', 'b', 'c'][number % 3]!,
      );
    }
    await store(task('t9999', 'FAILED', at(30)), 'a');
    const again = await service();
    expect(again.attempts.of('c')?.failed).toBe(true);
    expect(again.attempts.of('a')).toMatchObject({ failed: false, ended: NOW - 8 * DAY_MS + 399_000 });
  });

  test('that ended before others which were noted are not lost', async () => {
    await file('a', at(2));
    // the controller was killed before anybody heard of it
    await store(task('t1', 'FAILED', at(0.5)), 'a');
    await store(task('t2', 'SUCCESS', at(0.4)), 'b');
    sqlite.exec("UPDATE tasks SET noted = 1 WHERE id = 't2'");
    expect((await service()).verdict('a').state).toBe('failing');
  });

  test('count in the order in which they ended, though the clock was ahead at the end of one', async () => {
    await file('a', at(-0.05));
    const protection = await service();
    await end(protection, task('t1', 'SUCCESS', at(-0.1)), 'a');
    await end(protection, task('t2', 'FAILED', at(0)), 'a');
    expect(protection.verdict('a').state).toBe('failing');
    expect(protection.attempts.of('a')).toMatchObject({ ended: NOW, lastSuccess: NOW });
    await end(protection, task('t3', 'FAILED', at(-0.1)), 'a');
    await end(protection, task('t4', 'SUCCESS', at(0)), 'a');
    expect(protection.verdict('a').state).toBe('protected');
  });

  test('are noted whole or not at all', async () => {
    await file('a', at(2));
    const protection = await service();
    const refuse = (on: string) => `CREATE TRIGGER full BEFORE ${on} BEGIN SELECT RAISE(ABORT, 'full'); END`;
    for (const on of ['INSERT ON backup_attempts', 'UPDATE ON tasks']) {
      sqlite.exec(refuse(on));
      await expect(end(protection, task(on, 'FAILED', at(0.5)), 'a')).rejects.toThrow('full');
      sqlite.exec('DROP TRIGGER full');
      expect(protection.verdict('a').state).toBe('protected');
    }
    await end(protection, task('other', 'SUCCESS', at(0.4)), 'b');
    expect(protection.verdict('a').state).toBe('failing');
    expect(told).toEqual(['a', 'b']);
    expect((await service()).verdict('a').state).toBe('failing');
  });

  test('of a VM that is gone are forgotten with its tasks', async () => {
    const protection = await service();
    for (const id of ['gone', 'a']) await end(protection, task(`t-${id}`, 'FAILED', at(200)), id);
    await end(protection, task('t-new', 'FAILED', at(10)), 'gone-lately');
    const again = await service();
    expect(again.attempts.of('gone')).toBeNull();
    expect(again.attempts.of('a')).not.toBeNull();
    expect(again.attempts.of('gone-lately')).not.toBeNull();
  });
});

test('an exclusion holds while the VM is away, and across restarts', async () => {
  const protection = await service();
  await protection.setExcluded('a', true);
  await protection.setExcluded('a', true);
  expect(told).toEqual(['a']);
  inventory.domains.delete('a');
  const again = await service();
  known('a');
  expect(again.verdict('a').state).toBe('excluded');
  await again.setExcluded('a', false);
  expect((await service()).verdict('a').state).toBe('never');
  expect(() => again.setExcluded('nobody', true)).toThrow();
});

test('scheduled tasks are asked through their source', async () => {
  await file('a', at(1));
  const protection = await service();
  const task1 = { id: 's', verbose_name: 'nightly', latestDue: NOW - DAY_MS / 2, intervalMs: DAY_MS };
  protection.setCoverage({ expectationsOf: id => (id === 'a' ? [task1] : []), version: 0 });
  const { rows, counts } = await protection.list({});
  expect(counts).toEqual({ protected: 0, late: 1, failing: 0, never: 2, excluded: 0 });
  expect(protection.record(rows[0]!)).toMatchObject({
    domain: { id: 'a', verbose_name: 'vm-a' },
    state: 'late',
    tasks: [{ id: 's', verbose_name: 'nightly' }],
  });
});

test('a list asks the database for nothing, and no statement reads a whole table but to load it once', async () => {
  await file('a', at(1));
  await store(task('t', 'SUCCESS', at(1)), 'a');
  const protection = await service();
  await protection.filesChanged(new Set(['a']));
  await protection.setExcluded('a', true);
  await end(protection, task('u', 'FAILED', at(0)), 'a');
  const read = statements.filter(({ sql }) => sql.startsWith('select'));
  const plans = read.flatMap(({ sql, parameters }) =>
    (sqlite.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters) as { detail: string }[]).map(
      ({ detail }) => detail,
    ),
  );
  expect(plans.length).toBeGreaterThan(4);
  expect(plans.filter(plan => plan.startsWith('SCAN') && !plan.includes('COVERING INDEX')).sort()).toEqual([
    'SCAN backup_attempts',
    'SCAN protection_exclusions',
  ]);
  statements.length = 0;
  for (const row of (await protection.list({})).rows) protection.record(row);
  expect(statements).toEqual([]);
});

describe('a page', () => {
  const ORDERS = ['severity', 'domain', 'node', 'age', 'last_good'];
  let clock = NOW;

  /** By all of them put in order anew. */
  async function expected(protection: ProtectionService, filter: ProtectionFilter, field: string) {
    const { rows, counts } = await protection.list(filter);
    const fields = rows.map(row => ({
      ...row,
      age: row.last_good === null ? null : -Date.parse(row.last_good),
    }));
    fields.sort(
      (a, b) =>
        compareKeys(a[field as keyof typeof a], b[field as keyof typeof b]) || compareKeys(a.id, b.id),
    );
    return { ids: fields.map(({ id }) => id), counts };
  }

  test('is that of all of them judged and put in order anew, whatever becomes known and however time passes', async () => {
    const random = seededRandom(17);
    let maxAgeDays = 7;
    for (let number = 0; number < 30; number += 1) known(`vm-${number}`, `n${number % 3}`);
    const protection = new ProtectionService({
      db,
      inventory,
      tags: { has: (id, tag) => tag === undefined || id.endsWith('1') },
      tell: () => {},
      maxAgeDays: () => maxAgeDays,
      keepDays: () => 180,
      now: () => clock,
    });
    await protection.load();
    const ids = () => [...inventory.domains.keys()];
    for (let round = 0; round < 60; round += 1) {
      const id = ids()[random(ids().length)]!;
      await file(id, at(random(20) - 5));
      await protection.filesChanged(new Set([id]));
      if (random(3) === 0) await protection.setExcluded(ids()[random(ids().length)]!, random(2) === 0);
      if (random(4) === 0) inventory.domains.delete(ids()[random(ids().length)]!);
      if (random(4) === 0) known(`new-${round}`);
      clock += random(3) === 0 ? random(3 * DAY_MS) : 0;
      if (random(6) === 0) {
        maxAgeDays = 1 + random(20);
        // lists look once a second
        clock += 1000;
      }
      const filter = {
        state: random(2) === 0 ? PROTECTION_STATES[random(5)] : undefined,
        node: random(4) === 0 ? 'n1' : undefined,
        tag: random(4) === 0 ? 'tag' : undefined,
        name: random(4) === 0 ? '1' : undefined,
      };
      const field = ORDERS[random(ORDERS.length)]!;
      const wanted = await expected(protection, filter, field);
      const found = await protection.page(filter, {
        ordering: { field, descending: false },
        limit: 100,
        offset: 0,
      });
      expect({ ids: found.rows.map(row => row.id), counts: found.counts }).toEqual(wanted);
      expect(found.count).toBe(wanted.ids.length);
      const urgent = (await protection.mostUrgent(5)).rows;
      const all = (await protection.list({})).rows.sort(
        (a, b) => a.severity - b.severity || (a.last_good ?? '').localeCompare(b.last_good ?? ''),
      );
      const urgencyOf = (rows: typeof urgent) => rows.map(row => [row.severity, row.last_good]);
      expect(urgencyOf(urgent)).toEqual(urgencyOf(all.slice(0, 5)));
    }
  });
});

test('a restore point in a pool that no node has any more protects no VM, until one has the pool again', async () => {
  const pool = Pool.fromPartial({ id: 'p', name: 'pool' });
  await inventory.putNode(nodeRow('n1'));
  await inventory.poolChanged('n1', pool);
  await file('a', at(1));
  const protection = await service();
  inventory.setPoolWatcher(() => protection.filesChanged(new Set(['a'])));
  expect(protection.verdict('a').state).toBe('protected');
  await inventory.apply('n1', { event: { $case: 'poolRemoved', value: 'p' }, revision: 0n });
  expect(protection.verdict('a').state).toBe('never');
  expect((await service()).verdict('a').state).toBe('never');
  await inventory.poolChanged('n1', pool);
  expect(protection.verdict('a').state).toBe('protected');
});

describe('a look', () => {
  const TASK = { id: 's', verbose_name: 'nightly', latestDue: NOW - DAY_MS / 2, intervalMs: DAY_MS };
  const COUNT = 2000;
  const NAMES = { ordering: { field: 'domain', descending: false }, limit: 1, offset: 0 };
  let clock: number;
  let maxAgeDays: number;
  /** How often it was asked what is expected of a VM. */
  let asked: number;
  let source: { expectationsOf: (id: string) => (typeof TASK)[]; version: unknown };
  let protection: ProtectionService;
  /** Ids of those whose state is another one. */
  let heard: string[];

  beforeEach(async () => {
    [clock, maxAgeDays, heard] = [NOW, 7, []];
    await file('a', at(6));
    await file('b', at(1));
    for (let number = 0; number < COUNT - 3; number += 1) known(`${number}`);
    protection = new ProtectionService({
      db,
      inventory,
      tags: { has: () => true },
      tell: () => {},
      maxAgeDays: () => maxAgeDays,
      keepDays: () => 180,
      now: () => clock,
    });
    await protection.load();
    const none: (typeof TASK)[] = [];
    const expectationsOf = () => {
      asked += 1;
      return none;
    };
    source = { expectationsOf, version: 0 };
    protection.setCoverage(source);
    protection.setStateListener(id => heard.push(id));
    await protection.look();
    asked = 0;
  });

  /** How often it was asked since the last time, and whose state is another one. */
  async function looked(): Promise<[number, string[]]> {
    [asked, heard] = [0, []];
    await protection.look();
    return [asked, heard];
  }

  test('judges nobody again as long as nothing has changed', async () => {
    clock += DAY_MS / 2;
    expect(await looked()).toEqual([0, []]);
    await protection.page({ state: 'protected' }, NAMES);
    expect(asked).toBeLessThan(COUNT * 1.1);
    asked = 0;
    await protection.page({ state: 'protected' }, NAMES);
    // only the one that is told
    expect(asked).toBe(1);
    await protection.setExcluded('5', true);
    expect(await looked()).toEqual([2, []]);
  });

  test('judges all when the time of one has come', async () => {
    clock = NOW + DAY_MS + 1;
    // lists are told at the look
    expect(protection.state('a')).toBe('protected');
    expect(await looked()).toEqual([COUNT + 1, ['a']]);
    expect(await looked()).toEqual([0, []]);
    expect((await protection.page({}, NAMES)).counts).toMatchObject({ protected: 1, late: 1 });
    clock = NOW;
    expect((await looked())[1]).toEqual(['a']);
    expect(protection.state('a')).toBe('protected');
    expect(await looked()).toEqual([0, []]);
  });

  test('judges all when other days are allowed, or scheduled tasks promise something else', async () => {
    maxAgeDays = 3;
    expect((await looked())[1]).toEqual(['a']);
    expect(await looked()).toEqual([0, []]);
    source.expectationsOf = id => (id === 'b' ? [TASK] : []);
    expect((await looked())[1]).toEqual([]);
    source.version = 1;
    expect((await looked())[1]).toEqual(['b']);
    expect(await looked()).toEqual([0, []]);
    protection.setCoverage({ ...source, expectationsOf: () => [] });
    expect((await looked())[1]).toEqual(['b']);
  });

  test('judges all once for those who look at once, and again when something has changed meanwhile', async () => {
    source.version = 1;
    await Promise.all([1, 2, 3].map(() => protection.look()));
    expect(asked).toBe(COUNT);
    const { expectationsOf } = source;
    let second: Promise<void> | undefined;
    source.version = 2;
    source.expectationsOf = id => {
      if (source.version === 2 && id === '500') {
        source.version = 3;
        second = protection.look();
      }
      return expectationsOf(id);
    };
    await protection.look();
    await second;
    expect(await looked()).toEqual([0, []]);
  });

  test('counts also those that come while a page is made', async () => {
    const page = protection.page({}, NAMES);
    for (let number = 0; number < 30; number += 1) {
      known(`new-${number}`);
      await Promise.resolve();
    }
    const { count, counts } = await page;
    expect(count).toBeGreaterThan(COUNT);
    expect(Object.values(counts).reduce((sum, one) => sum + one)).toBeGreaterThanOrEqual(count);
  });

  test('lets VMs come and go while it judges all', async () => {
    source.version = 1;
    const { expectationsOf } = source;
    source.expectationsOf = id => {
      if (id === '500') {
        for (let number = 600; number < 700; number += 1) inventory.domains.delete(`${number}`);
        known('new');
      }
      return expectationsOf(id);
    };
    const { count, counts } = await protection.page({}, NAMES);
    expect(count).toBe(COUNT - 99);
    expect(counts).toEqual({ protected: 2, late: 0, failing: 0, never: COUNT - 101, excluded: 0 });
    const found = await protection.page({ name: 'VM-' }, NAMES);
    expect([found.count, found.counts]).toEqual([count, counts]);
    expect(await protection.records()).toHaveLength(count);
  });

  test('keeps no verdict of a VM that goes while it is judged', async () => {
    source.version = 1;
    const { expectationsOf } = source;
    source.expectationsOf = id => {
      if (id === '500') inventory.domains.delete(id);
      return expectationsOf(id);
    };
    const { count, counts } = await protection.page({}, NAMES);
    expect(count).toBe(COUNT - 1);
    expect(counts).toEqual({ protected: 2, late: 0, failing: 0, never: COUNT - 3, excluded: 0 });
  });
});
