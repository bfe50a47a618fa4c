import { describe, expect, test } from '@jest/globals';
import { CREATED, manifestOf } from '../test-kit.ts';
import type { Manifest, MemberRecord } from './manifest.ts';
import { neededMembers, needsOf, restorableStates } from './restorable.ts';
import type { ArchiveProblem } from './types.ts';

const record = (name: string, kind: MemberRecord['kind'] = 'layer'): MemberRecord => ({
  name,
  kind,
  sizeBytes: 1,
  dataOffset: 512,
  sha256: null,
  formerPath: null,
});

/** The manifest of state n of a VM with one disk: base.qcow2 and a layer for each further state. */
function manifestAt(number: number, changes: Partial<Manifest> = {}): Manifest {
  const numbers = Array.from({ length: number }, (_, index) => index + 1);
  const sides = { memoryMember: null, nvram: null, tpm: null };
  const members = ['base.qcow2', ...numbers.slice(1).map(n => `layer${n}`)];
  const layers = members.map((member, index) => ({
    member,
    stateNumber: index + 1,
    frozenBy: `s${index + 1}`,
    formerPath: null,
  }));
  const disk = { id: 'd', target: 'vda', bus: 'virtio', virtualSizeBytes: 1, format: 'qcow2' as const };
  return manifestOf([record('0001_vm.xml', 'domain_xml'), ...members.map(name => record(name))], {
    states: numbers.map(n => ({
      number: n,
      name: `s${n}`,
      consistency: 'quiesced',
      created: CREATED,
      xmlMember: `000${n}_vm.xml`,
      ...sides,
    })),
    disks: [
      { ...disk, formerFormat: 'qcow2', formerPath: '/d', poolId: null, poolName: null, layers, base: null },
    ],
    ...changes,
  });
}

const manifests = [1, 2, 3].map(number => manifestAt(number));
const problem = (member: string | null, kind: ArchiveProblem['problem'] = 'damaged') => [
  { member, problem: kind },
];

describe('the states that can be restored', () => {
  test.each([
    ['nothing is wrong', [], [1, 2, 3]],
    ['the first layer is damaged', problem('base.qcow2'), []],
    ['a middle layer has another hash', problem('layer2', 'hash_mismatch'), [1]],
    ['the last layer is cut', problem('layer3', 'truncated'), [1, 2]],
    ['the XML of one state is missing', problem('0002_vm.xml', 'missing'), [1, 3]],
    ['a member stands elsewhere', problem('layer3', 'wrong_order'), [1, 2]],
    ['something unexpected is there', problem('x', 'unexpected'), [1, 2, 3]],
    ['the tail is torn', problem(null, 'torn_tail'), [1, 2, 3]],
    ['the end is odd', problem(null, 'structure'), [1, 2, 3]],
  ] as const)('when %s', (_, problems, states) => {
    expect(restorableStates(manifests.map(needsOf), problems)).toEqual(states);
  });

  test('are only those whose manifest can be read', () => {
    expect(restorableStates([manifests[2]!, manifests[0]!].map(needsOf), [])).toEqual([1, 3]);
    expect(restorableStates([], [])).toEqual([]);
  });
});

test('a state needs its own sides, its images and its saved states, and nothing of other states', () => {
  const [first, second] = manifestAt(2).states;
  const side = (member: string) => ({ member, formerPath: null, format: null });
  const saved = {
    name: 'nightly',
    parent: null,
    current: true,
    created: null,
    description: null,
    xmlMember: '0002_nightly.snapshot.xml',
    memoryMember: 'nightly.memory',
    formerMemoryPath: null,
    nvram: null,
    tpm: side('0002_nightly.tpm.tar'),
  };
  const image = { target: 'sda', formerPath: '/i', sizeBytes: 1, poolId: null, poolName: null };
  const manifest = manifestAt(2, {
    states: [
      { ...first!, memoryMember: 's1.memory' },
      { ...second!, memoryMember: 's2.memory', nvram: side('0002_nvram.fd') },
    ],
    isos: [
      { ...image, member: 'cd.iso' },
      { ...image, member: null },
    ],
    snapshots: [saved],
  });
  expect(neededMembers(manifest).sort()).toEqual(
    [
      ['0002_vm.xml', 's2.memory', '0002_nvram.fd'],
      ['0002_nightly.snapshot.xml', 'nightly.memory', '0002_nightly.tpm.tar'],
      ['base.qcow2', 'layer2', 'cd.iso'],
    ]
      .flat()
      .sort(),
  );
});
