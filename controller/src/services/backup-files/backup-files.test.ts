import { setImmediate, setTimeout } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId, uuidV5 } from '@virtkeep/shared/ids';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { BackupFiles } from './backup-files.ts';
import { IncrementalFiles } from './extendable-files.ts';
import { detailsOf } from './record.ts';

const FILE = BackupFile.fromPartial({
  id: 'f',
  poolId: 'p',
  path: '/p/backups/a.tar',
  filename: 'a.tar',
  size: 10n,
  type: 'tar',
  created: new Date('2026-01-02T03:04:05.000Z'),
});
const WORK = { operation: 'o', description: null, protected: null };
const VERIFIED = { ok: true, problems: [], verifiedAt: '', unprovenMembers: 0, restorableStates: null };
/** More moments than any change of a record has. */
const MOMENTS = 60;
const PAGE = { ordering: { field: 'created', descending: true }, limit: 10, offset: 0 } as const;
let db: Database;
let backupFiles: BackupFiles;

beforeEach(async () => {
  db = await openTestDatabase();
  backupFiles = new BackupFiles(
    db,
    () => {},
    () => undefined,
  );
  await backupFiles.seen(FILE, everywhere);
});
afterEach(() => db.destroy());

const everywhere = () => true;
const nowhere = () => false;

/** A scan that found this; `meanwhile` happens between its beginning and its end. */
async function scan(
  pool: string,
  files: BackupFile[],
  {
    sees = everywhere,
    meanwhile = async () => {},
  }: { sees?: () => boolean; meanwhile?: () => Promise<unknown> } = {},
): Promise<void> {
  const operation = newId();
  backupFiles.scanBegins(operation, pool);
  await meanwhile();
  await backupFiles.scanned(pool, { files, isWhole: true }, operation, sees);
}

/** Does each of two at each moment of the other, and looks at what comes of both. */
async function atEachMoment(
  one: () => Promise<unknown>,
  other: () => Promise<unknown>,
  look: () => Promise<void>,
): Promise<void> {
  for (const [first, second] of [
    [one, other],
    [other, one],
  ] as const)
    for (let moment = 0; moment < MOMENTS; moment += 1) {
      const begun = first();
      for (let turn = 0; turn < moment; turn += 1) await Promise.resolve();
      await Promise.all([begun, second()]);
      await look();
    }
}

describe('changes of a file at the same time', () => {
  const begin = () => backupFiles.begin('f', 'UPDATING', WORK);
  const looks = {
    'a scan sees it': () => scan('p', [FILE]),
    'a scan does not see it': () => scan('p', []),
    'its configuration was read': () => backupFiles.seen(FILE, everywhere),
    'a verification ends': () => backupFiles.verified('f', VERIFIED),
    'it gets a description': () => backupFiles.update('f', { description: 'mine' }),
  };

  test.each(Object.entries(looks))(
    'an operation that begins while %s has it in work',
    async (_name, look) => {
      await atEachMoment(look, begin, async () => {
        const row = await backupFiles.get('f');
        expect(row.status).toBe('UPDATING');
        expect(detailsOf(row).work).toEqual(WORK);
        await backupFiles.operationFailed('f', 'o');
      });
    },
  );

  test('what the user says of it while a scan sees it stays', async () => {
    let words = 0;
    const describeIt = () => backupFiles.update('f', { description: `text ${words}`, protected: words % 2 });
    await atEachMoment(
      () => backupFiles.seen({ ...FILE, size: BigInt(words) }, everywhere),
      describeIt,
      async () => {
        expect(await backupFiles.get('f')).toMatchObject({
          description: `text ${words}`,
          protected: words % 2,
        });
        words += 1;
      },
    );
  });

  test('of two operations that begin one is refused', async () => {
    await atEachMoment(
      () => begin().catch(() => {}),
      () => backupFiles.begin('f', 'DELETING', { ...WORK, operation: 'other' }).catch(() => {}),
      async () => {
        const row = await backupFiles.get('f');
        const { operation } = detailsOf(row).work!;
        expect(operation).toBe({ UPDATING: 'o', DELETING: 'other' }[row.status]);
        await backupFiles.operationFailed('f', operation);
      },
    );
  });
});

