import { describe, expect, test } from '@jest/globals';
import { type BackupRecord, type ManifestBody, manifestOf } from './members.ts';

const RECORD = { backupId: 'b', created: '2026-01-01T00:00:00Z' } as BackupRecord;

describe('the manifest of a backup', () => {
  test('of a raw encrypted disk is of the version that says so, also in an increment', () => {
    const body = (disks: object[]) => ({ state: { number: 1 }, disks }) as unknown as ManifestBody;
    const plain = manifestOf(body([{}]), [], RECORD, null);
    const encrypted = manifestOf(body([{}, { encryption: 'luks' }]), [], RECORD, null);
    expect([plain.formatVersion, encrypted.formatVersion]).toEqual([1, 3]);
    expect(manifestOf(body([{ encryption: 'luks' }]), [], RECORD, plain).formatVersion).toBe(3);
    expect(manifestOf(body([{}]), [], RECORD, encrypted).formatVersion).toBe(1);
  });
});
