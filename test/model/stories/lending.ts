/** Disks that another VM has: attached, detached, lent to another node and given back, and put right by the reconciler. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { diskId as idOfFile } from '../../../agent/src/disks/index.ts';
import { isLent, NO_METADATA, parseDomain } from '../../../agent/src/domain-xml/index.ts';
import { writeMetadata } from '../../../agent/src/snapshots/index.ts';
import type { Workflow } from '../../../agent/src/workflows/context.ts';
import { attachDiskWorkflow } from '../../../agent/src/workflows/lend/attach.ts';
import { detachDiskWorkflow } from '../../../agent/src/workflows/lend/detach.ts';
import { lendDiskWorkflow, returnDiskWorkflow } from '../../../agent/src/workflows/lend/lend.ts';
import { reconcileLoansWorkflow } from '../../../agent/src/workflows/lend/reconcile.ts';
import type { LoanAction } from '../../../agent/src/workflows/lend/reconcile-plan.ts';
import type { Machine } from '../scripted-machine.ts';
import type { BuildStory, Random } from '../undo-model.ts';
import type { World } from '../world.ts';
import { perform } from './perform.ts';
import { isUndone, lives, makeVm, type Vm } from './vm.ts';

interface Parties {
  owner: Vm;
  borrower: Vm;
  key: { ownerId: string; diskId: string; borrowerId: string };
  attach(): Workflow;
}

async function makeParties(world: World, random: Random): Promise<Parties> {
  const owner = await makeVm(world, { running: random(3) > 0, agent: random(2) === 1 });
  const borrower = await makeVm(world, { name: 'borrower', running: random(3) > 0 });
  await owner.write(0, 1);
  const key = {
    ownerId: owner.machine.uuid,
    diskId: idOfFile(owner.tops()[0]!, world.poolRecord),
    borrowerId: borrower.machine.uuid,
  };
  const attach = () =>
    attachDiskWorkflow(world.dependencies, {
      ...key,
      thinClone: false,
      warnings: [],
      allowNetworkLayers: false,
    });
  return { owner, borrower, key, attach };
}

/** The files of others that a machine has. */
function lentTo({ live, config }: Machine): string[] {
  const { disks, metadata } = parseDomain(live ?? config!);
  return disks.filter(disk => isLent(disk, metadata)).map(({ path }) => path!);
}

const loansOf = ({ live, config }: Machine) => parseDomain(live ?? config!).metadata.loans ?? [];
const attachmentsOf = ({ live, config }: Machine) => parseDomain(live ?? config!).metadata.attachments;

/** What each of these stories promises: owner and borrower keep what they write, and who has a disk reads its instant. */
function storyOf(
  world: World,
  { owner, borrower }: Parties,
  { then, points, workflow }: { then: string; points: number; workflow(): Workflow },
  settled: (committed: boolean) => Promise<void>,
) {
  let now: string[] | null = null;
  let own: string[] | null = null;
  const look = async () => {
    now = await owner.view();
    own = await borrower.view();
  };
  return look().then(() => ({
    kind: 'lending',
    points,
    workflow,
    undone: (effect: Parameters<typeof isUndone>[1]) => isUndone(world, effect),
    async safe() {
      expect(await owner.view()).toEqual(now);
      if (!world.scripted.machines.has(borrower.machine.uuid)) return;
      expect(await borrower.view()).toEqual(own);
      for (const path of lentTo(borrower.machine)) expect(await world.content(path)).toBe(then);
    },
    settled,
    async life(random: Random) {
      const vm = random(2) && world.scripted.machines.has(borrower.machine.uuid) ? borrower : owner;
      if (random(3) === 0 && vm.machine.live !== null) world.scripted.powerOff(vm.machine);
      else await lives(vm, world, random);
      await look();
    },
  }));
}

/** Nothing of a loan is left, but what may hold the newest data of a disk, and is told. */
function nothingIsLent(world: World, { owner, borrower }: Parties, files: string[]): void {
  expect(loansOf(owner.machine)).toEqual([]);
  expect(owner.machine.states.size).toBe(0);
  if (world.scripted.machines.has(borrower.machine.uuid)) {
    expect(lentTo(borrower.machine)).toEqual([]);
    expect(attachmentsOf(borrower.machine)).toEqual([]);
  }
  const untold = world
    .files()
    .filter(file => !world.warnings.some(text => text.startsWith(`The layer ${join(world.root, file)} `)));
  expect(untold).toEqual(files);
}

