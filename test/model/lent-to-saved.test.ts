/** A VM whose memory is saved has the disks of others that it goes on with, whatever its definition says. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { diskId as idOfFile } from '../../agent/src/disks/index.ts';
import { isLent, parseDomain } from '../../agent/src/domain-xml/index.ts';
import { readViews } from '../../agent/src/reconcilers/loan-views.ts';
import { attachDiskWorkflow } from '../../agent/src/workflows/lend/attach.ts';
import { detachDiskWorkflow } from '../../agent/src/workflows/lend/detach.ts';
import { reconcileLoansWorkflow } from '../../agent/src/workflows/lend/reconcile.ts';
import { planReconciliation } from '../../agent/src/workflows/lend/reconcile-plan.ts';
import { skipPauses } from './pauses.ts';
import { perform } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { World } from './world.ts';

skipPauses();

let world: World;
let owner: Vm;
let borrower: Vm;

beforeEach(async () => {
  world = new World();
  owner = await makeVm(world, { running: true });
  borrower = await makeVm(world, { name: 'borrower', running: true });
});
afterEach(() => world.remove());

async function due() {
  const zfs = { releasable: new Set<string>(), hasClone: () => false };
  const { views } = await readViews(world.scripted.libvirt, zfs, async () => [world.poolRecord]);
  return planReconciliation(views);
}

test('the loan of a disk that a guest kept until it was saved stands, and ends when that memory is discarded', async () => {
  const { machine } = borrower;
  const key = {
    ownerId: owner.machine.uuid,
    diskId: idOfFile(owner.tops()[0]!, world.poolRecord),
    borrowerId: machine.uuid,
  };
  await owner.write(0, 1);
  const then = (await owner.view())[0]!;
  const files = world.files();
  await perform(world, () =>
    attachDiskWorkflow(world.dependencies, {
      ...{ ...key, thinClone: false, warnings: [], allowNetworkLayers: false },
    }),
  );
  machine.keepsDisks = true;
  await expect(
    perform(world, () => detachDiskWorkflow(world.dependencies, { ...key, keepClone: false })),
  ).rejects.toMatchObject({ msgKey: 'device_did_not_detach' });
  machine.saved = machine.live;
  world.scripted.powerOff(machine);
  await owner.write(0, 2);

  expect(await due()).toEqual([]);
  const ending = [{ do: 'end', ...key } as const];
  const end = () => reconcileLoansWorkflow(world.dependencies, ending, async () => ending);
  await perform(world, end);
  const { disks, metadata } = parseDomain(machine.saved!);
  const { path } = disks.find(disk => isLent(disk, metadata))!;
  expect(await world.content(path!)).toBe(then);
  expect(owner.machine.states.size).toBe(1);

  machine.saved = null;
  expect(await due()).toEqual(ending);
  await perform(world, end);
  expect(world.files()).toEqual(files);
});
