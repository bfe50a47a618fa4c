/** A VM that moved to another node has taken along what it has of others: nothing is merged under it. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { diskId as idOfFile } from '../../agent/src/disks/index.ts';
import type { OperationRunner, StartOptions } from '../../agent/src/operations/runner.ts';
import type { OtherNodes } from '../../agent/src/other-nodes.ts';
import { LoanReconciler } from '../../agent/src/reconcilers/loans.ts';
import { attachDiskWorkflow } from '../../agent/src/workflows/lend/attach.ts';
import { skipPauses } from './pauses.ts';
import { perform } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { silent, World } from './world.ts';

skipPauses();

const UNHEARD_MS = 300;

let world: World;
let owner: Vm;
let borrower: Vm;
/** Files that the borrower, which runs elsewhere, has there. */
let read: string[];
let asked: number;
/** The other node gives an answer. */
let isHeard: boolean;
let reconciler: LoanReconciler;
let started: StartOptions[];

beforeEach(async () => {
  world = new World();
  owner = await makeVm(world, { running: true });
  borrower = await makeVm(world, { name: 'borrower', running: true });
  [read, asked, started, isHeard] = [[], 0, [], true];
  const whoUses: OtherNodes['whoUses'] = async things => {
    asked += 1;
    if (!isHeard) return things.map(() => ({ kind: 'unknown', reason: 'it is away' }));
    const by = { nodeName: 'other', domainId: borrower.machine.uuid, domainName: 'borrower', active: true };
    const isRead = (path: string) => read.includes(path);
    return things.map(thing =>
      thing.kind === 'file' && isRead(thing.path) ? { kind: 'used', by } : { kind: 'unused' },
    );
  };
  const { libvirt } = world.scripted;
  reconciler = new LoanReconciler({
    link: { connected: true, get: () => libvirt, onChange: () => () => {} },
    runner: {
      draining: false,
      start: (options: StartOptions) => started.push(options),
    } as unknown as OperationRunner,
    workflows: {
      ...world.dependencies,
      pools: async () => [{ ...world.poolRecord, shared: true }],
      otherNodes: { whoUses },
    },
    log: silent,
    retryMs: 1,
    unheardMs: UNHEARD_MS,
  });
});
afterEach(async () => {
  await reconciler.stop();
  world.remove();
});

async function attach(top: string): Promise<void> {
  const diskId = idOfFile(top, world.poolRecord);
  const key = { ownerId: owner.machine.uuid, diskId, borrowerId: borrower.machine.uuid };
  const rest = { thinClone: false, warnings: [], allowNetworkLayers: false };
  await perform(world, () => attachDiskWorkflow(world.dependencies, { ...key, ...rest }));
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(resolve => setTimeout(resolve, 5));
}

test.each([1, 2])('the loans of %d disks stand while it runs elsewhere with one of them', async count => {
  const tops = owner.tops();
  expect(tops.length).toBeGreaterThan(1);
  for (const top of tops.slice(0, count)) await attach(top);
  world.scripted.machines.delete(borrower.machine.uuid);
  read = [tops[0]!.slice(world.pool.length + 1)];
  reconciler.start();
  await until(() => asked > 2 || started.length > 0);
  expect(started).toEqual([]);
  read = [];
  await until(() => started.length > 0);
  expect(started[0]!.kind).toBe('keep_loans');
});

test('the instant of an owner that has forgotten its loans stands as long', async () => {
  const [top] = owner.tops();
  await attach(top!);
  const { live, config } = owner.machine;
  owner.machine.live = live!.replaceAll(/<(\w+:)?loan [^>]*>/g, '');
  owner.machine.config = config!.replaceAll(/<(\w+:)?loan [^>]*>/g, '');
  world.scripted.machines.delete(borrower.machine.uuid);
  read = [top!.slice(world.pool.length + 1)];
  reconciler.start();
  await until(() => asked > 2 || started.length > 0);
  expect(started).toEqual([]);
});

test('a loan stands while the node is not heard where it may run, for a while', async () => {
  await attach(owner.tops()[0]!);
  world.scripted.machines.delete(borrower.machine.uuid);
  isHeard = false;
  const since = performance.now();
  reconciler.start();
  await until(() => started.length > 0);
  expect(asked).toBeGreaterThan(1);
  expect(performance.now() - since).toBeGreaterThanOrEqual(UNHEARD_MS);
});
