import { expect, test } from '@jest/globals';
import { parseDomain } from '../../domain-xml/index.ts';
import { firmwarePartsOf, notCopiedFirmware } from '../firmware/state-firmware.ts';
import { cloneDefinition } from './clone-definition.ts';

const ORIGINAL = `<domain type='kvm'><name>web</name><uuid>11111111-2222-4333-8444-555555555555</uuid>
  <memory unit='KiB'>131072</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices><tpm model='tpm-crb'><backend type='emulator' version='2.0'><source type='dir' path='/tpm/web'/></backend></tpm></devices>
</domain>`;

test('the place of a TPM is not shared with the original, and its state is told not to be copied', () => {
  const config = parseDomain(ORIGINAL);
  expect(firmwarePartsOf({ nvramDirectory: '/nvram' }, config).tpm).toBe(false);
  expect(notCopiedFirmware(config)).toMatch(/TPM lies in \/tpm\/web.*not copied/);
  const identity = { uuid: '99999999-2222-4333-8444-555555555555', name: 'clone' };
  const own = { ...identity, description: '', parent: null, nvramPath: null };
  const clone = parseDomain(cloneDefinition(ORIGINAL, { disks: [], left: [], warnings: [] }, own));
  expect(clone.tpm).toEqual({ model: 'tpm-crb', backend: 'emulator', version: '2.0' });
  expect(notCopiedFirmware(clone)).toBeNull();
});
