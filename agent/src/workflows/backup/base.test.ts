import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { GROWTH_LIMITS } from '../../archive/format/bounds.ts';
import { appendState, noise, scratch, signal, writeArchive } from '../../archive/test-kit.ts';
import { fallbackReason, readBase, refuseTooLarge } from './base.ts';
import { retiredArchives } from './retired.ts';

const dir = scratch();
const path = join(dir.path, 'backups', 'a.tar');
const pool = {
  id: 'p',
  name: 'p',
  kind: 'local',
  path: dir.path,
  hasDirectory: true,
  active: true,
  mounted: true,
};
const pools = [pool] as unknown as Parameters<typeof readBase>[1];
const request = StartBackupRequest.fromPartial({ extend: { poolId: 'p', filename: 'a.tar' } });

beforeAll(async () => {
  mkdirSync(join(dir.path, 'backups'));
  await writeArchive(path, [{ name: 'd.qcow2', from: noise(5000) }]);
  for (const state of [2, 3]) {
    await appendState(path, [{ name: `d_${state}.snapshot`, from: noise(5000, state) }]);
    rmSync(`${path}.tail`);
  }
});
afterAll(() => dir.remove());

async function read(changes: Partial<typeof GROWTH_LIMITS> = {}) {
  const growthLimits = { ...GROWTH_LIMITS, ...changes };
  const base = await readBase(request, pools, { nodeName: 'n', growthLimits }, signal);
  await base.lock.release();
  return base;
}

describe('an archive that is to be extended', () => {
  test('is read as it is', async () => {
    expect(await read()).toMatchObject({ path, filename: 'a.tar' });
    expect(await read({ states: 4 })).toMatchObject({ path });
  });

  test.each([
    [{ states: 3 }, 'it has grown to 3 states, and 3 are enough for one archive: a new one is to be begun'],
    [{ members: 9 }, expect.stringMatching(/9 members/)],
    [{ manifestBytes: 1000 }, expect.stringMatching(/bytes of description/)],
    [{ frames: 10 }, expect.stringMatching(/blocks of 4 MiB/)],
  ])(
    'is refused before a byte is written when it has reached %p; the reason goes into its successor',
    async (limits, reason) => {
      const before = readFileSync(path);
      const error = await read(limits).catch((caught: unknown) => caught);
      expect(error).toMatchObject({ msgKey: 'not_extendable', params: { file: 'a.tar', reason } });
      expect(fallbackReason(error)).toEqual(reason);
      expect(readFileSync(path).equals(before)).toBe(true);
    },
  );
});

describe('an increment that no reader would take', () => {
  const base = { filename: 'a.tar.zst', manifest: { backupId: 'b' } } as Parameters<typeof refuseTooLarge>[0];
  const size = { bytes: 8 * 4 * 1024 * 1024, members: 2 };
  const tried = (fallbackFull: boolean, mostFrames: number) => {
    const kept = new Map<string, unknown>();
    const settings = { get: (key: string) => kept.get(key), set: kept.set.bind(kept) };
    const asked = StartBackupRequest.fromPartial({ domainId: 'vm', fallbackFull });
    let error: unknown;
    try {
      refuseTooLarge(base, asked, size, { settings, mostFrames });
    } catch (caught) {
      error = caught;
    }
    return { error, retired: retiredArchives(settings, 'vm') };
  };

  test('lets a full backup stand in, and the archive is left behind', () => {
    const { error, retired } = tried(true, 11);
    expect(error).toMatchObject({ msgKey: 'not_extendable', params: { file: 'a.tar.zst' } });
    expect(fallbackReason(error)).toMatch(
      /would hold 33554432 bytes, and 46137344 .* a new one is to be begun/,
    );
    expect(retired).toEqual(['b']);
  });

  test('is refused where none may, and the archive may still take a smaller one', () => {
    const { error, retired } = tried(false, 11);
    expect(error).toMatchObject({ msgKey: 'not_extendable' });
    expect(retired).toEqual([]);
    expect(tried(true, 12)).toEqual({ error: undefined, retired: [] });
  });
});
