import { expect, test } from '@jest/globals';
import { manifestOf } from '../../archive/test-kit.ts';
import { backupWarnings } from './show-backup.ts';

const XML = { name: '0001_vm.xml', kind: 'domain_xml' as const, sizeBytes: 1, dataOffset: 0, sha256: null };
const manifest = manifestOf([{ ...XML, formerPath: null }], {
  isos: [
    { target: 'sdb', member: null, formerPath: '/iso/a.iso', sizeBytes: 1, poolId: null, poolName: null },
  ],
  luns: [{ target: 'sda', formerPath: '/dev/sdx', wwn: null }],
});

test.each([
  ['own', true, 'or elsewhere one of the same size', 'attached when it is there'],
  ['fleet', true, 'an ISO image at this path', 'attached when it is there'],
  ['fleet', false, 'an ISO image at this path', 'attached only where its target is named'],
  ['foreign', false, 'an ISO image at this path', 'not attached'],
] as const)(
  'what a backup does not hold comes from the node: %s, made by one node: %s',
  (trust, byOneNode, image, lun) => {
    const warnings = backupWarnings(manifest, manifest.states[0]!, { trust, byOneNode });
    expect(warnings).toEqual([
      { key: 'iso_excluded', text: expect.stringContaining(image) },
      { key: 'lun_not_copied', text: expect.stringContaining(lun) },
    ]);
  },
);
