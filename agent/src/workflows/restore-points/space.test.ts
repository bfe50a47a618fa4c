import { describe, expect, test } from '@jest/globals';
import { GiB } from '@virtkeep/shared/units';
import type { Manifest, MemberRecord } from '../../archive/index.ts';
import { manifestOf } from '../../archive/test-kit.ts';
import { spaceFor } from './space.ts';

const record = (name: string, bytes: number): MemberRecord => ({
  ...{ name, kind: 'layer', sizeBytes: bytes, dataOffset: 0, sha256: null, formerPath: null },
});

/** One disk, with a layer of so many bytes of each state, and a member of each that stays. */
function archive(layers: number[], others = 0): Manifest {
  const members = layers.map((bytes, index) => record(`l${index}`, bytes));
  const described = manifestOf([...members, { ...record('other', others), kind: 'domain_xml' }]);
  const disk = {
    ...{
      id: 'd',
      target: 'vda',
      bus: null,
      virtualSizeBytes: 0,
      format: 'qcow2' as const,
      formerFormat: 'qcow2',
    },
    ...{ formerPath: '/d', poolId: null, poolName: null, base: null },
    layers: members.map(({ name }, index) => ({
      ...{ member: name, stateNumber: index + 1, formerPath: null, frozenBy: null },
    })),
  };
  return { ...described, states: [], disks: [disk] };
}

const space = (manifest: Manifest, ends: string[], share: number) =>
  spaceFor(manifest, { dropped: [], ends: new Set(ends) }, share) / GiB;

describe('the space that a trim asks for', () => {
  test('is that of the layers and of the image that they are merged into', () => {
    const layers = [10 * GiB, ...Array<number>(40).fill(5 * GiB)];
    expect(space(archive(layers), ['l40'], 0.5)).toBe(10 + 40 * 5 + 40 * 5);
  });

  test('counts what is merged at once only, and what the new archive holds by then', () => {
    const layers = Array<number>(61).fill(GiB);
    expect(space(archive(layers, 20 * GiB), ['l60'], 0.5)).toBe(20 / 2 + 1 + 2 * 50);
  });

  test('is that of the new archive beside the joined image, when that is more', () => {
    expect(space(archive([100 * GiB, GiB]), ['l1'], 1)).toBe(2 * 101);
  });

  test('is what stays, when nothing is joined', () => {
    expect(space(archive([10 * GiB, GiB]), ['l0', 'l1'], 1)).toBe(11);
  });
});