test('a verification that ends after an operation began leaves it in work, and what it found is kept', async () => {
  await backupFiles.begin('f', 'UPDATING', WORK);
  const problems = [{ member: 'a', reason: 'hash' }];
  await backupFiles.verified('f', { ...VERIFIED, ok: false, problems });
  expect((await backupFiles.get('f')).status).toBe('UPDATING');
  await backupFiles.operationFailed('f', 'o');
  expect((await backupFiles.get('f')).status).toBe('DAMAGED');
});

describe('a scan', () => {
  const statusOf = async (id: string) => (await backupFiles.find(id))?.status;

  test('misses what it did not find', async () => {
    await scan('p', []);
    expect(await statusOf('f')).toBe('MISSING');
  });

  test('forgets a disk image that it did not find: a descriptor may have it as a part of its own by now', async () => {
    const image = {
      ...FILE,
      id: 'i',
      archiveId: '',
      filename: 'd/x.vmdk',
      path: '/p/backups/d/x.vmdk',
      type: 'disk',
    };
    await scan('p', [FILE, image]);
    expect(await statusOf('i')).toBe('ACTIVE');
    await scan('p', [FILE]);
    expect(await statusOf('i')).toBeUndefined();
  });

  test('misses nothing that was published after it began, however old it says to be', async () => {
    const old = { ...FILE, id: 'g', archiveId: 'g', filename: 'g.tar', path: '/p/backups/g.tar' };
    await scan('p', [FILE], { meanwhile: () => backupFiles.recordResult(old, 'o') });
    expect(await statusOf('g')).toBe('ACTIVE');
  });

  test('does not take back what was told of since it began', async () => {
    await scan('p', [FILE], { meanwhile: () => backupFiles.recordResult({ ...FILE, size: 20n }, 'o') });
    expect(await backupFiles.get('f')).toMatchObject({ size: 20 });
  });

  test('misses nothing that a younger one of another node saw, though it is as it was', async () => {
    await scan('p', [], { meanwhile: () => scan('p', [FILE]) });
    expect(await statusOf('f')).toBe('ACTIVE');
  });

  test('that somebody else started, or that was begun before a restart, misses nothing', async () => {
    await backupFiles.scanned('p', { files: [], isWhole: true }, newId(), everywhere);
    expect(await statusOf('f')).toBe('ACTIVE');
  });
});

