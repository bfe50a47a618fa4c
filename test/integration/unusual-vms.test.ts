/** VMs that are lawful but unusual: what libvirt takes is backed up and restored, or refused before anything is touched. */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type DiskSpec, type GuestXmlOptions, guestXml } from '../lab/domain-xml.ts';
import { defineGuest, type Guest } from '../lab/guest.ts';
import { haltingRom } from '../lab/idle-guest.ts';
import { sameContent } from './archive-tools.ts';
import { WorkflowLab } from './workflow-lab.ts';

let lab: WorkflowLab;
let rom: string;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  rom = haltingRom(lab.world.dir);
});
afterAll(() => lab?.stop());

const inPool = (name: string) => join(lab.world.node.pool(0).path, name);

/** Definition of a guest that does nothing; it starts within a second. */
const idleXml = (name: string, disks: DiskSpec[], more: Partial<GuestXmlOptions> = {}) =>
  guestXml({ name, boot: { rom }, agent: false, memoryMiB: 32, disks, ...more });

const idle = (name: string, disks: DiskSpec[], more: Partial<GuestXmlOptions> = {}): Promise<Guest> =>
  defineGuest(lab.world.node, name, idleXml(name, disks, more));

test('a uuid outside of RFC 9562, and raw disks of any size in bytes: backed up, restored, the same content', async () => {
  const sizes = [1, 511, 513, 65_537, 1_000_001];
  const disks = sizes.map((size): DiskSpec => {
    const path = inPool(`odd-${size}.raw`);
    writeFileSync(path, randomBytes(size));
    return { path, format: 'raw' };
  });
  const uuid = '564d9d5e-c5a2-f1b0-0f2e-7d6f5a4b3c2d';
  const guest = await idle('imported', disks, { uuid });
  const restores = async (file: { filename: string }, name: string) => {
    const { result } = await lab.restore(file, { name });
    for (const [index, { path }] of disks.entries())
      expect([path, await sameContent(result.disks[index]!.path, path, 'raw')]).toEqual([path, true]);
  };
  const { file, path, manifest } = await lab.backup(guest);
  expect(manifest.vm.uuid).toBe(uuid);
  await restores(file, 'restored');
  const older = readFileSync(path, 'latin1').replace(/("virtualSizeBytes": ?)1000448/, '$11000001');
  expect(older).toContain('1000001');
  writeFileSync(path, older, 'latin1');
  await restores(file, 'recorded-in-bytes');
  await restores((await lab.backup(guest, { compress: true })).file, 'compressed');
});
