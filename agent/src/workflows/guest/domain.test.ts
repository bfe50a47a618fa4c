import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { type GuestOperations, requireOff } from './domain.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'off-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** The disks that a change of a VM that is off is given, by target. @param extra what the definition says of its second disk */
async function disksOf(extra: string, device = 'disk'): Promise<string[]> {
  const disk = (target: string, device: string, more: string) => {
    const path = join(directory, `${target}.qcow2`);
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', path, '1M']);
    return `<disk type='file' device='${device}'><driver name='qemu' type='qcow2'/><source file='${path}'/><target dev='${target}'/>${more}</disk>`;
  };
  const devices = disk('vda', 'disk', '') + disk('vdb', device, extra);
  const uuid = '11111111-2222-4333-8444-555555555555';
  const domain = {
    uuid,
    name: 'vm',
    isActive: async () => false,
    hasManagedSave: async () => false,
    xml: async () =>
      `<domain type='qemu'><name>vm</name><uuid>${uuid}</uuid><devices>${devices}</devices></domain>`,
  } as unknown as Domain;
  const operations = { libvirt: () => ({}) as Libvirt, pools: async () => [] } as unknown as GuestOperations;
  const found = await requireOff(operations, domain, 'changed', AbortSignal.timeout(20_000));
  return found.disks.map(({ targetDev }) => targetDev);
}

test('a VM that is off is changed on the disks that it alone writes to', async () => {
  expect(await disksOf('')).toEqual(['vda', 'vdb']);
  expect(await disksOf('<readonly/>')).toEqual(['vda']);
  expect(await disksOf('', 'cdrom')).toEqual(['vda']);
  // another VM may run on it, on another node even
  expect(await disksOf('<shareable/>')).toEqual(['vda']);
});