describe('while the result of a scan is taken over', () => {
  const OTHER = { ...FILE, id: 'g', archiveId: 'g', filename: 'g.tar', path: '/p/backups/g.tar' };

  /** Does it at each moment of the takeover of a scan that has found this, and looks at what comes of both. */
  async function atEachMomentOf(
    found: BackupFile[],
    meanwhile: () => Promise<unknown>,
    look: () => Promise<void>,
  ): Promise<void> {
    for (const iterations of [0, 1, 2])
      for (let moment = 0; moment < MOMENTS; moment += 1) {
        const operation = newId();
        backupFiles.scanBegins(operation, 'p');
        const taking = backupFiles.scanned('p', { files: found, isWhole: true }, operation, everywhere);
        for (let count = 0; count < iterations; count += 1) await setImmediate();
        for (let turn = 0; turn < moment; turn += 1) await Promise.resolve();
        await Promise.all([taking, meanwhile()]);
        await look();
        await db.deleteFrom('files').execute();
        await backupFiles.seen(FILE, everywhere);
      }
  }

  test('a backup that ends is there', async () => {
    await atEachMomentOf(
      [FILE],
      () => backupFiles.recordResult(OTHER, 'o'),
      async () => expect(await backupFiles.find('g')).toMatchObject({ status: 'ACTIVE' }),
    );
  });

  test.each([
    ['its own', { ...FILE, size: 20n }],
    ['the name of a copy', { ...FILE, id: uuidV5('p', 'a.tar'), archiveId: 'f', size: 20n }],
  ])('a file that is deleted stays away, which the scan has found under %s', async (_name, found) => {
    await atEachMomentOf(
      [found],
      async () => {
        for (const { id } of await backupFiles.filesOf({ pool: 'p' })) await backupFiles.remove(id);
      },
      async () => expect(await backupFiles.filesOf({ pool: 'p' })).toEqual([]),
    );
  });

  test('a file that is moved is where it was moved to', async () => {
    const moved = { ...FILE, filename: 'a.tar.zst', path: '/p/backups/a.tar.zst', compressed: true };
    await atEachMomentOf(
      [{ ...FILE, size: 20n }],
      async () => {
        await backupFiles.begin('f', 'UPDATING', WORK);
        await backupFiles.recordResult(moved, WORK.operation, { from: 'f' });
      },
      async () => {
        const rows = await backupFiles.filesOf({ pool: 'p' });
        expect(rows).toMatchObject([{ id: 'f', filename: 'a.tar.zst', status: 'ACTIVE' }]);
      },
    );
  });

  test('a file that something takes the place of is not in it any more', async () => {
    const instead = { ...OTHER, filename: FILE.filename, path: FILE.path };
    await atEachMomentOf(
      [{ ...FILE, size: 20n }],
      () => backupFiles.recordResult(instead, 'o'),
      async () => expect(await backupFiles.filesOf({ pool: 'p' })).toMatchObject([{ id: 'g' }]),
    );
  });

  test('an operation that fails leaves the file as it was', async () => {
    await atEachMomentOf(
      [],
      async () => {
        await backupFiles.begin('f', 'UPDATING', WORK).catch(() => {});
        await backupFiles.operationFailed('f', WORK.operation);
      },
      async () => expect(['ACTIVE', 'MISSING']).toContain((await backupFiles.get('f')).status),
    );
  });

  test('others are served in between, and what is as it was is not written', async () => {
    const files = Array.from({ length: 1000 }, (_, number) => ({
      ...FILE,
      id: `x${number}`,
      archiveId: `x${number}`,
      filename: `x${number}.tar`,
      path: `/p/backups/x${number}.tar`,
    }));
    await scan('p', [FILE, ...files]);
    expect(await backupFiles.countOfPool('p')).toBe(1001);
    const written = () =>
      db
        .selectFrom('files')
        .select(({ fn }) => fn.max('modified').as('modified'))
        .executeTakeFirst();
    const before = await written();
    let isOver = false;
    let served = 0;
    const serve = () => {
      served += 1;
      if (!isOver) void setImmediate().then(serve);
    };
    serve();
    await setTimeout(2);
    await scan('p', [...files, FILE]);
    isOver = true;
    expect(await written()).toEqual(before);
    expect(served).toBeGreaterThan(1);
  });
});

describe('files that have changed places', () => {
  const at = (id: string, filename: string): BackupFile => ({
    ...FILE,
    id,
    archiveId: id,
    filename,
    path: `/p/backups/${filename}`,
  });
  const places = async () =>
    Object.fromEntries((await backupFiles.filesOf({ pool: 'p' })).map(({ id, filename }) => [id, filename]));

  test('are known by what they are', async () => {
    await scan('p', [at('f', 'a.tar'), at('g', 'b.tar'), at('h', 'c.tar')]);
    await scan('p', [at('g', 'a.tar'), at('f', 'b.tar'), at('h', 'd.tar'), at('i', 'c.tar')]);
    expect(await places()).toEqual({ g: 'a.tar', f: 'b.tar', h: 'd.tar', i: 'c.tar' });
  });

  test('and copies that are found together have records of their own', async () => {
    await scan('p', [at('f', 'a.tar'), at('g', 'b.tar'), { ...at('g', 'c.tar'), id: 'g' }]);
    const found = await places();
    expect(Object.values(found).sort()).toEqual(['a.tar', 'b.tar', 'c.tar']);
    expect(found.g).toBe('b.tar');
  });
});

