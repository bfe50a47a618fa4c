/** What keeps the layers of a VM few, on a scripted libvirt. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { readLayers } from '../../agent/src/disks/index.ts';
import { parseSnapshot } from '../../agent/src/domain-xml/index.ts';
import { parseIncrementTag } from '../../agent/src/snapshots/index.ts';
import { skipPauses } from './pauses.ts';
import { makeBackup } from './stories/perform.ts';
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
