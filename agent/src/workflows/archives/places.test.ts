import { expect, test } from '@jest/globals';
import type { Manifest, MemberRecord } from '../../archive/index.ts';
import { manifestOf } from '../../archive/test-kit.ts';
import { withTruePlaces } from './places.ts';

const ID = '43175a8c-23a1-58f6-98ab-996325384455';

const XML: MemberRecord = {
  ...{ name: '0001_vm.xml', kind: 'domain_xml', sizeBytes: 1, dataOffset: 0, sha256: null, formerPath: null },
};

/** As agents of before wrote it down for a conversion into /a. */
function converted(change: Partial<Manifest['disks'][number]> = {}): Manifest {
  const formerPath = `/a/${ID}.qcow2`;
  const place = { poolId: 'a', poolName: 'a' };
  return {
    ...manifestOf([XML]),
    options: { exclude_iso: false, compress: false, hash_sum: false, can_be_incremental: false },
    disks: [
      {
        ...{ id: ID, target: 'sda', bus: 'sata', virtualSizeBytes: 1024, format: 'qcow2', base: null },
        ...{ ...place, formerFormat: 'raw', formerPath },
        layers: [{ member: `${ID}.qcow2`, stateNumber: 1, frozenBy: null, formerPath }],
        ...change,
      },
    ],
    isos: [{ ...place, target: 'sdb', member: 'cd.iso', formerPath: '/a/cd.iso', sizeBytes: 1 }],
  };
}

test('a backup that was converted has no former places, whoever converted it', () => {
  const { disks, isos } = withTruePlaces(converted());
  const nowhere = { poolId: null, poolName: null };
  expect(disks).toMatchObject([{ ...nowhere, formerPath: '', layers: [{ formerPath: null }] }]);
  expect(isos).toMatchObject([{ ...nowhere, member: 'cd.iso', formerPath: 'cd.iso' }]);
});

test.each<[string, Manifest]>([
  ['of a qcow2 image', converted({ formerFormat: 'qcow2' })],
  ['of a raw image', converted({ formerPath: `/a/${ID}.img` })],
  ['with the options of a backup', { ...converted(), options: { exclude_vdisks: [] } }],
  ['without disks', { ...converted(), disks: [] }],
])('one %s keeps its own', (_what, manifest) => {
  expect(withTruePlaces(manifest)).toEqual(manifest);
});
