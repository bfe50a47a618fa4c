import { describe, expect, test } from '@jest/globals';
import { buildChain, presentBranch, type SavedState } from './chain.ts';

const state = (
  name: string,
  parent: string | null,
  [frozen, overlay]: [string, string],
  createdUnix: number,
): SavedState => ({
  name,
  parent,
  current: false,
  description: '',
  createdUnix,
  memory: 'no',
  memoryPath: null,
  overlays: { vda: overlay },
  frozen: { vda: frozen },
  internalDisks: [],
  deleting: false,
  xml: '',
});
const files = (...paths: string[]) => [
  {
    targetDev: 'vda',
    files: paths.map(path => ({ path, format: 'qcow2', virtualSize: 9, allocatedSize: 5, fileSize: 9 })),
  },
];

describe('the chain of a VM', () => {
  test('tells which state froze and which made each layer', () => {
    const states = [state('s2', 's1', ['/b', '/c'], 20), state('s1', null, ['/a', '/b'], 10)];
    const chain = buildChain('vm', files('/c', '/b', '/a'), states);
    expect(chain.states.map(({ name }) => name)).toEqual(['s1', 's2']);
    expect(chain.disks[0]!.layers).toMatchObject([
      { path: '/a', format: 'qcow2', frozenBy: 's1', madeBy: null },
      { path: '/b', format: 'qcow2', frozenBy: 's2', madeBy: 's1' },
      { path: '/c', format: 'qcow2', frozenBy: null, madeBy: 's2' },
    ]);
  });

  test('after a revert, the states of the branch that was left are told apart', () => {
    const [s1, s2, s3] = [
      { ...state('s1', null, ['/a', '/d'], 1), current: true },
      state('s2', 's1', ['/b', '/c'], 2),
      state('s3', 's2', ['/c', '/e'], 3),
    ];
    const inside = { ...state('inside', 's3', ['/e', '/e'], 4), overlays: {} };
    expect(presentBranch([s1, s2, s3, inside])).toEqual({ present: [s1], left: ['s2', 's3', 'inside'] });
    const early = { ...inside, name: 'early', parent: 's1' };
    expect(presentBranch([s1, early]).left).toEqual([]);
    const linear = [{ ...s1, current: false }, s2, { ...s3, current: true }];
    expect(presentBranch(linear)).toEqual({ present: linear, left: [] });
    expect(presentBranch([s2, s3]).left).toEqual([]);
    const chain = buildChain('vm', files('/d', '/a'), presentBranch([s1, s2, s3]).present);
    expect(chain.disks[0]!.layers.map(({ frozenBy }) => frozenBy)).toEqual(['s1', null]);
  });

  test.each([
    [
      'branches',
      [
        state('s1', null, ['/a', '/b'], 1),
        state('s2', 's1', ['/b', '/c'], 2),
        state('s3', 's1', ['/b', '/d'], 3),
      ],
    ],
    ['keeps', [state('s1', null, ['/elsewhere', '/b'], 1)]],
    ['interrupted', [{ ...state('s1', null, ['/a', '/b'], 1), deleting: true }]],
  ])('refuses a chain it cannot carry: %s', (_name, states) => {
    expect(() => buildChain('vm', files('/d', '/c', '/b', '/a'), states)).toThrow(
      expect.objectContaining({ msgKey: 'snapshot_chain_unsupported' }),
    );
  });
});
