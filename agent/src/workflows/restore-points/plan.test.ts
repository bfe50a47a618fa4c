import { describe, expect, test } from '@jest/globals';
import type { Manifest, ManifestLayer, ManifestSavedState, MemberRecord } from '../../archive/index.ts';
import { manifestOf } from '../../archive/test-kit.ts';
import { incrementTag } from '../../snapshots/index.ts';
import { endsOf, imagesOf, keptStates, membersToBring, trimmedManifest } from './plan.ts';

const member = (name: string, kind: MemberRecord['kind'] = 'layer'): MemberRecord => ({
  ...{ name, kind, sizeBytes: 1, dataOffset: 4096, sha256: null, formerPath: null },
});
const layer = (name: string, stateNumber: number, more: Partial<ManifestLayer> = {}): ManifestLayer => ({
  ...{ member: name, stateNumber, frozenBy: null, formerPath: `/pool/${name}`, ...more },
});
const saved = (name: string, parent: string | null, more: Partial<ManifestSavedState> = {}) =>
  ({
    ...{ name, parent, current: false, created: null, description: null, xmlMember: `${name}.xml` },
    ...{ memoryMember: null, formerMemoryPath: null, nvram: null, tpm: null, ...more },
  }) as ManifestSavedState;
const disk = (id: string, layers: ManifestLayer[]): Manifest['disks'][number] => ({
  ...{ id, target: 'vda', bus: null, virtualSizeBytes: 1, format: 'qcow2', formerFormat: 'qcow2' },
  ...{ formerPath: '/pool/x', poolId: null, poolName: null, layers, base: null },
});

/** As of state `last`: each state has brought a layer, and the saved states of those before are on the VM. */
function grown(last: number, changes: Partial<Manifest> = {}): Manifest {
  const numbers = Array.from({ length: last }, (_, index) => index + 1);
  const base = manifestOf([member('0001_vm.xml', 'domain_xml')]);
  const ofState = (number: number) => incrementTag(base.backupId, number);
  const states = numbers.map(number => ({
    ...{ ...base.states[0]!, number, name: `s${number}`, xmlMember: `000${number}_vm.xml` },
  }));
  const snapshots = numbers.slice(0, -1).map(number =>
    saved(`s${number}`, number === 1 ? null : `s${number - 1}`, {
      description: ofState(number),
      current: number === last - 1,
    }),
  );
  const layers = numbers.map(number => layer(`l${number}`, number));
  return { ...base, states, snapshots, disks: [disk('d', layers)], ...changes };
}

describe('which states stay', () => {
  test('the newest', () => {
    expect(keptStates(grown(5), 2, 'f')).toEqual({ kept: [4, 5], dropped: [1, 2, 3] });
  });

  test.each([
    [1, 1],
    [3, 3],
    [3, 7],
  ])('of %d states nothing goes when %d are to stay: refused', (states, keep) => {
    expect(() => keptStates(grown(states), keep, 'f')).toThrow(/f has restore points: \d\. None is to go/);
  });
});

describe('which layers become one', () => {
  const names = (images: ManifestLayer[][]) => images.map(image => image.map(({ member: name }) => name));

  test('those below the oldest state that stays, and those are apart that end with one', () => {
    const ends = new Set([3, 4, 5].flatMap(number => endsOf(grown(number))));
    expect(names(imagesOf(grown(5).disks[0]!.layers, ends))).toEqual([['l1', 'l2', 'l3'], ['l4'], ['l5']]);
  });

  test('not those that a saved state of the VM keeps', () => {
    const ends = new Set([...endsOf(grown(5)), 'l2']);
    expect(names(imagesOf(grown(5).disks[0]!.layers, ends))).toEqual([
      ['l1', 'l2'],
      ['l3', 'l4', 'l5'],
    ]);
  });

  test('not those of a disk that nobody writes to', () => {
    const modified = '2026-01-01T00:00:00.000Z';
    const disks = [disk('r', [layer('r1', 1, { modified }), layer('r2', 1, { modified })])];
    expect(endsOf({ disks })).toEqual(['r1', 'r2']);
  });
});

test('what two disks stand on stays an image of its own: one name cannot be of what is above it in both', () => {
  const below = layer('l1', 1);
  const disks = [disk('a', [below, layer('a2', 1), layer('a3', 2)]), disk('b', [below, layer('b2', 1)])];
  const ends = new Set(endsOf({ disks }));
  const names = disks.map(({ layers }) => imagesOf(layers, ends).map(image => image.map(one => one.member)));
  expect(names).toEqual([
    [['l1'], ['a2', 'a3']],
    [['l1'], ['b2']],
  ]);
});

describe('what a manifest says then', () => {
  const rules = { first: 3, ends: new Set(['l3', 'l4', 'l5']) };

  test('states keep their numbers; an image has the name and the place of its lowest layer, and is of its top', () => {
    const before = grown(5);
    before.disks[0]!.layers[2]!.frozenBy = 's3';
    const { states, disks, snapshots, ...rest } = trimmedManifest(before, rules);
    expect(states.map(({ number }) => number)).toEqual([3, 4, 5]);
    expect(disks[0]!.layers).toEqual([{ ...layer('l1', 3), frozenBy: 's3' }, layer('l4', 4), layer('l5', 5)]);
    expect(snapshots.map(({ name, parent, current }) => [name, parent, current])).toEqual([
      ['s3', null, false],
      ['s4', 's3', true],
    ]);
    const { states: _s, disks: _d, snapshots: _n, ...former } = before;
    expect(rest).toEqual(former);
  });

  test("a user's saved states stay, and stand on one another", () => {
    const before = grown(3);
    before.snapshots = [
      saved('mine', null),
      { ...before.snapshots[0]!, parent: 'mine' },
      saved('later', 's1'),
      { ...before.snapshots[1]!, parent: 'later', current: true },
    ];
    const { snapshots } = trimmedManifest(before, rules);
    expect(snapshots.map(({ name, parent, current }) => [name, parent, current])).toEqual([
      ['mine', null, false],
      ['later', 'mine', true],
    ]);
  });

  test('states of other archives are none of those that go', () => {
    const other = saved('other', null, { description: incrementTag(grown(1).vm.uuid, 1) });
    expect(trimmedManifest(grown(3, { snapshots: [other] }), rules).snapshots).toEqual([other]);
  });
});

test('a state brings what none before it has brought, in the order of the format', () => {
  const listed = [
    ...[member('l1', 'disk'), member('0001_vm.xml', 'domain_xml'), member('l2'), member('l3')],
    ...[member('s2.xml', 'state_xml'), member('0003_vm.xml', 'domain_xml')],
  ];
  const manifest = trimmedManifest(grown(3, { snapshots: [saved('s2', null, { description: 'mine' })] }), {
    first: 3,
    ends: new Set(['l3']),
  });
  const names = (brought: string[]) =>
    membersToBring(manifest, listed, new Set(brought)).map(({ name }) => name);
  expect(names([])).toEqual(['l1', '0003_vm.xml', 's2.xml']);
  expect(names(['l1', 's2.xml'])).toEqual(['0003_vm.xml']);
});
