import { describe, expect, test } from '@jest/globals';
import { manifestOf } from '../test-kit.ts';
import {
  encodeManifest,
  formatVersionOf,
  leftOutOf,
  type Manifest,
  type ManifestDisk,
  type ManifestPart,
  type MemberRecord,
  manifestFault,
  parseManifest,
} from './manifest.ts';
import { partOf, wholeOf } from './manifest-chain.ts';

const member = (name: string, kind: MemberRecord['kind'] = 'disk'): MemberRecord => ({
  name,
  kind,
  sizeBytes: 1,
  dataOffset: 4096,
  sha256: null,
  formerPath: null,
});
const members = [member('d.qcow2'), member('0001_vm.xml', 'domain_xml')];
const DISK: ManifestDisk = {
  id: 'd',
  target: 'vda',
  bus: null,
  virtualSizeBytes: 1,
  format: 'qcow2',
  formerFormat: 'raw',
  formerPath: '/d.img',
  poolId: null,
  poolName: null,
  layers: [{ member: 'd.qcow2', stateNumber: 1, frozenBy: null, formerPath: null }],
  base: null,
};
const place = { manifest: '0001_manifest.json', dataOffset: 0, sizeBytes: 1, sha256: '' };
/** The same with one state more. */
const twice = (manifest: Manifest): Manifest => ({
  ...manifest,
  states: [...manifest.states, { ...manifest.states[0]!, number: 2 }],
});
const parse = (value: unknown) => () => parseManifest(Buffer.from(JSON.stringify(value)), '/a.tar');
const unsupported = expect.objectContaining({ msgKey: 'archive_unsupported' });
const damaged = expect.objectContaining({ msgKey: 'archive_damaged' });

describe('manifest', () => {
  test('comes back as it was written, unknown fields included', () => {
    const manifest: Manifest = { ...manifestOf(members), futureField: { deep: [1] } };
    expect(parseManifest(encodeManifest(manifest), '/a.tar')).toEqual(manifest);
  });

  test('names files as definitions are read, whatever an archive of before says', () => {
    const of = (top: string, image: string) => ({
      ...manifestOf(members),
      disks: [
        { ...DISK, formerPath: top, layers: [{ ...DISK.layers[0]!, formerPath: top }] },
      ] satisfies ManifestDisk[],
      isos: [{ target: 'sda', member: null, formerPath: image, sizeBytes: 1, poolId: null, poolName: null }],
    });
    const former = of('/p//d.img', '/p/./i.iso');
    expect(parse(former)()).toEqual(of('/p/d.img', '/p/i.iso'));
  });

  test('a newer format is told from a damaged one', () => {
    expect(parse({ formatVersion: 4 })).toThrow(unsupported);
    expect(parse({ formatVersion: 1 })).toThrow(damaged);
    expect(parse(null)).toThrow(damaged);
    expect(() => parseManifest(Buffer.from('{'), '/a.tar')).toThrow(damaged);
    expect(() => parseManifest(Buffer.from([0xff, 0xfe]), '/a.tar')).toThrow(damaged);
  });

  test('readers of before refuse what they would misunderstand, and take all else', () => {
    const plain = manifestOf(members, { disks: [DISK] });
    const encrypted = manifestOf(members, { disks: [{ ...DISK, encryption: 'luks' }] });
    const cases: [ManifestPart, number][] = [
      [plain, 1],
      [partOf(twice(plain), plain, place), 2],
      [encrypted, 3],
      [partOf(twice(encrypted), encrypted, place), 3],
    ];
    for (const [manifest, since] of cases) {
      const bytes = encodeManifest({ ...manifest, formatVersion: formatVersionOf(manifest) });
      expect(parseManifest(bytes, '/a.tar', since)).toMatchObject({ formatVersion: since });
      expect(() => parseManifest(bytes, '/a.tar', since - 1)).toThrow(unsupported);
    }
  });

  test.each([1, 3])('of version %d is that again when it was written in part', version => {
    const encryption = version === 3 ? { encryption: 'luks' as const } : {};
    const base = manifestOf(members, { formatVersion: version, disks: [{ ...DISK, ...encryption }] });
    const part = parseManifest(encodeManifest(partOf(twice(base), base, place)), '/a.tar');
    expect(part.formatVersion).toBe(Math.max(2, version));
    expect(wholeOf(part, base)).toEqual(twice(base));
  });

  test('a VM may have any uuid that libvirt takes, also outside of RFC 9562', () => {
    const manifest = manifestOf(members);
    manifest.vm.uuid = '564d9d5e-c5a2-f1b0-0f2e-7d6f5a4b3c2d';
    expect(parse(manifest)().vm.uuid).toBe(manifest.vm.uuid);
    manifest.vm.uuid = '564d9d5e';
    expect(parse(manifest)).toThrow(damaged);
  });

  test('an unknown kind of member is kept as "other"', () => {
    const manifest = manifestOf([...members, { ...member('x'), kind: 'holograms' as 'other' }]);
    expect(parse(manifest)().members.at(-1)?.kind).toBe('other');
  });

  test.each<[string, Partial<Manifest>]>([
    ['a negative size', { members: [{ ...member('0001_vm.xml'), sizeBytes: -1 }] }],
    ['a fraction as offset', { members: [{ ...member('0001_vm.xml'), dataOffset: 1.5 }] }],
    ['a hash that is none', { members: [{ ...member('0001_vm.xml'), sha256: 'zz' }] }],
    ['no state', { states: [] }],
  ])('refuses %s', (_, changes) => {
    expect(parse(manifestOf(members, changes))).toThrow(damaged);
  });

  test('disks that were left out: as each state says; before states did, as the manifest says of the newest', () => {
    const { states } = manifestOf(members);
    const excludedDisks = [
      ...['vdb', 'vdc'].map(target => ({ target, id: target, formerPath: '/x', reason: 'excluded' })),
      { target: 'vdx', id: null, formerPath: 'nbd', reason: 'a disk of type network is not copied' },
    ];
    const told = (...leftOut: (string[] | undefined)[]) => {
      const all = leftOut.map(targets => ({ ...states[0]!, ...(targets && { leftOut: targets }) }));
      const manifest = parse(manifestOf(members, { states: all, excludedDisks }))();
      return manifest.states.map(state => leftOutOf(manifest, state));
    };
    expect(told(undefined)).toEqual([['vdb', 'vdc']]);
    expect(told(undefined, undefined)).toEqual([[], ['vdb', 'vdc']]);
    expect(told(['vdb'], undefined, ['vdb', 'vdc'])).toEqual([['vdb'], [], ['vdb', 'vdc']]);
  });

  test.each<[string, Partial<Manifest>, RegExp]>([
    ['a member listed twice', { members: [...members, member('d.qcow2')] }, /twice/],
    ['a state without its XML', { members: [member('d.qcow2')] }, /does not list it/],
  ])('finds %s', (_, changes, fault) => {
    expect(manifestFault(manifestOf(members, changes))).toMatch(fault);
  });
});
