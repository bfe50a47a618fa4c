import { expect, test } from '@jest/globals';
import type { Judgement } from '../../archive/index.ts';
import { Claims } from '../../claims.ts';
import { parseDomain } from '../../domain-xml/index.ts';
import {
  attachableDevices,
  type DeviceFacts,
  type DeviceQuestion,
  doubtAbout,
  judgeDevice,
} from './devices.ts';

const free: DeviceFacts = {};
const unheard: DeviceFacts = { unheard: 'node n2 was not heard' };
const used: DeviceFacts = { usedBy: 'vm on the node n2' };
const away: DeviceFacts = { fault: 'it is not there' };

test.each<[string, DeviceFacts, boolean, object]>([
  ['free', free, false, { attach: true }],
  ['used', used, false, { attach: false, refuse: false, reason: 'it is used by vm on the node n2' }],
  ['not all nodes heard', unheard, false, { attach: false, refuse: false }],
  ['not there', away, false, { attach: false, refuse: false, reason: 'it is not there' }],
  ['asked for, free', free, true, { attach: true }],
  ['asked for, used', used, true, { attach: false, refuse: true }],
  ['asked for, not there', away, true, { attach: false, refuse: true }],
  ['asked for, not all nodes heard', unheard, true, { attach: true, warning: expect.stringContaining('n2') }],
])('a LUN %s', (_what, facts, asked, verdict) => {
  expect(judgeDevice(facts, asked)).toMatchObject(verdict);
});

const own: Pick<Judgement, 'trust' | 'byOneNode'> = { trust: 'own', byOneNode: true };
const fleet = { ...own, trust: 'fleet' as const };
const LUN = { type: 'block', path: '/dev/disk/by-id/wwn-0x600140512345678a' };
const sdb = { ...LUN, path: '/dev/sdb' };
const network = { type: 'network' };
const beside = { judgement: own, keepIdentity: false };
const inPlace = { judgement: own, keepIdentity: true };
const afar: Pick<DeviceQuestion, 'judgement' | 'keepIdentity'> = { ...inPlace, judgement: fleet };
const mixed = { ...inPlace, judgement: { ...fleet, byOneNode: false } };

test.each([
  ['a LUN of this node', LUN, beside, undefined],
  ['a LUN of another node', LUN, { ...beside, judgement: fleet }, undefined],
  ['one that may be another one by now, in place', sdb, inPlace, undefined],
  ['one that may be another one by now', sdb, beside, expect.stringContaining('another one may have it')],
  [
    'one of another node that may be another one',
    sdb,
    afar,
    expect.stringContaining('another one may have it'),
  ],
  ['one of several makers', LUN, mixed, expect.stringContaining('not one node alone')],
  ['storage on the network, in place', network, inPlace, undefined],
  ['storage on the network, of a new VM', network, beside, expect.stringContaining('on the network')],
  ['storage on the network, of another node', network, afar, expect.stringContaining('on the network')],
])('%s', (_what, disk, question, doubt) => {
  expect(doubtAbout(disk, question)).toEqual(doubt);
});

/** What becomes of the only device of a VM. @param libvirt what the node has */
function attach(
  devices: string,
  { judgement, keepIdentity }: typeof afar,
  libvirt: object,
  claims = new Claims(),
) {
  const config = parseDomain(
    `<domain type='kvm'><name>vm</name><uuid>11111111-2222-4333-8444-555555555555</uuid><memory>1</memory><os><type>hvm</type></os>
    <devices>${devices}</devices></domain>`,
  );
  const dependencies = {
    claims,
    libvirt: () => libvirt,
    otherNodes: { whoUses: async () => [{ kind: 'unused' }] },
    nodeName: 'n',
  } as unknown as Parameters<typeof attachableDevices>[0];
  const question = {
    ...{ config, keepIdentity, judgement, named: [] },
    claimant: { domainId: config.uuid, domainName: 'vm' },
  };
  const scope = { claim: () => {}, signal: new AbortController().signal };
  return attachableDevices(dependencies, [], question, scope);
}

test.each([
  ['of a new VM', beside],
  ['of another node', afar],
])('a LUN %s is looked for', async (_what, question) => {
  const lun = `<disk type='block' device='lun'><source dev='${LUN.path}'/><target dev='sda'/></disk>`;
  const { targets, reasons } = await attach(lun, question, { domains: async () => [] });
  expect([[...targets], reasons.get('sda')]).toEqual([[], 'it is not there']);
});

test('another restore that defines its VM and ends while the node is looked at does not get the same device', async () => {
  const disk =
    "<disk type='network' device='disk'><source protocol='rbd' name='pool/image'><host name='ceph'/></source><target dev='vda'/></disk>";
  const claims = new Claims();
  const end = claims.make([{ kind: 'device', key: 'rbd:pool/image' }], {
    domainId: 'other',
    domainName: 'other',
  });
  const libvirt = {
    domains: async () => {
      end();
      return [];
    },
  };
  const { targets, reasons } = await attach(disk, inPlace, libvirt, claims);
  expect([...targets]).toEqual([]);
  expect(reasons.get('vda')).toContain('which is being restored');
});
