import { describe, expect, test } from '@jest/globals';
import type { FileRow } from '../../store/schema.ts';
import { BackupFiles } from '../backup-files/backup-files.ts';
import { doomedOf, KeptFiles } from './kept-files.ts';
import { DAY, DUE, definition, fileRow, NOW } from './sample-files.ts';
import { ScheduleWorld } from './test-kit.ts';

async function kept(
  rows: FileRow[],
  made: string[],
  {
    free_space_cleanup = false,
    gone = [] as string[],
    silent = [] as string[],
    orphaned = [] as string[],
  } = {},
) {
  const world = await ScheduleWorld.open('2026-01-01T00:00:00Z');
  const task = await world.add({ start_date: DUE, free_space_cleanup });
  for (const archiveId of made)
    await world.store.recordOrigin({ archiveId, taskId: task.id, domainId: 'vm', now: new Date(NOW) });
  for (const row of rows) await world.disk.insertInto('files').values(row).execute();
  const backupFiles = new BackupFiles(
    world.disk,
    () => {},
    () => undefined,
  );
  const inventory = { domains: new Map(), isOrphaned: (id: string) => orphaned.includes(id) } as never;
  const keptFiles = new KeptFiles({
    store: world.store,
    backupFiles,
    inventory,
    extensions: {} as never,
    presence: async files =>
      gone.includes('?')
        ? undefined
        : new Map(
            files.filter(({ id }) => !silent.includes(id)).map(({ id }) => [id, !gone.includes(id)] as const),
          ),
    isAbout: () => true,
    draining: new AbortController().signal,
  });
  return { world, task, keptFiles };
}

describe('a copy that somebody made of a backup stays', () => {
  test('also when retention has deleted the original', async () => {
    // X was deleted by the task's rule yesterday; the user's copy of it, in an archive pool, is all that is left of that day
    const { world, task, keptFiles } = await kept(
      [fileRow('copy-of-x', 'x', 40, { pool_id: 'archive-pool' }), fileRow('new', 'new', 0)],
      ['x', 'new'],
    );
    const verdicts = await keptFiles.verdicts(task.id, definition({ limit_days: 30 }), 'vm', { now: NOW });
    await world.close();
    expect(doomedOf(verdicts).map(({ file }) => file.id)).toEqual([]);
  });

  test('also when space is wanted in its pool, and the original is in another', async () => {
    const { world, keptFiles } = await kept(
      [
        fileRow('x', 'x', 40),
        fileRow('y', 'y', 0),
        fileRow('copy-of-x', 'x', 40, { pool_id: 'p2' }),
        fileRow('copy-of-y', 'y', 0, { pool_id: 'p2' }),
      ],
      ['x', 'y'],
      { free_space_cleanup: true },
    );
    const doomed = await keptFiles.doomedForSpace('p2', 50, NOW);
    await world.close();
    expect(doomed?.map(({ file }) => file.id)).toEqual([]);
  });
});

describe('a file that somebody took away since the last scan is not counted on', () => {
  test('by the rules: the one that would go for it stays', async () => {
    const ids = ['a', 'b', 'c'];
    const rows = ids.map((id, age) => fileRow(id, id, age));
    const rules = definition({ keep_count: 2 });
    const doomed = async (gone: string[]) => {
      const { world, task, keptFiles } = await kept(rows, ids, { gone });
      const found = await keptFiles.doomed(task.id, rules, 'vm', { now: NOW });
      await world.close();
      return found?.map(({ file }) => file.id);
    };
    expect(await doomed([])).toEqual(['c']);
    // a node does not say
    expect(await doomed(['?'])).toBeUndefined();
    expect(await doomed(['a'])).toEqual([]);
  });

  test('also when no node that sees it was there to be asked, the first time', async () => {
    const ids = ['a', 'b', 'c'];
    const silent = ['a'];
    const rows = ids.map((id, age) => fileRow(id, id, age));
    const { world, task, keptFiles } = await kept(rows, ids, { gone: ['a'], silent });
    const doomed = async () => {
      const found = await keptFiles.doomed(task.id, definition({ keep_count: 2 }), 'vm', { now: NOW });
      return found?.map(({ file }) => file.id);
    };
    expect(await doomed()).toEqual(['c']);
    silent.pop();
    expect(await doomed()).toEqual([]);
    await world.close();
  });

  test('for space: the last one that is there stays', async () => {
    const rows = [fileRow('old', 'old', 9), fileRow('older', 'older', 20), fileRow('taken', 'taken', 0)];
    const doomed = async (gone: string[]) => {
      const { world, keptFiles } = await kept(rows, ['old', 'older', 'taken'], {
        free_space_cleanup: true,
        gone,
      });
      const found = await keptFiles.doomedForSpace('p1', 1, NOW);
      await world.close();
      return found?.map(({ file }) => file.id);
    };
    expect(await doomed([])).toEqual(['older']);
    expect(await doomed(['taken', 'old'])).toEqual([]);
  });
});

