import { describe, expect, test } from '@jest/globals';
import { planAutomaticState } from './plan.ts';

describe('plan of the automatic state', () => {
  test('puts overlays beside their disks and leaves unwanted disks out', () => {
    const disk = { block: false, included: true };
    const plan = planAutomaticState(
      'vm',
      { operationId: 'op', mode: 'memory' },
      [
        { ...disk, targetDev: 'vda', path: '/a/x.qcow2' },
        { ...disk, targetDev: 'vdb', path: '/b/x.qcow2', included: false },
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

  test('is refused where it cannot be told which file the disk is', () => {
    const disk = { targetDev: 'vda', path: '/a/link/../x.qcow2', block: false, included: true };
    const plan = (included: boolean) =>
      planAutomaticState('vm', { operationId: 'op', mode: 'disks' }, [{ ...disk, included }], '/spare');
    expect(() => plan(true)).toThrow(expect.objectContaining({ msgKey: 'power_state_conflict' }));
    expect(plan(false).disks).toEqual([{ targetDev: 'vda', overlayPath: null }]);
  });
});
