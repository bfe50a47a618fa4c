/** A guest that a user has frozen, for a snapshot on a SAN say, stays frozen until the user thaws it. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { openArchive } from '../../agent/src/archive/index.ts';
import { diskId as idOfFile } from '../../agent/src/disks/index.ts';
import { attachDiskWorkflow } from '../../agent/src/workflows/lend/attach.ts';
import { createSnapshotWorkflow } from '../../agent/src/workflows/snapshot/create.ts';
import { skipPauses } from './pauses.ts';
import { makeBackup, perform } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { World } from './world.ts';

skipPauses();

let world: World;
let vm: Vm;

beforeEach(async () => {
  world = new World();
  vm = await makeVm(world, { running: true, agent: true });
  vm.machine.frozen = true;
});
afterEach(() => world.remove());

test('while its disk is lent', async () => {
  const borrower = await makeVm(world, { name: 'borrower', running: false });
  const diskId = idOfFile(vm.tops()[0]!, world.poolRecord);
  const key = { ownerId: vm.machine.uuid, borrowerId: borrower.machine.uuid, diskId };
  const rest = { thinClone: false, warnings: [], allowNetworkLayers: false };
  await perform(world, () => attachDiskWorkflow(world.dependencies, { ...key, ...rest }));
  expect([vm.machine.frozen, vm.machine.states.size]).toEqual([true, 1]);
});

test('while a state is made, which is as consistent as was asked for', async () => {
  const request = { domainId: vm.machine.uuid, name: 'mine', description: '', memory: false };
  await perform(world, operationId =>
    createSnapshotWorkflow(world.dependencies, {
      operationId,
      ...request,
      requireConsistency: true,
    } as never),
  );
  expect([vm.machine.frozen, [...vm.machine.states.keys()]]).toEqual([true, ['mine']]);
});

test('while a backup is made, which counts as quiesced', async () => {
  const { path } = await makeBackup(world, vm.machine.uuid, { canBeIncremental: false, compress: false });
  expect(vm.machine.frozen).toBe(true);
  const archive = await openArchive(path, AbortSignal.timeout(60_000));
  await archive.close();
  expect(archive.manifest!.states.map(({ consistency }) => consistency)).toEqual(['quiesced']);
});