describe('for space, the newest good backup of a VM stays', () => {
  const doomed = async (rows: FileRow[], missing: number) => {
    const { world, keptFiles } = await kept(
      rows,
      rows.map(({ id }) => id),
      { free_space_cleanup: true },
    );
    const found = await keptFiles.doomedForSpace('p1', missing, NOW);
    await world.close();
    return found?.map(({ file }) => file.id);
  };

  test('though one has a time that is yet to come: a clock was ahead', async () => {
    const rows = [fileRow('ahead', 'ahead', -90), fileRow('new', 'new', 1), fileRow('old', 'old', 60)];
    expect(await doomed(rows, 100)).toEqual(['old']);
    expect(await doomed(rows, 150)).toEqual([]);
  });

  test('though another one got a restore point by hand that leaves out disks', async () => {
    const partial = fileRow('partial', 'partial', 1, { states: 3 });
    const details = JSON.parse(partial.record_json);
    details.states.at(-1).excluded_disks = ['vdb'];
    const rows = [
      { ...partial, record_json: JSON.stringify(details) },
      fileRow('whole', 'whole', 1.5),
      fileRow('old', 'old', 60),
    ];
    expect(await doomed(rows, 100)).toEqual(['old']);
    expect(await doomed(rows, 150)).toEqual([]);
  });
});

test('a backup in a pool that no node has any more takes no place of one that is there, and no rule deletes it', async () => {
  const ids = ['new', 'lost', 'old', 'older'];
  const rows = ids.map((id, age) => fileRow(id, id, age, { pool_id: id === 'lost' ? 'p2' : 'p1' }));
  const { world, task, keptFiles } = await kept(rows, ids, { orphaned: ['p2'] });
  const verdicts = await keptFiles.verdicts(task.id, definition({ keep_count: 2 }), 'vm', { now: NOW });
  await world.close();
  expect(verdicts.map(({ file, action }) => [file.id, action])).toEqual([
    ['new', 'keep'],
    ['old', 'keep'],
    ['older', 'delete'],
  ]);
});

describe('what is going to be extended is not deleted for space, though another task has a newer backup of its VM', () => {
  const doomed = async (increment: boolean, extended: string | null, isAbout = true) => {
    const world = await ScheduleWorld.open('2026-01-01T00:00:00Z');
    const rows = ['newest', 'extended', 'old'].map((id, age) => fileRow(id, id, age));
    const input = { start_date: DUE, free_space_cleanup: true, all: false, entities: ['a'] };
    const other = await world.add(input);
    const { id: taskId } = await world.add({ ...input, options: { increment } });
    const origin = { domainId: 'vm', now: new Date(NOW) };
    for (const { id: archiveId } of rows)
      await world.store.recordOrigin({
        ...origin,
        archiveId,
        taskId: archiveId === 'newest' ? other.id : taskId,
      });
    await world.tick(DUE);
    await world.disk.updateTable('scheduled_parts').set({ extend_id: extended, entity_id: 'vm' }).execute();
    const keptFiles = new KeptFiles({
      store: world.store,
      backupFiles: { filesOf: async () => rows, readNow: async () => new Set() },
      inventory: {
        domains: new Map([['vm', { domain: { id: 'vm' }, nodeId: 'n1' }]]),
        isOrphaned: () => false,
      },
      extensions: {
        next: async (_vm: object, _node: string, { isWanted = (_: FileRow) => true } = {}) =>
          rows.find(isWanted),
      },
      presence: async () => new Map(),
      isAbout: () => isAbout,
      draining: new AbortController().signal,
    } as never);
    const found = await keptFiles.doomedForSpace('p1', 200, NOW);
    await world.close();
    return found?.map(({ file }) => file.id);
  };

  test('by the next increment of the task that made it', async () => {
    expect(await doomed(false, null)).toEqual(['old', 'extended']);
    expect(await doomed(true, null)).toEqual([]);
  });

  test('but by none where the task is about the VM no more', async () => {
    expect(await doomed(true, null, false)).toEqual(['old', 'extended']);
  });

  test('by a part that has begun', async () => {
    expect(await doomed(false, 'extended')).toEqual([]);
  });
});

test('the backup that the run has just made is not what its retention deletes: the clock of its node was put back', async () => {
  const { world, task, keptFiles } = await kept(
    [fileRow('just-made', 'just-made', 2), fileRow('yesterday', 'yesterday', 1)],
    ['just-made', 'yesterday'],
  );
  const verdicts = await keptFiles.verdicts(task.id, definition({ keep_count: 1 }), 'vm', {
    now: NOW,
    justMade: 'just-made',
  });
  await world.close();
  expect(doomedOf(verdicts).map(({ file }) => file.id)).not.toContain('just-made');
});

