import { describe, expect, test } from '@jest/globals';
import { nextRemovalStep, planAutomaticState, type RemovalView } from './plan.ts';

const overlay = (change: Partial<RemovalView['overlays'][number]> = {}): RemovalView['overlays'][number] => ({
  targetDev: 'vda',
  path: '/pool/a.vda.virtkeep-tmp-1',
  exists: true,
  isLiveTop: true,
  mirror: null,
  isConfigTop: true,
  isBelow: false,
  isJobRunning: false,
  ...change,
});
const view = (change: Partial<RemovalView>): RemovalView => ({
  domain: 'running',
  memorySaved: false,
  state: { hasChildren: false, deleting: false },
  overlays: [overlay()],
  memoryFile: null,
  isSnapshotting: false,
  ...change,
});

describe('plan of the automatic state', () => {
  test('puts overlays beside their disks and leaves unwanted disks out', () => {
    const disk = { block: false, wanted: true };
    const plan = planAutomaticState(
      'vm',
      'op',
      'memory',
      [
        { ...disk, targetDev: 'vda', path: '/a/x.qcow2' },
        { ...disk, targetDev: 'vdb', path: '/b/x.qcow2', wanted: false },
        { ...disk, targetDev: 'vdc', path: '/dev/zvol/z', block: true },
        { ...disk, targetDev: 'vdd', path: `/a/${'n'.repeat(250)}` },
      ],
      '/spare',
    );
    expect(plan.disks.map(entry => entry.overlayPath)).toEqual([
      '/a/x.vda.virtkeep-tmp-op',
      null,
      '/spare/z.vdc.virtkeep-tmp-op',
      '/a/_.vdd.virtkeep-tmp-op',
    ]);
    expect(plan.memoryPath).toBe('/spare/virtkeep-tmp-op.memory');
  });
});

const offView = { domain: 'off', memorySaved: true } as const;

test('a saved memory names the overlays: nothing is touched before it goes on', () => {
  expect(nextRemovalStep(view(offView))).toMatchObject({ do: 'blocked' });
  expect(nextRemovalStep(view({ ...offView, state: null }))).toMatchObject({ do: 'blocked' });
  const gone = [overlay({ exists: false, isLiveTop: false, isConfigTop: false })];
  expect(nextRemovalStep(view({ ...offView, state: null, overlays: gone }))).toEqual({ do: 'done' });
});

describe('removal, step by step', () => {
  test.each<[string, Partial<RemovalView>, unknown]>([
    ['a running guest: merge', {}, { do: 'commit', targetDev: 'vda' }],
    [
      'the merge runs',
      { overlays: [overlay({ mirror: { job: 'active-commit', ready: false } })] },
      { do: 'wait', targetDev: 'vda' },
    ],
    [
      'the merge is ready',
      { overlays: [overlay({ mirror: { job: 'active-commit', ready: true } })] },
      { do: 'pivot', targetDev: 'vda' },
    ],
    [
      'merged, the definition behind',
      { overlays: [overlay({ isLiveTop: false })] },
      { do: 'fix_definition', targetDevs: ['vda'] },
    ],
    ['merged', { overlays: [overlay({ isLiveTop: false, isConfigTop: false })] }, { do: 'forget' }],
    [
      'forgotten',
      { state: null, overlays: [overlay({ isLiveTop: false, isConfigTop: false })], memoryFile: '/m' },
      { do: 'remove_files', paths: ['/pool/a.vda.virtkeep-tmp-1', '/m'] },
    ],
    [
      'nothing left',
      { state: null, overlays: [overlay({ exists: false, isLiveTop: false, isConfigTop: false })] },
      { do: 'done' },
    ],
    [
      'the guest is off',
      { domain: 'off', overlays: [overlay({ isLiveTop: false })] },
      { do: 'commit_offline', targetDevs: ['vda'] },
    ],
    ['a later state', { state: { hasChildren: true, deleting: false } }, { do: 'native_delete' }],
    ['libvirt was interrupted', { state: { hasChildren: false, deleting: true } }, { do: 'native_delete' }],
    [
      'the domain is gone',
      { domain: 'gone', state: null, memoryFile: '/m' },
      { do: 'remove_files', paths: ['/m'] },
    ],
    [
      'libvirt still saves the memory',
      { state: null, memoryFile: '/m', isSnapshotting: true },
      { do: 'abort_save' },
    ],
    ['libvirt still makes a state', { state: null, isSnapshotting: true }, { do: 'wait_for_state' }],
    ['gone and clean', { domain: 'gone', state: null }, { do: 'done' }],
  ])('%s', (_name, change, step) => {
    expect(nextRemovalStep(view(change))).toEqual(step);
  });

  test('a layer without a state above ours: merged below it while the guest runs', () => {
    const below = { isLiveTop: false, isConfigTop: false, isBelow: true };
    const step = (domain: 'running' | 'off', change: object = {}) =>
      nextRemovalStep(view({ domain, overlays: [overlay({ ...below, ...change })] }));
    expect(step('running')).toEqual({ do: 'commit_middle', targetDev: 'vda' });
    expect(step('running', { isJobRunning: true })).toEqual({ do: 'wait', targetDev: 'vda' });
    expect(step('off')).toMatchObject({ do: 'blocked' });
  });
});
