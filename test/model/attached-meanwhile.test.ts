/** What becomes of a VM that gets a disk of another one: while others start and stop it, and of the clone that it kept. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { diskId as idOfFile } from '../../agent/src/disks/index.ts';
import { isLent, NO_METADATA, parseDomain } from '../../agent/src/domain-xml/index.ts';
import { writeMetadata } from '../../agent/src/snapshots/index.ts';
import type { OperationContext } from '../../agent/src/workflows/context.ts';
import type { Effect } from '../../agent/src/workflows/effect.ts';
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

function keyOf(): { ownerId: string; diskId: string; borrowerId: string } {
  return {
    ownerId: owner.machine.uuid,
    diskId: idOfFile(owner.tops()[0]!, world.poolRecord),
    borrowerId: borrower.machine.uuid,
  };
}

/** @returns the effects that it declared */
async function attach(): Promise<Effect[]> {
  const begun: Effect[] = [];
  const request = { ...keyOf(), thinClone: false, warnings: [], allowNetworkLayers: false };
  await perform(world, () => context => {
    const begin: OperationContext['effects']['begin'] = (effect, when) => {
      begun.push(effect);
      return context.effects.begin(effect, when);
    };
    const effects = { ...context.effects, begin };
    return attachDiskWorkflow(world.dependencies, request)({ ...context, effects });
  });
  return begun;
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

test.each([[true], [undefined]] as const)(
  'a clone that was kept stays when it fails: %s',
  async cloneKept => {
    const { diskId, borrowerId } = keyOf();
    const loan = { diskId, borrowerId, ...(cloneKept && { cloneKept }) };
    const domain = await world.scripted.libvirt.domainByUuid(owner.machine.uuid);
    await writeMetadata(domain, { ...NO_METADATA, loans: [loan] });
    const loans = (await attach()).filter(({ type }) => type === 'loan');
    expect(loans).toEqual([expect.objectContaining({ unplug: true, keepClone: cloneKept === true })]);
  },
);
