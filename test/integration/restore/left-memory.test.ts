// The saved memory that a lost VM left where libvirt looks for it by the name: never resumed on disks of another moment.
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { makePlainDisk } from '../../lab/disks.ts';
import { guestXml } from '../../lab/domain-xml.ts';
import { defineGuest, Guest } from '../../lab/guest.ts';
import { haltingRom } from '../../lab/idle-guest.ts';
import { WorkflowLab } from '../backup/lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

const inPool = (name: string) => join(lab.world.node.pool(0).path, name);
const saved = (name: string) => join(lab.world.node.dir, 'lib', 'qemu', 'save', `${name}.save`);

test('a restore under the name of a VM that was lost with its memory saved is refused until that memory is out of the way', async () => {
  const { node } = lab.world;
  const path = await makePlainDisk(inPool('web.qcow2'), { sizeBytes: 8 * 1_048_576, dataBytes: 1_000_000 });
  const rom = haltingRom(lab.world.dir);
  const xml = guestXml({ name: 'web', boot: { rom }, agent: false, memoryMiB: 32, disks: [{ path }] });
  const guest = await defineGuest(node, 'web', xml);
  const { file } = await lab.backup(guest);
  await guest.start();
  await node.virsh('managedsave', 'web');
  const memory = readFileSync(saved('web'));
  // the definition is lost, and what lies below /var is not
  rmSync(join(node.dir, 'etc', 'qemu', 'web.xml'));
  await node.restartLibvirtd();
  expect(await node.virsh('list', '--all', '--name')).not.toContain('web');
  renameSync(path, inPool('web.aside'));
  for (const request of [{ keepIdentity: true, startOn: true }, { keepIdentity: true }, { name: 'web' }])
    await expect(lab.restore(file, request)).rejects.toMatchObject({ msgKey: 'file_exists' });
  expect(readFileSync(saved('web')).equals(memory)).toBe(true);
  expect(existsSync(path)).toBe(false);
  expect(await node.virsh('list', '--all', '--name')).not.toContain('web');

  // under another name nothing is in the way
  const { result } = await lab.restore(file, {
    name: 'web2',
    poolId: lab.world.node.pool(1).uuid,
    startOn: true,
  });
  await new Guest(node, result.name).destroy();

  mkdirSync(inPool('aside'));
  renameSync(saved('web'), inPool('aside/web.save'));
  await lab.restore(file, { keepIdentity: true, startOn: true });
  expect(await node.virsh('domstate', 'web')).toContain('running');
  await guest.destroy();
});
