import { describe, expect, test } from '@jest/globals';
import type { Layer } from '../../disks/index.ts';
import { type DiskConfig, type DomainConfig, NO_METADATA } from '../../domain-xml/index.ts';
import type { PoolRecord } from '../../pools/index.ts';
import { type CloneRules, planClone } from './clone-plan.ts';

const pool = (id: string, change: Partial<PoolRecord> = {}) =>
  ({
    id,
    name: id,
    kind: 'local',
    path: `/${id}`,
    hasDirectory: true,
    active: true,
    mounted: true,
    readonly: false,
    outside: false,
    isBase: id === 'base',
    ...change,
  }) as PoolRecord;

const disk = (change: Partial<DiskConfig> = {}): DiskConfig => ({
  device: 'disk',
  type: 'file',
  path: '/fast/a.qcow2',
  source: '/fast/a.qcow2',
  format: 'qcow2',
  targetDev: 'vda',
  bus: 'virtio',
  readonly: false,
  shareable: false,
  transient: false,
  sliced: false,
  encrypted: false,
  ...change,
});

const layer = (path: string, change: Partial<Layer> = {}): Layer => ({
  path,
  format: 'qcow2',
  virtualSize: 100,
  allocatedSize: 10,
  fileSize: 10,
  dataFile: false,
  encrypted: false,
  unknownFeatures: false,
  ...change,
});

const domain = (...disks: DiskConfig[]) =>
  ({
    name: 'golden',
    disks,
    hostdevs: [],
    metadata: { ...NO_METADATA, attachments: [] },
  }) as unknown as DomainConfig;

function rules(change: Partial<CloneRules> = {}): CloneRules {
  let count = 0;
  const newId = () => {
    count += 1;
    return `id${count}`;
  };
  const layers = new Map([['vda', [layer('/fast/a.qcow2')]]]);
  return { thin: true, pools: [pool('fast'), pool('base')], chosen: null, layers, newId, ...change };
}

test('a disk gets a new file beside the old one, or in the pool asked for', () => {
  expect(planClone(domain(disk()), rules()).disks).toMatchObject([
    { path: '/fast/id1.qcow2', id: 'id1', format: 'qcow2', source: { path: '/fast/a.qcow2' } },
  ]);
  expect(planClone(domain(disk()), rules({ chosen: pool('bulk') })).disks[0]!.path).toBe('/bulk/id1.qcow2');
});

test('a raw file is cloned as raw, a device into the base pool as qcow2, and thin is always qcow2', () => {
  const raw = disk({ format: 'raw' });
  const device = disk({ format: 'raw', type: 'block', path: '/dev/sdx' });
  expect(planClone(domain(raw), rules({ thin: false })).disks[0]).toMatchObject({ path: '/fast/id1.raw' });
  expect(planClone(domain(raw), rules()).disks[0]).toMatchObject({ path: '/fast/id1.qcow2' });
  expect(planClone(domain(device), rules({ thin: false })).disks[0]).toMatchObject({
    path: '/base/id1.qcow2',
    format: 'qcow2',
  });
});

test.each([
  ['a LUN', { device: 'lun' }],
  ['a network disk', { type: 'network' }],
  ['a shared disk', { shareable: true }],
  ['a transient disk', { transient: true }],
] as [string, Partial<DiskConfig>][])('%s is left out, with a warning', (_what, change) => {
  const plan = planClone(domain(disk(change)), rules());
  expect(plan).toMatchObject({ disks: [], left: ['vda'] });
  expect(plan.warnings).toHaveLength(1);
});

test('drives stay, disks of other VMs and mediated devices do not', () => {
  const lent = disk({ path: '/x', readonly: true });
  const config = domain(disk({ device: 'cdrom', targetDev: 'sda', path: '/cd.iso' }), lent);
  const attachment = {
    diskId: 'd',
    ownerId: 'o',
    attachedId: 'a',
    targetDev: 'vda',
    path: '/x',
    thinClone: false,
  };
  config.metadata.attachments.push(attachment);
  config.hostdevs.push({ type: 'mdev', address: 'u' }, { type: 'pci', address: 'p' });
  const plan = planClone(config, rules());
  expect(plan).toMatchObject({ disks: [], left: ['vda'] });
  expect(plan.warnings).toHaveLength(2);
});

describe('refused is', () => {
  const two = new Map([['vda', [layer('/fast/b'), layer('/fast/a.qcow2')]]]);
  const encrypted = new Map([['vda', [layer('/fast/a.qcow2', { encrypted: true })]]]);
  test.each<[string, Partial<DiskConfig>, Partial<CloneRules>, string]>([
    ['another format', { format: 'vmdk' }, {}, 'clone_refused'],
    ['a part of a file', { sliced: true }, {}, 'clone_refused'],
    ['an encrypted disk', {}, { layers: encrypted }, 'clone_refused'],
    ['a disk that is not there', {}, { layers: new Map() }, 'clone_refused'],
    ['a thin clone of what stands on other files', {}, { layers: two }, 'clone_refused'],
    ['a read-only pool', {}, { pools: [pool('fast', { readonly: true })] }, 'pool_read_only'],
    ['an outside pool', {}, { chosen: pool('out', { outside: true }) }, 'pool_outside'],
  ])('%s', (_what, change, own, msgKey) => {
    expect(() => planClone(domain(disk(change)), rules(own))).toThrow(expect.objectContaining({ msgKey }));
  });

  test('and not a full clone of several layers', () => {
    expect(planClone(domain(disk()), rules({ thin: false, layers: two })).disks).toHaveLength(1);
  });
});
