import { describe, expect, test } from '@jest/globals';
import {
  encodeManifest,
  type Manifest,
  type MemberRecord,
  manifestFault,
  parseManifest,
} from './manifest.ts';
import { manifestOf } from './test-kit.ts';

const member = (name: string, kind: MemberRecord['kind'] = 'disk'): MemberRecord => ({
  name,
  kind,
  sizeBytes: 1,
  dataOffset: 4096,
  sha256: null,
  formerPath: null,
});
const members = [member('d.qcow2'), member('0001_vm.xml', 'domain_xml')];
const parse = (value: unknown) => () => parseManifest(Buffer.from(JSON.stringify(value)), '/a.tar');
const damaged = expect.objectContaining({ msgKey: 'archive_damaged' });

describe('manifest', () => {
  test('comes back as it was written, unknown fields included', () => {
    const manifest: Manifest = { ...manifestOf(members), futureField: { deep: [1] } };
    expect(parseManifest(encodeManifest(manifest), '/a.tar')).toEqual(manifest);
  });

  test('a newer format is told from a damaged one', () => {
    expect(parse({ formatVersion: 3 })).toThrow(expect.objectContaining({ msgKey: 'archive_unsupported' }));
    expect(parse({ formatVersion: 1 })).toThrow(damaged);
    expect(parse(null)).toThrow(damaged);
    expect(() => parseManifest(Buffer.from('{'), '/a.tar')).toThrow(damaged);
    expect(() => parseManifest(Buffer.from([0xff, 0xfe]), '/a.tar')).toThrow(damaged);
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

  test.each<[string, Partial<Manifest>, RegExp]>([
    ['a member listed twice', { members: [...members, member('d.qcow2')] }, /twice/],
    ['a state without its XML', { members: [member('d.qcow2')] }, /does not list it/],
  ])('finds %s', (_, changes, fault) => {
    expect(manifestFault(manifestOf(members, changes))).toMatch(fault);
  });
});
