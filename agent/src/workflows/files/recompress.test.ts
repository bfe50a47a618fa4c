import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { RecompressBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { uuidV5 } from '@virtkeep/shared/ids';
import { ArchiveAppender, lockFile, openArchive, removeArchive } from '../../archive/index.ts';
import { appendState, noise, signal, writeArchive } from '../../archive/test-kit.ts';
import type { PoolRecord } from '../../pools/index.ts';
import { tailPathOf } from '../backup/base.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { planRecompress, recompressWorkflow } from './recompress.ts';

let directory: string;
let path: string;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'recompress-'));
  mkdirSync(join(directory, 'backups'));
  path = join(directory, 'backups/a.tar');
  await writeArchive(path, [{ name: 'd', from: noise(9000) }]);
});
afterEach(() => rmSync(directory, { recursive: true }));

const handle = { undo: async () => {}, keep: () => {} };
const commit = jest.fn<OperationContext['commit']>();
const warn = jest.fn();
const archives = () => readdirSync(join(directory, 'backups')).filter(name => !name.startsWith('.'));

const tails = () => readdirSync(join(directory, 'backups')).filter(name => name.includes('.tail'));

/** Converts the archive; `before` happens before the step of that name. */
async function convert(
  before: Record<string, () => void> = {},
  keepsSource = false,
  now: Partial<PoolRecord> = {},
): Promise<void> {
  commit.mockClear();
  const there = { active: true, mounted: true, hasDirectory: true };
  const pool = { id: 'p', name: 'p', kind: 'local', path: directory, ...there } as PoolRecord;
  const context = {
    id: 'o',
    signal,
    effects: { begin: () => handle },
    progress: { total: () => {}, done: () => {} },
    step: (name: string, work: () => Promise<unknown>) => {
      before[name]?.();
      return work();
    },
    warn,
    commit,
  } as unknown as OperationContext;
  const source = { pool, path, filename: 'a.tar' };
  const plan = { source, target: pool, directory: join(directory, 'backups'), keepsSource };
  const dependencies = {
    filesChanged: () => {},
    pools: async () => [{ ...pool, ...now }],
  } as unknown as WorkflowDependencies;
  const request = RecompressBackupRequest.fromPartial({ compress: true });
  await recompressWorkflow(dependencies, request, plan)(context);
}

test('the other form takes the place of an archive', async () => {
  await convert();
  expect(archives()).toEqual(['a.tar.zst']);
});

test('a pool that went away before its turn came gets nothing', async () => {
  await expect(convert({}, false, { mounted: false })).rejects.toMatchObject({ msgKey: 'pool_not_mounted' });
  expect(archives()).toEqual(['a.tar']);
});

test('an archive that somebody wrote to while the lock on it was lost is not replaced', async () => {
  const publish = () => appendFileSync(path, 'more');
  await expect(convert({ publish })).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  expect(commit).not.toHaveBeenCalled();
  expect(archives()).toContain('a.tar');
});

test('nor is one removed that was written to after the other form had its name', async () => {
  await convert({ remove: () => appendFileSync(path, 'more') });
  expect(commit).toHaveBeenCalled();
  expect(archives()).toEqual(['a.tar', 'a.tar.zst']);
  expect(warn).toHaveBeenCalledWith(expect.stringContaining(path));
});

test('an increment that was not durable when its node died is given up before, not converted with its holes', async () => {
  const before = readFileSync(path);
  const tailPath = tailPathOf(path, 'c0ffee00-0000-4000-8000-000000000001');
  const dying = await ArchiveAppender.open({ path, signal });
  await dying.begin(tailPath);
  const saved = readFileSync(tailPath);
  await dying.abort();
  await appendState(path, [{ name: 'f', from: noise(400_000, 3) }], { tailPath });
  // its end reached the disk, some of its data did not
  writeFileSync(path, readFileSync(path).fill(0, before.length + 8192, before.length + 300_000));
  writeFileSync(tailPath, saved);
  await convert();
  const archive = await openArchive(join(directory, 'backups/a.tar.zst'), signal);
  expect(archive.manifest!.states).toHaveLength(1);
  await archive.close();
  expect([archives(), tails()]).toEqual([['a.tar.zst'], []]);
});

