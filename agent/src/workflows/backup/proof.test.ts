import { describe, expect, test } from '@jest/globals';
import type { Manifest } from '../../archive/index.ts';
import { incrementTag, type SavedState } from '../../snapshots/index.ts';
import { abandonedStates, statesToMerge } from './hold.ts';
import type { OwnChain } from './members.ts';
import { type ExtensionFacts, proveExtension } from './proof.ts';

const VM = '11111111-1111-4111-8111-111111111111';
const ID = '22222222-2222-4222-8222-222222222222';
const OTHER = '33333333-3333-4333-8333-333333333333';

const state = (name: string, description: string, overlays = {}, frozen = {}): SavedState => ({
  name,
  parent: null,
  current: false,
  description,
  createdUnix: 1_800_000_000,
  memory: 'no',
  memoryPath: null,
  overlays,
  frozen,
  internalDisks: [],
  deleting: false,
  xml: '',
});

const chain = (...paths: string[]): OwnChain => ({
  base: null,
  layers: paths.map(path => ({
    path,
    format: 'qcow2',
    frozenBy: null,
    madeBy: null,
    virtualSize: 100,
    allocatedSize: 1,
    fileSize: 1,
  })),
});

const manifest = (change: object = {}): Manifest =>
  ({
    backupId: ID,
    vm: { uuid: VM, name: 'vm' },
    incremental: true,
    template: null,
    snapshots: [],
    states: [
      { number: 1, name: 'b1', created: '2026-01-01T00:00:00.000Z' },
      { number: 2, name: 'b2', created: '2026-01-02T00:00:00.000Z' },
    ],
    disks: [
      {
        id: 'disk-a',
        target: 'vda',
        virtualSizeBytes: 100,
        base: null,
        layers: [
          { member: 'a', stateNumber: 1, frozenBy: 'b1', formerPath: '/a' },
          { member: 'a2', stateNumber: 2, frozenBy: null, formerPath: '/a.1' },
        ],
      },
    ],
    ...change,
  }) as unknown as Manifest;

const last = state('b2', incrementTag(ID, 2), { vda: '/a.2' }, { vda: '/a.1' });
const facts = (change: Partial<ExtensionFacts> = {}): ExtensionFacts => ({
  domainId: VM,
  statesDeleted: undefined,
  states: [last],
  template: null,
  chains: new Map([['vda', chain('/a', '/a.1', '/a.2')]]),
  ...change,
});
const layersOf = (disk: string, ...paths: string[]) => ({ chains: new Map([[disk, chain(...paths)]]) });

describe('an archive can be extended', () => {
  const proved = (change: Partial<ExtensionFacts> = {}, of = manifest()) => {
    const proof = proveExtension(of, facts(change));
    if ('reason' in proof) throw new Error(proof.reason);
    return [...proof.disks].map(([target, { id, from }]) => [target, id, from]);
  };

  test('by the layers from the overlay of its last state up', () => {
    expect(proved()).toEqual([['vda', 'disk-a', 2]]);
    expect(proved(layersOf('vda', '/a', '/a.1', '/a.2', '/user', '/b'))).toEqual([['vda', 'disk-a', 2]]);
  });

  test('when older states were merged', () => {
    const merged = { ...last, frozen: { vda: '/a' } };
    expect(proved({ states: [merged], ...layersOf('vda', '/a', '/a.2') })).toEqual([['vda', 'disk-a', 1]]);
  });

  test('the last state of before names what it froze', () => {
    const proof = proveExtension(manifest(), facts());
    expect('disks' in proof && proof.disks.get('vda')!.layers.map(layer => layer.frozenBy)).toEqual([
      'b1',
      'b2',
    ]);
  });

  test('a disk on another target keeps its identity; a removed and a replaced one are absent', () => {
    expect(proved(layersOf('vdx', '/a', '/a.1', '/a.2'))).toEqual([['vdx', 'disk-a', 2]]);
    expect(proved({ chains: new Map() })).toEqual([]);
    expect(proved(layersOf('vda', '/other'))).toEqual([]);
  });

  test('when a state that an increment made is gone, and only such a one', () => {
    const snapshot = (description: string | null) =>
      manifest({ snapshots: [{ name: 's', created: '2027-01-15T08:00:00.000Z', description }] });
    expect(proved({}, snapshot(incrementTag(OTHER, 7)))).toHaveLength(1);
    expect(proveExtension(snapshot(null), facts())).toEqual({ reason: 'the saved state "s" was deleted' });
    expect(proved({ states: [last, state('s', '')] }, snapshot(null))).toHaveLength(1);
    const later = { ...state('s', ''), createdUnix: 1_900_000_000 };
    expect(proveExtension(snapshot(null), facts({ states: [last, later] }))).toHaveProperty('reason');
  });

  test('a disk that nobody writes to is there already when its file is the same', () => {
    const layers = [{ member: 'r', stateNumber: 1, frozenBy: null, formerPath: '/r', modified: 'then' }];
    const readonly = { id: 'disk-r', target: 'vdr', virtualSizeBytes: 100, base: null, layers };
    const of = manifest({ disks: [readonly] });
    const same = chain('/r');
    same.layers[0]!.modified = 'then';
    expect(proved({ chains: new Map([['vdr', same]]) }, of)).toEqual([['vdr', 'disk-r', 1]]);
    same.layers[0]!.modified = 'later';
    expect(proved({ chains: new Map([['vdr', same]]) }, of)).toEqual([]);
  });
});

