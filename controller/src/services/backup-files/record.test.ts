import { describe, expect, test } from '@jest/globals';
import { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId, uuidV5 } from '@virtkeep/shared/ids';
import type { FileRow } from '../../store/schema.ts';
import { detailsOf, fileRecord, rememberedShow, rowOfFile } from './record.ts';
import { pointsOf, unpublishedPath } from './restore-points.ts';

const NOW = '2026-01-02T03:04:05.000Z';
const file = (part: Partial<BackupFile> = {}) =>
  BackupFile.fromPartial({
    id: 'f',
    poolId: 'p',
    path: '/p/backups/a.tar',
    filename: 'a.tar',
    size: 10n,
    type: 'tar',
    created: new Date(NOW),
    ...part,
  });

/** A restore point of that day of January, without these disks. */
const at = (day: number, ...excludedDisks: string[]) => ({
  ...{ number: day, name: `${day}`, memory: false, consistency: 'off' },
  ...{ created: new Date(`2026-01-0${day}T00:00:00Z`), excludedDisks },
});

describe('a file seen on its pool', () => {
  test('keeps what only the controller knows', () => {
    const before = { ...rowOfFile(file(), undefined, undefined, NOW), protected: 1, description: 'mine' };
    const after = rowOfFile(file({ size: 20n }), before, undefined, NOW);
    expect(after).toMatchObject({ protected: 1, description: 'mine', size: 20, status: 'ACTIVE' });
  });

  test('keeps its information while it is the same archive, and holds all that it held', () => {
    const states = (...names: string[]) => names.map((name, index) => ({ number: index + 1, name }));
    const at = (part: Partial<BackupFile>, before?: FileRow) =>
      rowOfFile(file({ archiveId: 'a', ...part }), before, undefined, NOW);
    const first = at({ states: states('s1') } as never);
    const information = { memory_count: 7 };
    const details = { ...detailsOf(first), information, shown: { xml: 'x' } };
    const before = { ...first, record_json: JSON.stringify(details) };
    const kept = (part: object) => detailsOf(at({ size: 20n, ...part }, before)).information;
    expect(kept({ states: states('s1', 's2') })).toEqual(information);
    expect(kept({ states: states('s1'), path: '/p/backups/a.tar.zst' })).toEqual(information);
    expect(kept({ damage: 'somebody writes it', archiveId: '' })).toEqual(information);
    expect(kept({ states: states('other', 's2') })).toBeNull();
    expect(kept({ states: [] })).toBeNull();
    expect(kept({ archiveId: 'b', states: states('s1', 's2') })).toBeNull();
  });

  test('has restore points for the protection only when its own manifest tells of when they are', () => {
    const state = {
      ...{ number: 1, name: '1', created: new Date(NOW), memory: false, consistency: 'crash' },
      excludedDisks: [],
    };
    const point = (part: object) => {
      const { id, ...rest } = { id: newId(), archiveId: newId(), domainId: 'd', states: [state], ...part };
      return rowOfFile(file({ id, ...rest }), undefined, undefined, NOW).newest_point;
    };
    const byName = uuidV5(newId(), 'a.tar');
    expect(point({})).toBe(NOW);
    expect(point({ id: byName })).toBe(NOW);
    // of another product, copied here just now
    expect(point({ id: byName, archiveId: '' })).toBeNull();
    // as agents of the version before tell their own
    expect(point({ archiveId: '' })).toBe(NOW);
  });

  test('has whole restore points apart from those that leave out disks', () => {
    const days = (...states: ReturnType<typeof at>[]) => {
      const row = rowOfFile(file({ archiveId: 'a', states }), undefined, undefined, NOW);
      return [row.newest_point, row.newest_whole_point].map(time => time && Number(time.slice(8, 10)));
    };
    expect(days(at(1))).toEqual([1, 1]);
    expect(days(at(1), at(2, 'vdb'))).toEqual([2, 1]);
    expect(days(at(1), at(2, 'vdb'), at(3))).toEqual([3, 3]);
    expect(days(at(1, 'vdb'), at(2, 'vdb', 'vdc'))).toEqual([2, null]);
  });

  test('forgets of no state what it left out, also when nobody says so any more', () => {
    let row = rowOfFile(file({ archiveId: 'a', states: [at(1), at(2, 'vdb')] }), undefined, undefined, NOW);
    for (const states of [
      [at(1), at(2), at(3, 'vdb')],
      [at(1), at(2), at(3)],
      [at(2), at(3)],
    ]) {
      row = rowOfFile(file({ archiveId: 'a', states }), row, undefined, NOW);
      const { states: told } = fileRecord(row, undefined, undefined);
      expect(told.slice(-2).map(({ excluded_disks: disks }) => disks)).toEqual([['vdb'], ['vdb']]);
      expect(row.newest_whole_point).toBe(told.length === 3 ? '2026-01-01T00:00:00.000Z' : null);
    }
    const other = rowOfFile(file({ archiveId: 'b', states: [at(2)] }), row, undefined, NOW);
    expect(fileRecord(other, undefined, undefined).states[0]!.excluded_disks).toEqual([]);
  });

  test('of before knows of no disks that were left out', () => {
    const state = { number: 1, name: '1', created: NOW, memory: false, consistency: 'off' };
    const row = rowOfFile(file({ archiveId: 'a' }), undefined, undefined, NOW);
    const old = { ...row, record_json: JSON.stringify({ archive_id: 'a', states: [state] }) };
    expect(fileRecord(old, undefined, undefined).states).toEqual([{ ...state, excluded_disks: [] }]);
    expect(pointsOf(old, detailsOf(old)).newest_whole_point).toBe(NOW);
  });

  test('stays damaged after a failed verification until it changes', () => {
    const fresh = rowOfFile(file({ hashed: true }), undefined, undefined, NOW);
    const details = { ...detailsOf(fresh), failed_verification: true, damage: 'a: hash' };
    const before = { ...fresh, status: 'DAMAGED', record_json: JSON.stringify(details) };
    const same = rowOfFile(file({ hashed: true }), before, undefined, NOW);
    expect(same.status).toBe('DAMAGED');
    expect(detailsOf(same).damage).toBe('a: hash');
    expect(rowOfFile(file({ hashed: true, size: 11n }), before, undefined, NOW).status).toBe('ACTIVE');
  });

  test('stays damaged after a failed verification wherever it lies, and whoever tells of it', () => {
    const fresh = rowOfFile(
      file({ hashed: true, archiveId: 'a', states: [at(1)] }),
      undefined,
      undefined,
      NOW,
    );
    const hash_sum = { ...detailsOf(fresh).hash_sum!, verified_at: NOW, ok: false };
    const details = { ...detailsOf(fresh), failed_verification: true, damage: 'a: hash', hash_sum };
    const before = { ...fresh, status: 'DAMAGED', record_json: JSON.stringify(details) };
    const archive = { hashed: true, archiveId: 'a', states: [at(1)] };
    const seen = (part: Partial<BackupFile>) => {
      const row = rowOfFile(file({ ...archive, ...part }), before, undefined, NOW);
      const { failed_verification, damage, hash_sum: sum } = detailsOf(row);
      return [row.status, row.newest_whole_point, failed_verification, damage, sum?.ok];
    };
    const damaged = ['DAMAGED', null, true, 'a: hash', false];
    // another directory of its pool, another pool, the same pool as another node has it
    expect(seen({ path: '/elsewhere/a.tar' })).toEqual(damaged);
    expect(seen({ path: '/q/backups/b.tar', poolId: 'q', filename: 'b.tar' })).toEqual(damaged);
    // one that cannot be read says of no archive that it is it
    const unread = { archiveId: '', states: [], damage: 'somebody writes it', path: '/elsewhere/a.tar' };
    expect(seen(unread).slice(0, 3)).toEqual(damaged.slice(0, 3));
    expect(seen({ path: '/elsewhere/a.tar', size: 11n })[0]).toBe('ACTIVE');
    // another one of the same size has taken its place
    expect(seen({ archiveId: 'b' })[0]).toBe('ACTIVE');
  });

  test('stays proven in whichever directory its pool is, and not where it was copied to since', () => {
    const fresh = rowOfFile(file({ hashed: true, archiveId: 'a' }), undefined, undefined, NOW);
    const hash_sum = { ...detailsOf(fresh).hash_sum!, verified_at: NOW, ok: true };
    const before = { ...fresh, record_json: JSON.stringify({ ...detailsOf(fresh), hash_sum }) };
    const proven = (part: Partial<BackupFile>) => {
      const row = rowOfFile(file({ hashed: true, archiveId: 'a', ...part }), before, undefined, NOW);
      return [row.status, detailsOf(row).hash_sum?.ok];
    };
    expect(proven({ path: '/elsewhere/a.tar' })).toEqual(['ACTIVE', true]);
    expect(proven({ path: '/q/backups/a.tar', poolId: 'q' })).toEqual(['ACTIVE', null]);
    expect(proven({ path: '/p/backups/b.tar', filename: 'b.tar' })).toEqual(['ACTIVE', null]);
  });

  test('is damaged when it cannot be read, and knows no original when it has none', () => {
    const row = rowOfFile(file({ damage: 'cut short' }), undefined, undefined, NOW);
    expect(row).toMatchObject({ status: 'DAMAGED', domain_id: null });
    expect(fileRecord(row, undefined, undefined)).toMatchObject({
      domain: null,
      additional_flags: { can_be_domained: false },
      datapool: { id: 'p', verbose_name: '' },
    });
  });

  test('shows no path before it is published', () => {
    const row = { ...rowOfFile(file(), undefined, undefined, NOW), path: unpublishedPath('f') };
    expect(fileRecord(row, undefined, undefined).path).toBe('');
  });
});

test('a definition is remembered of an agent that leaves its secrets out, and not of one of before', () => {
  const shown = ShowBackupResponse.fromPartial({ xml: '<domain/>', configuration: { name: 'vm' } });
  const signature = { trust: 'foreign', signer: '', reason: 'it is not signed', coversContent: false };
  expect(rememberedShow(shown)).not.toHaveProperty('xml');
  expect(rememberedShow(shown)).toHaveProperty('configuration.name', 'vm');
  expect(rememberedShow({ ...shown, signature })).toHaveProperty('xml', '<domain/>');
});