test('what is left of a durable increment goes with the archive that was converted', async () => {
  const tailPath = tailPathOf(path, 'c0ffee00-0000-4000-8000-000000000001');
  await appendState(path, [{ name: 'f', from: noise(9000, 3) }], { tailPath });
  await convert();
  const archive = await openArchive(join(directory, 'backups/a.tar.zst'), signal);
  expect(archive.manifest!.states).toHaveLength(2);
  await archive.close();
  expect([archives(), tails()]).toEqual([['a.tar.zst'], []]);
});

test('an old end that cannot be read keeps no archive from being removed, nor stays itself', async () => {
  const tailPath = tailPathOf(path, 'c0ffee00-0000-4000-8000-000000000001');
  writeFileSync(tailPath, 'nothing that we wrote');
  await removeArchive(path);
  expect([archives(), tails()]).toEqual([[], []]);
});

describe('a conversion that keeps its source', () => {
  test('leaves it as it is, and tells of a copy with an id of its own', async () => {
    const before = readFileSync(path);
    await convert({}, true);
    expect(archives()).toEqual(['a.tar', 'a.tar.zst']);
    expect(readFileSync(path).equals(before)).toBe(true);
    const [result] = commit.mock.calls[0]!;
    if (result?.$case !== 'recompressCopy') throw new Error('a copy was to be told');
    const file = result.value.file!;
    const { manifest, close } = await openedCopy();
    await close();
    expect(file).toMatchObject({ id: uuidV5('p', 'a.tar.zst'), archiveId: manifest?.backupId });
    expect(file.id).not.toBe(file.archiveId);
  });

  test('is made beside readers, and not beside a writer', async () => {
    const reader = await lockFile(path, 'shared');
    await convert({}, true).finally(() => reader.release());
    const writer = await lockFile(path, 'exclusive');
    const refused = convert({}, true).finally(() => writer.release());
    await expect(refused).rejects.toMatchObject({ msgKey: 'file_busy' });
  });

  test('is refused where an increment was cut off: nothing may be put right there', async () => {
    const tailPath = tailPathOf(path, 'c0ffee00-0000-4000-8000-000000000001');
    const dying = await ArchiveAppender.open({ path, signal });
    await dying.begin(tailPath);
    const saved = readFileSync(tailPath);
    await dying.abort();
    await appendState(path, [{ name: 'f', from: noise(400_000, 3) }], { tailPath });
    writeFileSync(tailPath, saved);
    const before = readFileSync(path);
    await expect(convert({}, true)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
    expect([readFileSync(path).equals(before), archives()]).toEqual([true, ['a.tar']]);
  });

  async function openedCopy() {
    const archive = await openArchive(join(directory, 'backups/a.tar.zst'), signal);
    return { manifest: archive.manifest, close: () => archive.close() };
  }

  test('may lie on a pool that is not written to; the target may not', () => {
    const pool = (more: Partial<PoolRecord>) =>
      ({ id: 'p', name: 'p', kind: 'local', path: directory, hasDirectory: true, active: true, mounted: true, ...more }) as PoolRecord; // biome-ignore format: one record
    const target = pool({ id: 't' });
    const request = RecompressBackupRequest.fromPartial({ compress: true, poolId: 't' });
    const plan = (from: PoolRecord, to: PoolRecord, keeps: boolean) =>
      planRecompress(
        request,
        { source: { pool: from, path, filename: 'a.tar' }, keepsSource: keeps },
        [from, to],
        'n',
      );
    for (const mark of [{ readonly: true }, { outside: true, kind: 'outside' as const }]) {
      expect(plan(pool(mark), target, true)).toMatchObject({ keepsSource: true, target: { id: 't' } });
      expect(() => plan(pool(mark), target, false)).toThrow();
      expect(() => plan(pool({}), { ...pool(mark), id: 't' }, true)).toThrow();
    }
  });
});
