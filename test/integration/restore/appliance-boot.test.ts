// A guest out of an OVA with two disks: it starts, its agent answers, and it finds what was on its disks.
import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { AgentAlone } from '../../e2e/agent-alone.ts';
import { makeDataDisk } from '../../lab/disks.ts';
import { bootXml } from '../../lab/domain-xml.ts';
import { defineGuest } from '../../lab/guest.ts';
import { tinyGuest } from '../../lab/tiny-guest.ts';
import { imageOfFile, ovaOf, ovfOf, STREAM, signed } from './appliance-lab.ts';

const CONTENTS = [randomBytes(5 * MiB), randomBytes(3 * MiB)];
const md5 = (bytes: Buffer) => createHash('md5').update(bytes).digest('hex');

let alone: AgentAlone;
let filename: string;

beforeAll(async () => {
  alone = await AgentAlone.start();
  const { dir, node } = alone.world;
  const images: Record<string, Buffer> = {};
  for (const [index, content] of CONTENTS.entries()) {
    const path = await makeDataDisk(join(dir, `${index}.qcow2`), { files: { content } });
    images[`disk${index}.vmdk`] = imageOfFile(path, 'qcow2', ...STREAM);
  }
  const disks = Object.keys(images).map(href => ({ href, bytes: 64 * MiB }));
  const text = ovfOf({ name: 'shop', disks, adapter: 'virtio' });
  filename = 'shop.ova';
  mkdirSync(join(node.pool(1).path, 'backups'), { recursive: true });
  const bytes = ovaOf(signed('shop', { 'shop.ovf': text, ...images }));
  writeFileSync(join(node.pool(1).path, 'backups', filename), bytes);
});
afterAll(() => alone?.stop());

test('it finds its data, with virtio in place of what it had', async () => {
  const { node } = alone.world;
  const operationId = newId();
  const file = { poolId: node.pool(1).uuid, filename };
  await alone.restores.startAppliance({ operationId, file, domainId: newId(), virtio: true });
  const [vm] = resultOf(await alone.heard(operationId), 'applianceRestore').domains;
  // the guest runs from memory: the firmware would find no system on its disks
  const boot = bootXml({ boot: await tinyGuest() });
  const whole = await node.virsh('dumpxml', vm!.name, '--inactive');
  const guest = await defineGuest(node, vm!.name, whole.replace('</os>', `${boot}</os>`));
  await guest.start();
  await guest.waitForAgent();
  for (const [index, content] of CONTENTS.entries())
    expect(await guest.sh(`md5sum < /mnt/vd${'ab'[index]}/content`)).toContain(md5(content));
  await guest.destroy();
  await node.virsh('undefine', vm!.name);
  for (const { path } of vm!.disks) rmSync(path);
});
