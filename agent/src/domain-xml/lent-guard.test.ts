import { describe, expect, test } from '@jest/globals';
import { refuseWhileLent } from './lent-guard.ts';

const loan = (diskId: string, borrowerId = 'b1') => ({ diskId, borrowerId });

describe('refuseWhileLent', () => {
  test('lets a domain do anything that lends nothing', () => {
    refuseWhileLent({}, 'web', 'reverted');
    refuseWhileLent({ loans: [] }, 'web', 'reverted');
  });

  test('names disks and borrowers', () => {
    const names = { disk: (id: string) => (id === 'd1' ? 'vda' : undefined), domain: () => 'backup-vm' };
    expect(() => refuseWhileLent({ loans: [loan('d1'), loan('d2')] }, 'web', 'reverted', names)).toThrow(
      expect.objectContaining({
        msgKey: 'vdisk_attached_elsewhere',
        message: expect.stringContaining('vda (d1) to backup-vm (b1), d2 to backup-vm (b1). Detach'),
      }),
    );
  });

  test('tells a kept clone, and does not tell hundreds of loans', () => {
    const loans = [{ ...loan('d0'), cloneKept: true as const }];
    expect(() => refuseWhileLent({ loans }, 'web', 'removed')).toThrow('a clone of d0 was kept');
    const many = Array.from({ length: 24 }, (_, index) => loan(`d${index}`));
    expect(() => refuseWhileLent({ loans: many }, 'web', 'removed')).toThrow('and 14 more');
  });
});
