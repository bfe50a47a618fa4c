import { expect, test } from '@jest/globals';
import { Claims } from '../../claims.ts';
import { parseDomain } from '../../domain-xml/index.ts';
import { deviceNamesOf } from '../devices/devices-here.ts';
import { attachableDevices, type DeviceFacts, judgeDevice } from './devices.ts';

const free: DeviceFacts = { isPresent: true };
const unheard: DeviceFacts = { isPresent: true, unheard: 'node n2 was not heard' };
const used: DeviceFacts = { isPresent: true, usedBy: 'vm on the node n2' };

test.each<[string, DeviceFacts, boolean, boolean, object]>([
  ['in place, free', free, false, true, { attach: true }],
  ['in place, used', used, false, true, { attach: false, refuse: false }],
  ['in place, not all nodes heard', unheard, false, true, { attach: false, refuse: false }],
  ['in place, not there', { isPresent: false }, false, true, { attach: false, refuse: false }],
  ['beside the original', free, false, false, { attach: false, refuse: false }],
  ['beside the original, asked for', free, true, false, { attach: true }],
  ['asked for, used', used, true, false, { attach: false, refuse: true }],
  ['asked for, not there', { isPresent: false }, true, true, { attach: false, refuse: true }],
  [
    'asked for, not all nodes heard',
    unheard,
    true,
    true,
    { attach: true, warning: expect.stringContaining('n2') },
  ],
])('a LUN %s', (...row) => {
  const [, facts, asked, keepIdentity, verdict] = row;
  expect(judgeDevice(facts, asked, keepIdentity)).toMatchObject(verdict);
});

test('another restore that defines its VM and ends while the node is looked at does not get the same device', async () => {
  const config = parseDomain(
    `<domain type='kvm'><name>vm</name><uuid>11111111-2222-4333-8444-555555555555</uuid><memory>1</memory><os><type>hvm</type></os>
    <devices><disk type='network' device='disk'><source protocol='rbd' name='pool/image'><host name='ceph'/></source>
    <target dev='vda'/></disk></devices></domain>`,
  );
  const claims = new Claims();
  const [key = ''] = await deviceNamesOf(config.disks[0]!, []);
  const end = claims.make([{ kind: 'device', key }], { domainId: 'other', domainName: 'other' });
  const libvirt = {
    domains: async () => {
      end();
      return [];
    },
  };
  const dependencies = {
    claims,
    libvirt: () => libvirt,
    otherNodes: { whoUses: async () => [{ kind: 'unused' }] },
    nodeName: 'n',
  } as unknown as Parameters<typeof attachableDevices>[0];
  const question = {
    ...{ config, keepIdentity: true, trust: 'own' as const, named: [] },
    claimant: { domainId: config.uuid, domainName: 'vm' },
  };
  const scope = { claim: () => {}, signal: new AbortController().signal };
  const { targets, reasons } = await attachableDevices(dependencies, [], question, scope);
  expect([...targets]).toEqual([]);
  expect(reasons.get('vda')).toContain('which is being restored');
});