test.each([{ keep_count: 1 }, { keep: { daily: 7 } }])(
  'the backup that the run has just made is the newest, also when one of a clock that was ahead lies in the future (%j)',
  async rules => {
    const { world, task, keptFiles } = await kept(
      [fileRow('b-just-made', 'b-just-made', 0), fileRow('a-ahead', 'a-ahead', -2)],
      ['b-just-made', 'a-ahead'],
    );
    const verdicts = await keptFiles.verdicts(task.id, definition(rules), 'vm', {
      now: NOW,
      justMade: 'b-just-made',
    });
    await world.close();
    expect(verdicts.map(({ file, reason }) => [file.id, reason])[0]).toEqual(['b-just-made', 'newest_good']);
  },
);

test('the backup that the run has just made takes the place of the one before, also when one of a clock that was ahead lies in the future', async () => {
  const ids = ['just-made', 'ahead', 'a-little-ahead', 'yesterday'];
  const ages = [0, -90, -0.5, 1];
  const { world, task, keptFiles } = await kept(
    ids.map((id, index) => fileRow(id, id, ages[index]!)),
    ids,
  );
  const moment = { now: NOW, justMade: 'just-made' };
  const verdicts = await keptFiles.verdicts(task.id, definition({ keep_count: 1 }), 'vm', moment);
  await world.close();
  expect(verdicts.map(({ file, action }) => [file.id, action])).toEqual([
    ['just-made', 'keep'],
    ['ahead', 'delete'],
    ['a-little-ahead', 'delete'],
    ['yesterday', 'delete'],
  ]);
});

test('when the backup that the run has made is found damaged, the newest good one before stays, whatever a clock that was ahead has written', async () => {
  const { world, task, keptFiles } = await kept(
    [
      fileRow('damaged', 'damaged', 0, { status: 'DAMAGED' }),
      fileRow('ahead', 'ahead', -90),
      fileRow('yesterday', 'yesterday', 1),
      fileRow('old', 'old', 2),
    ],
    ['damaged', 'ahead', 'yesterday', 'old'],
  );
  const verdicts = await keptFiles.verdicts(task.id, definition({ keep_count: 1 }), 'vm', {
    now: NOW,
    justMade: 'damaged',
  });
  await world.close();
  expect(doomedOf(verdicts).map(({ file }) => file.id)).toEqual(['old']);
});

test('a clock that is for a moment a year ahead costs no backups', async () => {
  const ids = Array.from({ length: 30 }, (_, age) => `f${age}`);
  const { world, task, keptFiles } = await kept(
    ids.map((id, age) => fileRow(id, id, age)),
    ids,
  );
  const verdicts = await keptFiles.verdicts(task.id, definition({ limit_days: 30 }), 'vm', {
    now: NOW + 365 * DAY,
  });
  await world.close();
  expect(doomedOf(verdicts)).toEqual([]);
});

test('a damaged backup that is being rewritten takes no place of a good one', async () => {
  const damaged = fileRow('damaged', 'damaged', 1, { status: 'UPDATING' });
  damaged.record_json = JSON.stringify({ ...JSON.parse(damaged.record_json), damage: 'disk.1: wrong hash' });
  const { world, task, keptFiles } = await kept(
    [fileRow('new', 'new', 0), damaged, fileRow('good', 'good', 2)],
    ['new', 'damaged', 'good'],
  );
  const verdicts = await keptFiles.verdicts(task.id, definition({ keep_count: 2 }), 'vm', { now: NOW });
  await world.close();
  expect(doomedOf(verdicts).map(({ file }) => file.id)).toEqual([]);
});

describe('a plan for the moment after the next good backup', () => {
  const doomedWith = async (coming: { extends: string | null }) => {
    const { world, task, keptFiles } = await kept(
      [fileRow('new', 'new', 1), fileRow('old', 'old', 2), fileRow('older', 'older', 3)],
      ['new', 'old', 'older'],
    );
    const rules = definition({ keep_count: 2 });
    const verdicts = await keptFiles.verdicts(task.id, rules, 'vm', { now: NOW + DAY, coming });
    await world.close();
    expect(verdicts.map(({ file }) => file.id)).toHaveLength(3);
    return doomedOf(verdicts).map(({ file }) => file.id);
  };

  test('counts it when it is a file of its own', async () => {
    expect(await doomedWith({ extends: null })).toEqual(['old', 'older']);
  });

  test('counts the file that it extends as the newest', async () => {
    expect(await doomedWith({ extends: 'new' })).toEqual(['older']);
    expect(await doomedWith({ extends: 'older' })).toEqual(['old']);
  });
});