/** The loan stands, whole. */
function isLentWholly({ owner, borrower, key }: Parties): void {
  expect(loansOf(owner.machine)).toHaveLength(1);
  expect(attachmentsOf(borrower.machine).map(({ diskId }) => diskId)).toEqual([key.diskId]);
  const [path] = lentTo(borrower.machine);
  expect(existsSync(path!)).toBe(true);
}

export const attach: BuildStory = async (world, random) => {
  const parties = await makeParties(world, random);
  const then = (await parties.owner.view())[0]!;
  const files = world.files();
  return storyOf(world, parties, { then, points: 130, workflow: parties.attach }, async committed => {
    if (committed) isLentWholly(parties);
    else nothingIsLent(world, parties, files);
  });
};

export const detach: BuildStory = async (world, random) => {
  const parties = await makeParties(world, random);
  const then = (await parties.owner.view())[0]!;
  const files = world.files();
  await perform(world, parties.attach);
  await parties.owner.write(1, 2);
  parties.borrower.machine.keepsDisks = random(4) === 0;
  const workflow = () => detachDiskWorkflow(world.dependencies, { ...parties.key, keepClone: false });
  const { keepsDisks: mayFail } = parties.borrower.machine;
  const story = await storyOf(world, parties, { then, points: 340, workflow }, async committed => {
    const isLentStill = lentTo(parties.borrower.machine).length > 0;
    expect(isLentStill && committed).toBe(false);
    if (isLentStill) isLentWholly(parties);
    else nothingIsLent(world, parties, files);
  });
  return { ...story, mayFail };
};

export const lendAway: BuildStory = async (world, random) => {
  const parties = await makeParties(world, random);
  const then = (await parties.owner.view())[0]!;
  const files = world.files();
  const key = { ...parties.key, borrowerId: newId() };
  const lend = () =>
    lendDiskWorkflow(world.dependencies, {
      ...key,
      borrowerNodeId: newId(),
      thinClone: false,
      warnings: [],
      allowNetworkLayers: false,
    });
  const isReturn = random(2) === 1;
  if (isReturn) await perform(world, lend);
  const workflow = isReturn ? () => returnDiskWorkflow(world.dependencies, { ...key, mark: '' }) : lend;
  return storyOf(world, parties, { then, points: 280, workflow }, async committed => {
    const isStanding = loansOf(parties.owner.machine).length > 0;
    if (committed) expect(isStanding).toBe(!isReturn);
    if (isStanding) expect(parties.owner.machine.states.size).toBe(1);
    else nothingIsLent(world, parties, files);
  });
};

/** The borrower is gone, by other means, or the owner does not know any more that it lent a disk. */
export const reconcileLoans: BuildStory = async (world, random) => {
  const parties = await makeParties(world, random);
  const { owner, borrower, key } = parties;
  const then = (await owner.view())[0]!;
  const files = world.files();
  await perform(world, parties.attach);
  await owner.write(1, 2);
  world.scripted.machines.delete(borrower.machine.uuid);
  const isNoted = random(2) === 1;
  if (!isNoted) await writeMetadata(await world.scripted.libvirt.domainByUuid(key.ownerId), NO_METADATA);
  const { ownerId } = key;
  const due: LoanAction[] = isNoted
    ? [{ do: 'end', ...key }]
    : [{ do: 'release', ownerId, diskId: '', borrowerId: '' }];
  const isDue = () => (isNoted ? loansOf(owner.machine).length > 0 : owner.machine.states.size > 0);
  const workflow = () => reconcileLoansWorkflow(world.dependencies, due, async () => due);
  return storyOf(world, parties, { then, points: 340, workflow }, async committed => {
    // what was not even begun is the reconciler's next look
    if (!committed && isDue()) await perform(world, workflow);
    nothingIsLent(world, parties, files);
  });
};
