/** What becomes of a VM that gets a disk of another one, while others start and stop it. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { diskId as idOfFile } from '../../agent/src/disks/index.ts';
import { isLent, parseDomain } from '../../agent/src/domain-xml/index.ts';
import { attachDiskWorkflow } from '../../agent/src/workflows/lend/attach.ts';
import { skipPauses } from './pauses.ts';
import { perform } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { World } from './world.ts';

skipPauses();

let world: World;
let owner: Vm;
let borrower: Vm;
/** What happens once, when libvirt is asked for that. */
let at: Record<string, () => unknown>;

beforeEach(async () => {
  [world, at] = [new World(), {}];
  owner = await makeVm(world, { running: false });
  borrower = await makeVm(world, { name: 'borrower', running: false });
  world.scripted.reach = async point => {
    const happens = at[point];
    delete at[point];
    await happens?.();
  };
});
afterEach(() => world.remove());

function attach(): Promise<unknown> {
  const key = {
    ownerId: owner.machine.uuid,
    diskId: idOfFile(owner.tops()[0]!, world.poolRecord),
    borrowerId: borrower.machine.uuid,
  };
  const rest = { thinClone: false, warnings: [], allowNetworkLayers: false };
  return perform(world, () => attachDiskWorkflow(world.dependencies, { ...key, ...rest }));
}

function lentTo(xml: string | null): number {
  const { disks, metadata } = parseDomain(xml!);
  return disks.filter(disk => isLent(disk, metadata)).length;
}

test.each(['virDomainSnapshotCreateXML.before', 'virDomainAttachDeviceFlags.before'])(
  'one that is started by then has the disk, and its definition, too: %s',
  async point => {
    at[point] = () => world.scripted.start(borrower.machine);
    await attach();
    expect(at).toEqual({});
    expect([lentTo(borrower.machine.live), lentTo(borrower.machine.config)]).toEqual([1, 1]);
  },
);

test('one that is stopped by then has it in its definition', async () => {
  await world.scripted.start(borrower.machine);
  at['virDomainAttachDeviceFlags.before'] = () => world.scripted.powerOff(borrower.machine);
  await attach();
  expect([borrower.machine.live, lentTo(borrower.machine.config)]).toEqual([null, 1]);
});
