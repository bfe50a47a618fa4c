import { describe, expect, test } from '@jest/globals';
import { checkName, isManifestName, memberNames, nameFault, partialPathOf, safePart } from './names.ts';

describe('member names', () => {
  test('follow the format', () => {
    const disk = '7a5b3f0e-1c1e-4c52-9a0d-111111111111';
    expect(memberNames.disk(disk)).toBe(`${disk}.qcow2`);
    expect(memberNames.layer(disk, 'before update')).toBe(`${disk}_before update.snapshot`);
    expect(memberNames.memory('s1')).toBe('s1.memory');
    expect(memberNames.iso('/pool/debian.ISO')).toBe('debian.iso');
    expect(memberNames.nvram(1)).toBe('0001_nvram.fd');
    expect(memberNames.tpm(12, 's1')).toBe('0012_s1.tpm.tar');
    expect(memberNames.domainXml(3, 'web')).toBe('0003_web.xml');
    expect(memberNames.stateXml(3, 's1')).toBe('state_0003_s1.snapshot.xml');
    expect(memberNames.manifest(10_000)).toBe('10000_manifest.json');
    expect(isManifestName(memberNames.manifest(1))).toBe(true);
    expect(isManifestName('0001_manifest.json.xml')).toBe(false);
  });

  test('free text cannot leave the directory or grow too long', () => {
    expect(safePart('../../etc/passwd')).toBe('_._.._etc_passwd');
    expect(safePart('')).toBe('_');
    expect(safePart('a\u0000b\nc\\d')).toBe('a_b_c_d');
    expect(Buffer.byteLength(safePart('ж'.repeat(300)))).toBe(180);
    expect(
      nameFault(memberNames.layer('7a5b3f0e-1c1e-4c52-9a0d-111111111111', '😀'.repeat(100))),
    ).toBeUndefined();
  });

  test.each(['', '.', '..', 'a/b', '/a', 'a\\b', 'a\nb', 'x'.repeat(256)])('refuses %j', name => {
    expect(() => checkName(name)).toThrow(expect.objectContaining({ msgKey: 'invalid_name' }));
  });

  test('an unfinished archive is a hidden file beside its target', () => {
    const path = partialPathOf('/pool/backups/web.tar', '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0001');
    expect(path).toBe('/pool/backups/.web.tar.0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0001.partial');
  });
});

test('the configuration of the VM alone has a number before it and .xml behind it, whatever things are called', () => {
  const numbered = /^\d+_.*\.xml$/i;
  for (const name of ['s1', '9_x', '9_x.xml', '0009_web']) {
    expect(memberNames.domainXml(3, name)).toMatch(numbered);
    const others = [
      memberNames.stateXml(3, name), memberNames.nvram(3, name), memberNames.tpm(3, name), memberNames.memory(name),
      memberNames.layer(name, name), memberNames.disk(name), memberNames.iso(name), memberNames.manifest(3),
    ]; // biome-ignore format: one list
    for (const other of others) expect(other).not.toMatch(numbered);
  }
});
