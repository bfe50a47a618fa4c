import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { revocationBytes } from '@virtkeep/shared/revocations';
import { testAuthority } from '../archive/format/signing-kit.ts';
import { Revocations } from './revocations.ts';

const directory = mkdtempSync(join(tmpdir(), 'virtkeep-revocations-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const log = createLogger('test', 'error');

test('what could not be stored is stored when it is told again', async () => {
  const { caPem, signBytes } = await testAuthority();
  const claim = { serial: '3', reason: 'compromised', until: '2100-01-01T00:00:00.000Z' };
  const entry = { ...claim, signature: signBytes(revocationBytes(claim)) };
  const later = join(directory, 'later');
  const revocations = new Revocations({ directory: later, caPem, log });
  writeFileSync(later, 'in the way');
  await expect(revocations.add([entry])).rejects.toMatchObject({ msgKey: 'io_failed' });
  expect(revocations.isRevoked('3')).toBe(true);
  rmSync(later);
  await revocations.add([entry]);
  expect(new Revocations({ directory: later, caPem, log }).isRevoked('3')).toBe(true);
});

test('what was signed with a stolen key proves nothing for ever, also after a restart', async () => {
  const { caPem, signBytes } = await testAuthority();
  const entry = (serial: string, reason: string) => {
    const entry = { serial, reason, until: '2020-01-01T00:00:00.000Z' };
    return { ...entry, signature: signBytes(revocationBytes(entry)) };
  };
  const before = new Revocations({ directory, caPem, log });
  await before.add([entry('1', 'compromised'), entry('2', 'removed')]);
  for (const revocations of [before, new Revocations({ directory, caPem, log })]) {
    expect(revocations.isCompromised('1')).toBe(true);
    expect(revocations.isRevoked('2')).toBe(false);
  }
});