describe('an archive that a scan cannot read now', () => {
  const POOL = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f000a';
  const ID = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f000c';
  const read: BackupFile = {
    ...FILE,
    id: ID,
    archiveId: ID,
    poolId: POOL,
    domainId: 'd',
    domainName: 'vm',
    states: [{ number: 1, excludedDisks: [] } as never],
  };
  /** As an agent tells of a file that it could not open. */
  const unread = BackupFile.fromPartial({
    id: uuidV5(POOL, FILE.filename),
    poolId: POOL,
    path: FILE.path,
    filename: FILE.filename,
    size: 15n,
    type: 'tar',
    damage: 'another node writes it',
  });
  beforeEach(async () => {
    await scan(POOL, [read]);
    await backupFiles.update(ID, { description: 'mine', protected: 1 });
  });

  test('is left to the operation that writes it, which finds its record', async () => {
    await backupFiles.begin(ID, 'UPDATING', WORK);
    await scan(POOL, [unread]);
    expect(await backupFiles.get(ID)).toMatchObject({ status: 'UPDATING', protected: 1 });
    expect(await backupFiles.recordResult({ ...read, size: 20n }, 'o')).toBe(ID);
    expect(await backupFiles.get(ID)).toMatchObject({ status: 'ACTIVE', protected: 1, description: 'mine' });
    expect((await backupFiles.list({ ...PAGE, datapool: POOL })).count).toBe(1);
  });

  test('keeps its record, and what is known of it, until it can be read again', async () => {
    const { created } = await backupFiles.get(ID);
    await scan(POOL, [unread]);
    const row = await backupFiles.get(ID);
    expect(row).toMatchObject({ status: 'DAMAGED', protected: 1, description: 'mine', size: 15 });
    expect(row).toMatchObject({ domain_id: 'd', domain_name: 'vm', created });
    expect(detailsOf(row)).toMatchObject({
      archive_id: ID,
      damage: unread.damage,
      states: [{ number: 1 }],
    });
    await scan(POOL, [read]);
    expect(await backupFiles.get(ID)).toMatchObject({ status: 'ACTIVE', protected: 1, description: 'mine' });
    expect((await backupFiles.list({ ...PAGE, datapool: POOL })).count).toBe(1);
  });

  test('gives its place to another archive that is read there', async () => {
    await scan(POOL, [unread]);
    const other = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f000d';
    await scan(POOL, [{ ...read, id: other, archiveId: other }]);
    expect(await backupFiles.find(ID)).toBeUndefined();
    expect(await backupFiles.get(other)).toMatchObject({ status: 'ACTIVE', protected: 0 });
  });
});

