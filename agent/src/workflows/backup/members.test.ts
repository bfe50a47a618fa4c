import { describe, expect, test } from '@jest/globals';
import { roundUp } from '@virtkeep/shared/units';
import { dataOffsetFor } from '../../archive/format/tar-format.ts';
import {
  type BackupPicture,
  type BackupRecord,
  type ManifestBody,
  manifestOf,
  planArchive,
} from './members.ts';

const RECORD = { backupId: 'b', created: '2026-01-01T00:00:00Z' } as BackupRecord;

describe('the manifest of a backup', () => {
  test('of a raw encrypted disk is of the version that says so, also in an increment', () => {
    const body = (disks: object[]) => ({ state: { number: 1 }, disks }) as unknown as ManifestBody;
    const plain = manifestOf(body([{}]), [], RECORD, null);
    const encrypted = manifestOf(body([{}, { encryption: 'luks' }]), [], RECORD, null);
    expect([plain.formatVersion, encrypted.formatVersion]).toEqual([1, 3]);
    expect(manifestOf(body([{ encryption: 'luks' }]), [], RECORD, plain).formatVersion).toBe(3);
    expect(manifestOf(body([{}]), [], RECORD, encrypted).formatVersion).toBe(1);
  });
});

test('what the tar is going to hold is never more than was planned, headers included', () => {
  const layer = (path: string) => ({
    ...{ path, format: 'qcow2', frozenBy: null, madeBy: null, virtualSize: 4096 },
    ...{ allocatedSize: 512, fileSize: 1 },
  });
  const targets = Array.from({ length: 50 }, (_, index) => `vd${index}`);
  const plan = planArchive({
    ...{ config: { uuid: 'u', name: 'vm', metadata: {}, disks: [] }, xml: '<domain/>', states: [] },
    content: {
      disks: targets.map(target => ({
        id: target,
        path: `/${target}`,
        pool: null,
        config: { targetDev: target },
      })),
      ...{ images: [], luns: [], recorded: [] },
    },
    chains: new Map(targets.map(target => [target, { layers: [layer(`/${target}`)], base: null }])),
    ...{ template: null, nvram: null, tpm: null, stateFirmware: new Map(), automatic: null },
    ...{ consistency: 'off', sizes: new Map(), continued: null },
  } as unknown as BackupPicture);
  let end = 0;
  for (const { name, from } of plan.members)
    end = roundUp(dataOffsetFor(end, name, from !== 'bytes') + 10, 512);
  expect(plan.members).toHaveLength(51);
  expect(plan.tarSize.bytes).toBeGreaterThanOrEqual(end);
  expect(plan.tarSize.bytes).toBeLessThan(end + 51 * 8192);
});
