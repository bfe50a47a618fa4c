import { expect, test } from '@jest/globals';
import { DomainXml, type Libvirt, LibvirtError } from '@virtkeep/node-libvirt';
import type { OperationContext } from '../context.ts';
import type { GuestOperations } from './domain.ts';
import { detachTools } from './tools.ts';

const IMAGE = '/images/tools.iso';
const drive = (source?: string, alias = '') => `<disk type='file' device='cdrom'>
  ${source === undefined ? '' : `<source file='${source}'/>`}<target dev='sdc' bus='scsi'/>${alias}</disk>`;
const added = drive(IMAGE, "<alias name='ua-virtkeep-guest-tools'/>");
const xml = (devices: string) => `<domain type='qemu'><name>vm</name>
  <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>${devices}</devices></domain>`;

/** What the workflow came to in a domain that is so. */
async function detachIn(domain: object): Promise<unknown[]> {
  const always = { name: 'vm', isActive: async () => true, isPersistent: async () => true };
  const operations = {
    libvirt: () => ({ domainByUuid: async () => ({ ...always, ...domain }) }) as unknown as Libvirt,
    toolsImage: IMAGE,
    changed: () => {},
  } as unknown as GuestOperations;
  const results: unknown[] = [];
  const context = {
    signal: new AbortController().signal,
    step: (_name: string, work: () => Promise<unknown>) => work(),
    commit: (result: unknown) => void results.push(result),
  } as unknown as OperationContext;
  await detachTools(operations, 'id')(context);
  return results;
}
const OUT = [{ $case: 'detachGuestTools', value: { targetDev: 'sdc' } }];

test('a drive that QEMU gives up after libvirt has stopped waiting for it', async () => {
  let looks = 0;
  const results = await detachIn({
    xml: async (flags: number) => {
      if (flags === DomainXml.INACTIVE) return xml(looks === 0 ? added : '');
      looks += 1;
      return xml(looks <= 3 ? added : '');
    },
    detachDevice: async () => {},
  });
  expect(results).toEqual(OUT);
});

const libvirtError = (code: number, message: string) =>
  new LibvirtError({ code, domain: 10, level: 2, message, kind: 'libvirt' }, 'virDomainUpdateDeviceFlags');
const CLOSED = libvirtError(1, "blockdev-remove-medium: Tray of device 'ide0-0-0' is not open");
const AWAITED = libvirtError(9, "operation failed: timed out waiting to open tray of 'sdc'");

test.each([
  ['the starting guest closes at once', CLOSED],
  ['a busy guest opens late', AWAITED],
  [
    'a busy guest opens late, says libvirt in Russian',
    libvirtError(9, 'превышено время ожидания открытия лотка «sdc»'),
  ],
])('a tray that %s', async (_what, error) => {
  let tries = 0;
  const results = await detachIn({
    xml: async () => xml(drive(tries < 3 ? IMAGE : undefined)),
    updateDevice: async () => {
      tries += 1;
      if (tries < 3) throw error;
    },
  });
  expect([tries, results]).toEqual([3, OUT]);
});

test('a tray that opens by itself while it is awaited is no change by somebody else', async () => {
  let tries = 0;
  const results = await detachIn({
    xml: async () => xml(drive(tries === 0 ? IMAGE : undefined)),
    updateDevice: async () => {
      tries += 1;
      if (tries === 1) throw AWAITED;
    },
  });
  expect([tries, results]).toEqual([2, OUT]);
});

test('what somebody else put in while the tray was awaited stays', async () => {
  let tries = 0;
  const refused = detachIn({
    xml: async () => xml(drive(tries === 0 ? IMAGE : '/images/theirs.iso')),
    updateDevice: async () => {
      tries += 1;
      throw AWAITED;
    },
  });
  await expect(refused).rejects.toMatchObject({
    msgKey: 'guest_tools_unavailable',
    message: expect.stringContaining('somebody else'),
  });
  expect(tries).toBe(1);
});

test('a VM that goes off while its tray is awaited is told as what it is', async () => {
  let isActive = true;
  const refused = detachIn({
    isActive: async () => isActive,
    xml: async () => xml(drive(IMAGE)),
    updateDevice: async () => {
      if (!isActive) throw libvirtError(55, 'Requested operation is not valid: domain is not running');
      isActive = false;
      throw AWAITED;
    },
  });
  await expect(refused).rejects.toMatchObject({ message: expect.stringContaining('not running') });
});

test('a guest that holds the medium is named', async () => {
  const refused = detachIn({
    xml: async () => xml(drive(IMAGE)),
    updateDevice: async () => {
      throw new Error("Device 'sdc' is locked and force was not specified");
    },
  });
  await expect(refused).rejects.toMatchObject({
    msgKey: 'guest_tools_unavailable',
    message: expect.stringContaining('eject it there first'),
  });
});
