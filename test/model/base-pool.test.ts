/** Layers of a VM of devices alone go to the base pool, and nowhere while that is not mounted: the mount would hide them. */
import { readdirSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { diskId as idOfFile } from '../../agent/src/disks/index.ts';
import type { Workflow } from '../../agent/src/workflows/context.ts';
import { changeOffline } from '../../agent/src/workflows/guest/offline.ts';
import { attachDiskWorkflow } from '../../agent/src/workflows/lend/attach.ts';
import { createSnapshotWorkflow } from '../../agent/src/workflows/snapshot/create.ts';
import { revertSnapshotWorkflow } from '../../agent/src/workflows/snapshot/revert.ts';
import { skipPauses } from './pauses.ts';
import { perform } from './stories/perform.ts';
import { makeVm, stateId, TARGETS, type Vm } from './stories/vm.ts';
import { World } from './world.ts';

skipPauses();

let world: World;
let vm: Vm;

beforeEach(() => {
  world = new World();
});
afterEach(() => world.remove());

const options = { allowNetworkLayers: false };

const state = () =>
  createSnapshotWorkflow(world.dependencies, {
    ...{ ...options, operationId: '', domainId: vm.machine.uuid, name: 's1', description: '' },
    ...{ memory: false, requireConsistency: false },
  });

async function loan() {
  const borrower = await makeVm(world, { name: 'borrower', running: false });
  const diskId = idOfFile(vm.tops()[0]!, undefined);
  return attachDiskWorkflow(world.dependencies, {
    ...{ ...options, ownerId: vm.machine.uuid, diskId, borrowerId: borrower.machine.uuid },
    ...{ thinClone: false, warnings: [] },
  });
}

async function offlineChange(): Promise<Workflow> {
  const domain = await world.scripted.libvirt.domainByUuid(vm.machine.uuid);
  const disks = TARGETS.map((targetDev, index) => ({
    ...{ id: targetDev, targetDev, path: vm.tops()[index]!, format: 'qcow2', block: true },
  }));
  const operations = { ...world.dependencies, scratchDirectory: world.scratch };
  const target = { ...options, domain, name: 'vm', disks, action: 'changed' };
  return context =>
    changeOffline(operations as never, context, target, async () => ({
      $case: 'prepare',
      value: { operations: [] },
    }));
}

test.each([
  ['a saved state', true, state],
  ['a loan', true, loan],
  ['a change while it is off', false, offlineChange],
] as const)(
  '%s of a VM of devices makes no layer where the base pool is not mounted',
  async (_what, running, begin) => {
    vm = await makeVm(world, { running, devices: true });
    const workflow = await begin();
    const files = readdirSync(world.pool).sort();
    world.poolRecord.mounted = false;
    await expect(perform(world, () => workflow)).rejects.toMatchObject({ msgKey: 'pool_not_mounted' });
    expect(readdirSync(world.pool).sort()).toEqual(files);
  },
);

test('a VM of devices is not reverted where the pool of its layers is not mounted', async () => {
  vm = await makeVm(world, { running: false, devices: true });
  await perform(world, state);
  const files = readdirSync(world.pool).sort();
  world.poolRecord.mounted = false;
  const snapshotId = stateId(vm.machine, 's1');
  const request = { operationId: '', domainId: vm.machine.uuid, snapshotId };
  const revert = perform(world, () => revertSnapshotWorkflow(world.dependencies, request));
  await expect(revert).rejects.toMatchObject({ msgKey: 'pool_not_mounted' });
  expect(readdirSync(world.pool).sort()).toEqual(files);
});
