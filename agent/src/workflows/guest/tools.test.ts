import { expect, test } from '@jest/globals';
import { DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import type { OperationContext } from '../context.ts';
import type { GuestOperations } from './domain.ts';
import { detachTools } from './tools.ts';

const IMAGE = '/images/tools.iso';
const drive = `<disk type='file' device='cdrom'><source file='${IMAGE}'/><target dev='sdc' bus='scsi'/>
  <alias name='ua-virtkeep-guest-tools'/></disk>`;
const xml = (devices: string) => `<domain type='qemu'><name>vm</name>
  <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>${devices}</devices></domain>`;

test('a drive that QEMU gives up after libvirt has stopped waiting for it', async () => {
  let looks = 0;
  const domain = {
    name: 'vm',
    isActive: async () => true,
    isPersistent: async () => true,
    xml: async (flags: number) => {
      if (flags === DomainXml.INACTIVE) return xml(looks === 0 ? drive : '');
      looks += 1;
      return xml(looks <= 3 ? drive : '');
    },
    detachDevice: async () => {},
  };
  const operations = {
    libvirt: () => ({ domainByUuid: async () => domain }) as unknown as Libvirt,
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
  expect(results).toEqual([{ $case: 'detachGuestTools', value: { targetDev: 'sdc' } }]);
});
