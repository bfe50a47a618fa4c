import { expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { Claims } from '../../claims.ts';
import { parseDomain } from '../../domain-xml/index.ts';
import { attachableDevices } from '../restore/devices.ts';

const TOO_DEEP = `<metadata><x:y xmlns:x='urn:x'>${'<a>'.repeat(70)}${'</a>'.repeat(70)}</x:y></metadata>`;
const definition = (devices: string, metadata = '') =>
  `<domain type='kvm'><name>vm</name><uuid>11111111-2222-4333-8444-555555555555</uuid>${metadata}` +
  `<memory>1</memory><os><type>hvm</type></os><devices>${devices}</devices></domain>`;
const rbd = (image: string) =>
  `<disk type='network' device='disk'><source protocol='rbd' name='${image}'/><target dev='vda'/></disk>`;

/** What becomes of the disk `pool/a` on a node with one other VM. */
async function restoreBeside(xml: string, { keepIdentity = true, named = [] as string[] } = {}) {
  let listed = 0;
  const other = {
    uuid: 'other',
    name: 'odd',
    xml: async () => xml,
    hasManagedSave: async () => false,
    snapshots: async () => [],
  };
  const domains = async () => {
    listed += 1;
    return [other];
  };
  const found = await attachableDevices(
    {
      libvirt: () => ({ domains }) as unknown as Libvirt,
      otherNodes: { whoUses: async things => things.map(() => ({ kind: 'unused' }) as const) },
      claims: new Claims(),
      nodeName: 'one',
    },
    [],
    {
      config: parseDomain(definition(rbd('pool/a'))),
      keepIdentity,
      judgement: { trust: 'own', byOneNode: true },
      named,
      claimant: { domainId: 'restored', domainName: 'restored' },
    },
    { claim: () => {}, signal: AbortSignal.timeout(240_000) },
  );
  return { ...found, listed };
}

test('a VM that cannot be read and names another device keeps nothing from being attached', async () => {
  const found = await restoreBeside(definition(rbd('pool/b'), TOO_DEEP));
  expect([...found.targets]).toEqual(['vda']);
  expect(found.warnings).toEqual([]);
});

test('a device that stands in the text of a VM that cannot be read is attached only when it is asked for', async () => {
  const xml = definition(rbd('pool/a'), TOO_DEEP);
  const left = await restoreBeside(xml);
  expect([...left.targets]).toEqual([]);
  expect(left.reasons.get('vda')).toMatch(/the VM odd of this node cannot be read/);
  const asked = await restoreBeside(xml, { named: ['vda'] });
  expect([...asked.targets]).toEqual(['vda']);
  expect(asked.warnings).toEqual([expect.stringMatching(/the VM odd of this node cannot be read/)]);
});

test('a device that is away, or a volume of an unknown pool, may be any', async () => {
  const away = "<disk type='block' device='lun'><source dev='/dev/not-there'/><target dev='sda'/></disk>";
  const volume = "<disk type='volume' device='disk'><source pool='p' volume='v'/><target dev='vdb'/></disk>";
  for (const devices of [away, volume])
    expect([...(await restoreBeside(definition(devices, TOO_DEEP))).targets]).toEqual([]);
});

test('nobody is asked about storage on the network that a new VM was not given by name', async () => {
  const found = await restoreBeside(definition(rbd('pool/a'), TOO_DEEP), { keepIdentity: false });
  expect(found.listed).toBe(0);
  expect(found.reasons.get('vda')).toMatch(/on the network/);
});
