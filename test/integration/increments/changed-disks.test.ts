// Increments of a guest whose disks change between them while it runs.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { makePlainDisk } from '../../lab/disks.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { compareStates, diskHashes, firstBackup, increment, write } from './lab.ts';

const MIB = 1024 * 1024;
let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

describe('a running guest with an agent', () => {
  test('disks added, grown and removed while it runs, powered off and on between', async () => {
    const guest = await lab.world.defineTiny();
    await (await guest.start()).waitForAgent();
    let made = await firstBackup(lab, guest);
    const wanted = [await diskHashes(lab, guest)];
    let text = 0;
    const again = async () => {
      text += 1;
      if ((await guest.state()) === 'running') await write(guest, '/mnt/vda/note', `text ${text}`);
      made = await increment(lab, guest, made);
      wanted.push(await diskHashes(lab, guest));
    };
    const added = await makePlainDisk(join(lab.world.node.pool(0).path, `${newId()}.qcow2`), {
      sizeBytes: 4 * MIB,
      dataBytes: MIB,
    });
    await lab.world.node.virsh(
      'attach-disk',
      guest.name,
      added,
      'vdx',
      '--subdriver',
      'qcow2',
      '--live',
      '--config',
    );
    await again();
    expect(made.manifest.disks).toHaveLength(2);
    await lab.world.node.virsh('blockresize', guest.name, 'vdx', '8M');
    await again();
    expect(made.manifest.disks[1].virtualSizeBytes).toBe(8 * MIB);
    await guest.withoutDisk('vdx');
    await again();
    expect(made.manifest.disks).toHaveLength(1);
    await guest.destroy();
    await again();
    expect(made.manifest.states.at(-1).consistency).toBe('off');
    await (await guest.start()).waitForAgent();
    await again();
    await compareStates(lab, made.path, wanted);
    expect(await guest.snapshots()).toHaveLength(3);
    await guest.destroy();
  });
});
