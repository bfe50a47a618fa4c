import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { openArchive } from './index.ts';
import { BACKUP_ID, scratch, signal, tool, VM_ID, XML } from './test-kit.ts';

/**
 * Archives written by format version 1, kept for ever: whoever changes the format keeps reading these. They hold a
 * 1 MiB qcow2 with 64 KiB of 0x07 at 128 KiB, an image of 5000 bytes, an XML and the manifest, with hashes.
 */
const golden = (name: string) => join(import.meta.dirname, 'golden', name);

const dir = scratch();
afterAll(() => dir.remove());

describe.each(['v1.tar', 'v1.tar.zst'])('%s', name => {
  test('reads as it did when it was written', async () => {
    const archive = await openArchive(golden(name), signal);
    try {
      expect(archive.manifest?.backupId).toBe(BACKUP_ID);
      expect(archive.manifest?.vm).toEqual({ uuid: VM_ID, name: 'vm' });
      expect(archive.members.map(member => [member.name, member.kind])).toEqual([
        ['disk.qcow2', 'disk'],
        ['образ.iso', 'iso'],
        ['0001_vm.xml', 'domain_xml'],
        ['0001_manifest.json', 'manifest'],
      ]);
      expect(archive.members[0]?.dataOffset).toBe(4096);
      expect((await archive.readMember('0001_vm.xml', signal)).toString()).toBe(XML);
      const iso = await archive.readMember('образ.iso', signal);
      expect(createHash('sha256').update(iso).digest('hex')).toBe(archive.members[1]?.sha256);
      expect(await archive.verify({ signal })).toEqual({
        problems: [],
        provenMembers: 4,
        unprovenMembers: 0,
        restorableStates: [1],
        hashed: true,
      });
      await archive.extractMember('disk.qcow2', dir.at(`${name}.qcow2`), { signal, checkHash: true });
    } finally {
      await archive.close();
    }
    await tool('qemu-img', ['check', '-q', dir.at(`${name}.qcow2`)]);
    await tool('qemu-io', [
      '-r',
      '-c',
      'read -P 7 128K 64K',
      '-c',
      'read -P 0 0 128K',
      dir.at(`${name}.qcow2`),
    ]);
  });

  test('its sidecar is what sha256sum reads', () => {
    const lines = readFileSync(golden(`${name}.sha256`), 'utf8')
      .trimEnd()
      .split('\n');
    expect(lines.every(line => /^[0-9a-f]{64} {2}\S+$/.test(line))).toBe(true);
    expect(lines.map(line => line.slice(66))).toEqual([
      'disk.qcow2',
      'образ.iso',
      '0001_vm.xml',
      '0001_manifest.json',
    ]);
  });
});