describe('copies of one archive', () => {
  const P = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f000a';
  const Q = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f000b';
  const ID = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f000c';
  const states = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ excludedDisks: [], number: index + 1 }) as never);
  const at = (poolId: string, filename: string, change: Partial<BackupFile> = {}): BackupFile => ({
    ...FILE,
    id: ID,
    archiveId: ID,
    poolId,
    filename,
    path: `/${poolId}/backups/${filename}`,
    ...change,
  });
  const COPY = uuidV5(Q, 'a.tar');
  const placeOf = async (id: string) => {
    const row = await backupFiles.find(id);
    return row && `${row.pool_id} ${row.filename}`;
  };
  beforeEach(() => scan(P, [at(P, 'a.tar')]));

  test('in pools of two nodes, each of which takes its own for the original, are two files', async () => {
    for (let round = 0; round < 2; round += 1) {
      await scan(Q, [at(Q, 'a.tar')], { sees: nowhere });
      await scan(P, [at(P, 'a.tar')], { sees: nowhere });
    }
    expect([await placeOf(ID), await placeOf(COPY)]).toEqual([`${P} a.tar`, `${Q} a.tar`]);
  });

  test.each(['lies there', 'is in work'])(
    'leave the original its record when one is uploaded while it %s',
    async how => {
      await backupFiles.update(ID, { protected: 1 });
      if (how === 'is in work') await backupFiles.begin(ID, 'UPDATING', { ...WORK, operation: 'other' });
      // the node of the other pool has no other one, and takes it for the original
      expect(await backupFiles.recordResult(at(Q, 'a.tar'), 'o')).toBe(COPY);
      expect([await placeOf(ID), await placeOf(COPY)]).toEqual([`${P} a.tar`, `${Q} a.tar`]);
      expect((await backupFiles.get(ID)).protected).toBe(1);
      expect((await backupFiles.get(COPY)).protected).toBe(0);
    },
  );

  test('keep their ids when the original goes', async () => {
    await scan(Q, [at(Q, 'a.tar', { id: COPY })]);
    await backupFiles.remove(ID);
    await scan(Q, [at(Q, 'a.tar')]);
    expect([await placeOf(ID), await placeOf(COPY)]).toEqual([undefined, `${Q} a.tar`]);
  });

  test('are extended each by itself', async () => {
    await scan(Q, [at(Q, 'a.tar', { id: COPY })]);
    await backupFiles.begin(COPY, 'UPDATING', WORK);
    expect(await backupFiles.recordResult(at(Q, 'a.tar', { states: states(2) }), 'o')).toBe(COPY);
    expect(detailsOf(await backupFiles.get(COPY)).states).toHaveLength(2);
    expect(detailsOf(await backupFiles.get(ID)).states).toHaveLength(0);
    expect([await placeOf(ID), (await backupFiles.get(ID)).status]).toEqual([`${P} a.tar`, 'ACTIVE']);
  });

  test.each([WORK.operation, 'given up'])('are converted each by itself (work of %s)', async operation => {
    await scan(Q, [at(Q, 'a.tar', { id: COPY })]);
    if (operation === WORK.operation) await backupFiles.begin(COPY, 'UPDATING', WORK);
    await backupFiles.recordResult(at(Q, 'a.tar.zst', { compressed: true }), 'o', { from: COPY });
    expect([await placeOf(ID), await placeOf(COPY)]).toEqual([`${P} a.tar`, `${Q} a.tar.zst`]);
    await scan(Q, [at(Q, 'a.tar.zst', { id: uuidV5(Q, 'a.tar.zst'), compressed: true })]);
    expect((await backupFiles.list({ ...PAGE, datapool: Q })).count).toBe(1);
  });

  test('of which the former form is left over and keeps the backup’s id are two files, and nothing was lost', async () => {
    const lost: string[] = [];
    const tell = async ({ filename }: { filename: string }) => void lost.push(filename);
    backupFiles = new BackupFiles(
      db,
      () => {},
      () => undefined,
      tell,
    );
    const [former, form] = [states(1), states(2)];
    await backupFiles.begin(ID, 'UPDATING', WORK);
    await backupFiles.recordResult(at(P, 'a.tar.zst', { states: form }), 'o', { from: ID });
    const left = at(P, 'a.tar', { states: former });
    for (let round = 0; round < 2; round += 1)
      await scan(P, [left, at(P, 'a.tar.zst', { id: uuidV5(P, 'a.tar.zst'), states: form })]);
    const ids = [ID, uuidV5(P, 'a.tar')];
    expect(await Promise.all(ids.map(placeOf))).toEqual([`${P} a.tar.zst`, `${P} a.tar`]);
    expect(detailsOf(await backupFiles.get(ID)).states).toHaveLength(2);
    expect(lost).toEqual([]);
    // in another pool it lies where this one's scan cannot see it
    await scan(Q, [at(Q, 'a.tar', { states: former })]);
    expect([await placeOf(ID), await placeOf(COPY), lost]).toEqual([`${P} a.tar.zst`, `${Q} a.tar`, []]);
  });

  test('an archive that was moved keeps its record', async () => {
    await backupFiles.update(ID, { description: 'mine' });
    await scan(P, [at(P, 'b.tar')]);
    await scan(Q, [at(Q, 'b.tar')]);
    expect(await backupFiles.get(ID)).toMatchObject({ pool_id: Q, description: 'mine' });
    expect((await backupFiles.list(PAGE)).count).toBe(2);
  });

  test('stay protected when the original is missed', async () => {
    const known = { domainId: 'd' };
    await scan(P, [at(P, 'a.tar', known)]);
    await backupFiles.update(ID, { protected: 1 });
    await scan(Q, [at(Q, 'a.tar', { ...known, id: COPY })], { sees: nowhere });
    await scan(P, [], { sees: nowhere });
    expect(await backupFiles.get(COPY)).toMatchObject({ protected: 1 });
  });

  test('that were known before copies were told apart keep their ids', async () => {
    await scan(Q, [at(Q, 'a.tar', { id: COPY, archiveId: '' })]);
    await scan(Q, [at(Q, 'a.tar')]);
    expect(await placeOf(COPY)).toBe(`${Q} a.tar`);
  });

  test('only the one that was extended furthest is extended without being named', async () => {
    const capable = { domainId: 'd', canBeIncremental: true };
    await scan(P, [at(P, 'a.tar', { ...capable, states: states(2) })]);
    await scan(Q, [at(Q, 'a.tar', { ...capable, id: COPY, states: states(3) })]);
    const files = new IncrementalFiles(
      db,
      () => {},
      undefined as never,
      () => undefined,
    );
    expect((await files.archivesOf('d')).map(({ id }) => id)).toEqual([COPY]);
    await scan(P, [at(P, 'a.tar', { ...capable, states: states(3) })]);
    expect((await files.archivesOf('d')).map(({ id }) => id)).toEqual([ID, COPY]);
  });
});

