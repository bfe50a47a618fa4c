/** How many layers a VM may get, and what keeps them few, on a scripted libvirt. */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { readLayers } from '../../agent/src/disks/index.ts';
import { parseSnapshot } from '../../agent/src/domain-xml/index.ts';
import { parseIncrementTag } from '../../agent/src/snapshots/index.ts';
import { run } from '../lab/run.ts';
import { skipPauses } from './pauses.ts';
import { makeBackup, makeState } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { World } from './world.ts';

skipPauses();

let world: World;
let vm: Vm;

beforeEach(async () => {
  world = new World();
  vm = await makeVm(world, { running: true, agent: true });
});
afterEach(() => world.remove());

const depth = async () => (await readLayers(vm.tops()[0]!, 'qcow2')).length;

/** The VM's first disk gets so many layers, none of them of a saved state. */
async function deepen(layers: number): Promise<void> {
  const top = vm.tops()[0]!;
  const names = Array.from({ length: layers - 1 }, (_, index) =>
    join(world.pool, `layer-${1000 + index}.qcow2`),
  );
  renameSync(top, names[0]!);
  await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', names[0]!, '-F', 'qcow2', names[1]!]);
  // the others differ in nothing but what they stand on
  const overlay = readFileSync(names[1]!, 'latin1');
  for (const [index, name] of [...names.slice(2), top].entries())
    writeFileSync(name, overlay.replace(names[0]!, names[index + 1]!), 'latin1');
}

test('archive after archive, each of which is left for the next one, makes no more layers than one', async () => {
  const removedArchives: string[] = [];
  for (let number = 1; number <= 8; number += 1) {
    await vm.write(number, number);
    const { id } = await makeBackup(world, vm.machine.uuid, { canBeIncremental: true, removedArchives });
    removedArchives.push(id);
    expect([...vm.machine.states.keys()]).toHaveLength(1);
    expect(await depth()).toBeLessThanOrEqual(3);
  }
});

test('states that are held go with their archive, and no others', async () => {
  const made: string[] = [];
  for (const removed of [[], [], [0]]) {
    await vm.write(made.length, 1);
    const options = {
      canBeIncremental: true,
      holdStates: true,
      removedArchives: removed.map(index => made[index]!),
    };
    made.push((await makeBackup(world, vm.machine.uuid, options)).id);
  }
  const archives = [...vm.machine.states.values()].map(
    xml => parseIncrementTag(parseSnapshot(xml).description ?? '')?.backupId,
  );
  expect(archives).toEqual(made.slice(1));
});

test('a disk with nearly as many layers as libvirt takes gets none that stays, and can still be backed up', async () => {
  await deepen(189);
  const domainId = vm.machine.uuid;
  await makeState(world, domainId, 'the last');
  await vm.write(1, 1);
  const refusal = {
    msgKey: 'snapshot_in_use',
    params: { reason: expect.stringContaining('vda has 190 layers') },
  };
  await expect(makeState(world, domainId, 'one more')).rejects.toMatchObject(refusal);
  await expect(makeBackup(world, domainId, { canBeIncremental: true })).rejects.toMatchObject(refusal);
  const { path } = await makeBackup(world, domainId);
  expect(await world.archived(path)).toEqual(await vm.view());
  expect([await depth(), [...vm.machine.states.keys()]]).toEqual([190, ['the last']]);
});