describe('an archive cannot be extended', () => {
  test.each<[string, Partial<ExtensionFacts>, object, RegExp]>([
    ['another VM', { domainId: OTHER }, {}, /another VM/],
    ['a plain backup', {}, { incremental: false }, /without increment capability/],
    ['a state deleted since', { statesDeleted: new Date('2026-01-03') }, {}, /was deleted or reverted/],
    [
      'a state deleted since, whatever the clock says',
      { statesDeleted: new Date('2026-01-01') },
      {},
      /was deleted or reverted/,
    ],
    [
      'its state deleted in the very moment it was made',
      { states: [], statesDeleted: new Date('2026-01-02') },
      {},
      /was deleted or reverted/,
    ],
    ['its state is gone', { states: [] }, {}, /no saved state "b2"/],
    ['a state of that name', { states: [{ ...last, description: 'mine' }] }, {}, /not the one/],
    [
      'a state of another archive',
      { states: [{ ...last, description: incrementTag(OTHER, 2) }] },
      {},
      /not the one/,
    ],
    [
      'a state of another number',
      { states: [{ ...last, description: incrementTag(ID, 1) }] },
      {},
      /not the one/,
    ],
    ['merged by hand', layersOf('vda', '/a', '/a.1'), {}, /no longer in a layer of its own/],
    ['pulled by hand', layersOf('vda', '/a.2'), {}, /below "b2" were changed/],
    ['rebased by hand', layersOf('vda', '/a', '/x', '/a.2'), {}, /below "b2" were changed/],
    ['another template', { template: { domainId: OTHER, name: 't', version: '1' } }, {}, /template/],
  ])('%s', (_, change, of, reason) => {
    expect(proveExtension(manifest(of), facts(change))).toEqual({ reason: expect.stringMatching(reason) });
  });

  test('a deletion before the last state does no harm; a smaller disk does', () => {
    // the clock may have been set back since: the state knows what was deleted before it
    for (const statesDeleted of [new Date('2026-01-01T12:00:00Z'), new Date('2026-01-03')]) {
      const knowing = { ...last, deletedBefore: statesDeleted };
      expect(proveExtension(manifest(), facts({ statesDeleted, states: [knowing] }))).toHaveProperty('disks');
    }
    const chains = new Map([['vda', chain('/a', '/a.1', '/a.2')]]);
    chains.get('vda')!.layers.at(-1)!.virtualSize = 99;
    expect(proveExtension(manifest(), facts({ chains }))).toEqual({
      reason: expect.stringMatching(/smaller/),
    });
  });
});

test('of the states of an archive three stay, the current one among them', () => {
  const own = (...numbers: number[]) => numbers.map(number => state(`s${number}`, incrementTag(ID, number)));
  const others = [state('user', ''), state('other', incrementTag(OTHER, 1))];
  expect(statesToMerge([...own(1, 2, 3), ...others], ID)).toEqual([]);
  expect(statesToMerge([...others, ...own(3, 1, 4, 2, 5)], ID)).toEqual(['s1', 's2']);
  expect(statesToMerge(others, ID)).toEqual([]);
});

test('states of an archive that was removed are abandoned, and no others', () => {
  const states = [state('o1', incrementTag(OTHER, 1)), state('b1', incrementTag(ID, 1)), state('mine', '')];
  expect(abandonedStates(states, undefined, ID, [])).toEqual([]);
  expect(abandonedStates(states, undefined, ID, [OTHER, ID])).toEqual(['o1']);
});

describe('states of other archives are abandoned', () => {
  const [before, after] = [new Date('2026-01-01'), new Date('2026-01-05')];
  const made = (name: string, backupId: string, number: number, deletedBefore: Date | undefined) => ({
    ...state(name, incrementTag(backupId, number)),
    ...(deletedBefore ? { deletedBefore } : {}),
  });

  test('when a deletion came after the newest of them', () => {
    const states = [made('o1', OTHER, 1, before), made('o2', OTHER, 2, before), made('b1', ID, 1, after)];
    expect(abandonedStates(states, after, ID)).toEqual(['o1', 'o2']);
    expect(abandonedStates(states, before, ID)).toEqual([]);
    expect(abandonedStates([...states, state('mine', '')], undefined, ID)).toEqual(['o1', 'o2']);
  });

  test('when they have grown too long, whatever was deleted', () => {
    const states = [made('o1', OTHER, 1, before), made('b1', ID, 1, before)];
    expect(abandonedStates(states, before, ID, [OTHER])).toEqual(['o1']);
    expect(abandonedStates(states, before, ID, [ID])).toEqual([]);
  });

  test('not while one of them is newer, and not on a branch that was left', () => {
    const states = [made('o1', OTHER, 1, before), made('o2', OTHER, 2, after), made('b1', ID, 1, after)];
    expect(abandonedStates(states, after, ID)).toEqual([]);
    const root = state('root', '', { vda: '/a' });
    const branches = [
      root,
      { ...made('o1', OTHER, 1, before), parent: 'root', overlays: { vda: '/b' } },
      { ...made('b1', ID, 1, after), parent: 'root', overlays: { vda: '/c' }, current: true },
    ];
    expect(abandonedStates(branches, after, ID)).toEqual([]);
  });
});