test('an archive that was put back to an earlier state is noticed once, and one that is extended is not', async () => {
  const told: [string, number][] = [];
  const watched = new BackupFiles(
    db,
    () => {},
    () => undefined,
    async ({ filename }, states) => {
      told.push([filename, states]);
    },
  );
  const states = (count: number) =>
    BackupFile.fromPartial({
      ...FILE,
      archiveId: 'f',
      states: Array.from({ length: count }, (_, index) => ({
        number: index + 1,
        name: `s${index + 1}`,
        excludedDisks: [],
      })),
    });
  for (const count of [1, 3, 2, 2]) await watched.seen(states(count), everywhere);
  expect(told).toEqual([['a.tar', 2]]);
  await watched.seen({ ...states(1), damage: 'torn' }, everywhere);
  expect(told).toHaveLength(1);
  // its oldest restore points were dropped
  await watched.seen(states(9), everywhere);
  await watched.seen({ ...states(9), states: states(9).states.slice(-2) }, everywhere);
  expect(told).toHaveLength(1);
});

describe('what protects a file', () => {
  const removal = { ...WORK, removes: true } as const;
  const protectedNow = async (id = 'f') => (await backupFiles.get(id)).protected;

  test('holds when it is said while the file is changed, also when it becomes another one', async () => {
    await backupFiles.begin('f', 'UPDATING', WORK);
    await backupFiles.update('f', { protected: 1, description: 'keep' });
    await backupFiles.recordResult({ ...FILE, size: 11n }, 'o', { from: 'f' });
    expect(await backupFiles.get('f')).toMatchObject({ protected: 1, description: 'keep', status: 'ACTIVE' });
    await backupFiles.begin('f', 'UPDATING', { ...WORK, operation: 'p' });
    const other = { ...FILE, id: 'g', filename: 'b.tar', path: '/p/backups/b.tar' };
    const id = await backupFiles.recordResult(other, 'p', { from: 'f' });
    expect(await backupFiles.get(id)).toMatchObject({ protected: 1, description: 'keep' });
  });

  test('is of the archive that it was said of: one that begins in its place is not protected', async () => {
    await backupFiles.update('f', { protected: 1, description: 'keep' });
    await backupFiles.begin('f', 'UPDATING', WORK);
    const other = { ...FILE, id: 'g', filename: 'b.tar', path: '/p/backups/b.tar' };
    const id = await backupFiles.recordResult(other, 'o');
    expect(await backupFiles.get(id)).toMatchObject({ protected: 0, description: '' });
    expect(await backupFiles.get('f')).toMatchObject({ protected: 1, status: 'ACTIVE' });
  });

  test('comes with the result that it was asked for, though the controller ends right after', async () => {
    await backupFiles.begin('f', 'UPDATING', { ...WORK, protected: true });
    const ended = jest.spyOn(backupFiles, 'update').mockRejectedValue(new Error('the controller has ended'));
    await backupFiles.recordResult({ ...FILE, size: 11n }, 'o', { from: 'f' }).catch(() => {});
    ended.mockRestore();
    expect(await protectedNow()).toBe(1);
  });

  test('keeps it from being taken of, and is refused for one that is', async () => {
    await backupFiles.update('f', { protected: 1 });
    for (const status of ['UPDATING', 'DELETING'] as const)
      await expect(backupFiles.begin('f', status, removal)).rejects.toMatchObject({
        msgKey: 'file_protected',
      });
    await backupFiles.begin('f', 'UPDATING', WORK);
    await backupFiles.operationFailed('f', 'o');
    await backupFiles.update('f', { protected: 0 });
    await backupFiles.begin('f', 'UPDATING', removal);
    await expect(backupFiles.update('f', { protected: 1 })).rejects.toMatchObject({ msgKey: 'file_busy' });
    await backupFiles.update('f', { description: 'words do no harm' });
  });
});
