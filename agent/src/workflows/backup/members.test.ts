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

const layerAt = (path: string, more: object = {}) => ({
  ...{ path, format: 'qcow2', frozenBy: null, madeBy: null, virtualSize: 4096 },
  ...{ allocatedSize: 512, fileSize: 1, ...more },
});

/** Of a VM that is off, with a disk of each of these layers. */
function planOf(layers: ReturnType<typeof layerAt>[], images: object[] = []) {
  const disks = layers.map((layer, index) => ({ target: `vd${index}`, layer }));
  return planArchive({
    ...{ config: { uuid: 'u', name: 'vm', metadata: {}, disks: [] }, xml: '<domain/>', states: [] },
    content: {
      disks: disks.map(({ target, layer }) => ({
        ...{ id: target, path: layer.path, pool: null, config: { targetDev: target } },
      })),
      ...{ images, luns: [], recorded: [] },
    },
    chains: new Map(disks.map(({ target, layer }) => [target, { layers: [layer], base: null }])),
    ...{ template: null, nvram: null, tpm: null, stateFirmware: new Map(), automatic: null },
    ...{ consistency: 'off', sizes: new Map(), continued: null },
  } as unknown as BackupPicture);
}

test('what the tar is going to hold is never more than was planned, headers included', () => {
  const plan = planOf(Array.from({ length: 50 }, (_, index) => layerAt(`/vd${index}`)));
  let end = 0;
  for (const { name, from } of plan.members)
    end = roundUp(dataOffsetFor(end, name, from !== 'bytes') + 10, 512);
  expect(plan.members).toHaveLength(51);
  expect(plan.tarSize.bytes).toBeGreaterThanOrEqual(end);
  expect(plan.tarSize.bytes).toBeLessThan(end + 51 * 8192);
});

test('of raw disks, each of which is a file of its own before it is compressed, the largest is told', () => {
  const raw = (path: string, allocatedSize: number) => layerAt(path, { format: 'raw', allocatedSize });
  const plan = planOf([
    raw('/a', 1000),
    raw('/b', 3000),
    layerAt('/c', { allocatedSize: 9000 }),
    raw('/d', 2000),
  ]);
  expect(plan.largestRawBytes).toBe(3000);
  expect(planOf([layerAt('/c')]).largestRawBytes).toBe(0);
});

test('a file that is a raw disk and in a drive as well is two members: the drive has its bytes, the disk an image of them', () => {
  const image = { targetDev: 'sda', path: '/one', pool: null, included: true };
  const { members } = planOf([layerAt('/one', { format: 'raw' }), layerAt('/two')], [image, image]);
  const ofFile = members.filter(member => 'path' in member && member.path === '/one');
  expect(ofFile.map(({ kind, from }) => [kind, from])).toEqual([
    ['disk', 'raw'],
    ['iso', 'file'],
  ]);
});
