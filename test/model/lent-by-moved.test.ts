/**
 * The end of a loan whose owner cannot have its instant merged: another node has gone on with its disks, is about to, or its memory is
 * saved. What was written last stays, wherever it is, and neither the owner nor the borrower is held for it.
 */
import { existsSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { sleep } from '@virtkeep/shared/abort';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { diskId as idOfFile, readLayers } from '../../agent/src/disks/index.ts';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { PendingAnswers } from '../../agent/src/images/index.ts';
import type { Faults } from '../../agent/src/operations/faults.ts';
import { Journal } from '../../agent/src/operations/journal.ts';
import { OperationRunner } from '../../agent/src/operations/runner.ts';
import type { Answer } from '../../agent/src/other-nodes.ts';
import { readViews } from '../../agent/src/reconcilers/loan-views.ts';
import { LENDING_STATE, markOf, mergeState } from '../../agent/src/snapshots/index.ts';
import { withSources } from '../../agent/src/snapshots/state-xml.ts';
import { completeMerges } from '../../agent/src/workflows/backup/hold.ts';
import type { Workflow } from '../../agent/src/workflows/context.ts';
import type { WorkflowDependencies } from '../../agent/src/workflows/dependencies.ts';
import { attachDiskWorkflow } from '../../agent/src/workflows/lend/attach.ts';
import { detachDiskWorkflow } from '../../agent/src/workflows/lend/detach.ts';
import { reconcileLoansWorkflow } from '../../agent/src/workflows/lend/reconcile.ts';
import { planReconciliation } from '../../agent/src/workflows/lend/reconcile-plan.ts';
import { removeSnapshotWorkflow } from '../../agent/src/workflows/snapshot/remove.ts';
import { undoEffects } from '../../agent/src/workflows/undo/recover.ts';
import { skipPauses } from './pauses.ts';
import { makeState } from './stories/perform.ts';
import { makeVm, stateId, TARGETS, type Vm } from './stories/vm.ts';
import { expectedContent, silent, World } from './world.ts';

skipPauses();

let world: World;
let owner: Vm;
let borrower: Vm;
let key: { ownerId: string; diskId: string; borrowerId: string };
let journal: Journal;
let runner: OperationRunner;
/** What other nodes say of the owner. */
let answer: Answer;
let dependencies: WorkflowDependencies;
/** The files that were lent, and the layers that the owner writes to meanwhile. */
let frozen: string[];
let layers: string[];

beforeEach(async () => {
  [world, answer] = [new World(), { kind: 'unused' }];
  owner = await makeVm(world, { running: true, agent: true });
  borrower = await makeVm(world, { name: 'borrower', running: true });
  frozen = owner.tops();
  const [ownerId, borrowerId] = [owner.machine.uuid, borrower.machine.uuid];
  key = { ownerId, diskId: idOfFile(frozen[0]!, world.poolRecord), borrowerId };
  dependencies = {
    ...world.dependencies,
    pools: async () => [{ ...world.poolRecord, shared: true }],
    otherNodes: {
      whoUses: async things =>
        things.map(({ kind }) =>
          kind === 'domain' || answer.kind === 'unknown' ? answer : { kind: 'unused' },
        ),
    },
  };
  startAgent();
  await owner.write(0, 1);
  expect(await attach()).toMatchObject({ warnings: [] });
  layers = owner.tops();
  await owner.write(1, 2);
});
afterEach(() => {
  stopAgent();
  world.remove();
});

function startAgent(pending?: PendingAnswers): void {
  journal = new Journal(join(world.root, 'runner.db'));
  runner = new OperationRunner({
    ...{ journal, log: silent, concurrentOperations: 1, refuseCopies: async () => {} },
    undoEffect: undoEffects(dependencies, pending),
    faults: { active: false, reach: async () => {}, middle: () => undefined } as unknown as Faults,
    times: { patienceMs: 0 },
  });
}

function stopAgent(): void {
  runner.close();
  journal.close();
}

/** An operation that holds all of both VMs. */
async function end(workflow: Workflow): Promise<Operation> {
  const id = newId();
  const locks = [key.ownerId, key.borrowerId].flatMap(held =>
    (['domain', 'power'] as const).map(kind => ({ kind, id: held, mode: 'exclusive' }) as const),
  );
  const options = { kind: 'loan', request: { id }, entities: [], cancellable: false, heavy: false };
  runner.start({ ...options, id, locks, mayBeCopies: 'all', workflow });
  for await (const { operation } of runner.watch(0, id, AbortSignal.timeout(60_000)))
    if (operation!.state !== OperationState.RUNNING) return operation!;
  throw new Error('the stream ended before the operation');
}

const attach = () => {
  const loan = { thinClone: false, warnings: [], allowNetworkLayers: false };
  return end(attachDiskWorkflow(dependencies, { ...key, ...loan }));
};
const detach = () => end(detachDiskWorkflow(dependencies, { ...key, keepClone: false }));
const release = () => {
  const action = { do: 'release', ownerId: key.ownerId, diskId: '', borrowerId: '' } as const;
  return end(reconcileLoansWorkflow(dependencies, [action], async () => [action]));
};
const holders = () =>
  (['domain', 'power'] as const).flatMap(kind =>
    [key.ownerId, key.borrowerId].map(id => runner.holderOf(kind, id)?.kind),
  );
const contents = (paths: readonly string[]) => Promise.all(paths.map(path => world.content(path)));
const there = () => layers.filter(path => existsSync(path)).length;
const metadataOf = () => parseDomain(owner.machine.config!).metadata;
const onN2 = (rest: { active: boolean; lastRanHere?: boolean }): Answer => ({
  kind: 'used',
  by: { nodeName: 'n2', domainId: key.ownerId, domainName: 'vm', ...rest },
});

/** The node goes down, and another one runs the owner from the definition that it knows, of before the loan. */
async function runElsewhere(): Promise<string[]> {
  world.scripted.powerOff(owner.machine);
  for (const path of frozen) {
    await world.write(path, 1, 7);
    await world.write(path, 2, 8);
  }
  return contents(frozen);
}

/** The reconciler's operation ends with a warning as the loan's does, and the state stays. */
async function expectRefused(
  reason: string,
  told = /^The saved state .* could not be deleted/,
): Promise<void> {
  const { state, error, warnings } = await release();
  expect([state, error]).toEqual([OperationState.SUCCEEDED, undefined]);
  expect(warnings).toEqual([expect.stringMatching(told)]);
  expect(warnings[0]).toContain(reason);
  expect(owner.machine.states.has(LENDING_STATE)).toBe(true);
}

async function expectNobodyHeld(): Promise<void> {
  expect(holders()).toEqual([undefined, undefined, undefined, undefined]);
  const { disks } = parseDomain(borrower.machine.live!);
  expect(disks.map(({ path }) => path)).toEqual(borrower.tops());
}

const MERGED = expectedContent([[0, 1], [1, 2]]); // biome-ignore format: blocks

async function expectMerged(): Promise<void> {
  expect([owner.tops(), owner.machine.states.size]).toEqual([frozen, 0]);
  expect(await contents(frozen)).toEqual([MERGED, MERGED]);
}

function expectNothingLeft(): void {
  const { looseLayers = [], lentLayers = [] } = metadataOf();
  expect([there(), looseLayers, lentLayers]).toEqual([0, [], []]);
}

describe('what another node has written to what was lent', () => {
  test.each<[string, () => Answer]>([
    ['it is defined there and off', () => onN2({ active: false, lastRanHere: false })],
    ['it is defined there and was last seen here', () => onN2({ active: false, lastRanHere: true })],
    ['it was transient there', () => ({ kind: 'unused' })],
    ['no answer comes', () => ({ kind: 'unknown', reason: 'n2 is away' })],
  ])('stays: %s', async (_, said) => {
    const written = await runElsewhere();
    const upper = await contents(layers);
    answer = onN2({ active: true });
    const { state, warnings } = await detach();
    expect([state, warnings]).toEqual([OperationState.SUCCEEDED, [expect.stringContaining(layers[0]!)]]);
    await expectNobodyHeld();
    answer = said();
    for (const _again of [1, 2]) {
      await expectRefused(layers[0]!);
      expect([await contents(frozen), await contents(layers)]).toEqual([written, upper]);
      await expectNobodyHeld();
    }
  });

  test('stays also when it was started there before the loan ended, and written to after', async () => {
    world.scripted.powerOff(owner.machine);
    answer = onN2({ active: true });
    expect((await detach()).warnings).toEqual([
      expect.stringContaining('used by the domain vm on the node n2'),
    ]);
    await expectNobodyHeld();
    const written = await runElsewhere();
    answer = { kind: 'unused' };
    await expectRefused(layers[0]!);
    expect([await contents(frozen), there()]).toEqual([written, 2]);
  });

  test('stays when nothing is asked but once, and the layer is named', async () => {
    const written = await runElsewhere();
    const { state, warnings } = await detach();
    expect([state, await contents(frozen), there()]).toEqual([OperationState.SUCCEEDED, written, 2]);
    expect(warnings).toEqual([expect.stringContaining(layers[0]!)]);
    await expectNobodyHeld();
  });

  test('stays, and holds nobody, when the reconciler was cut off before the state was forgotten', async () => {
    const written = await runElsewhere();
    await detach();
    const warnings: string[] = [];
    const release = { domainId: key.ownerId, name: LENDING_STATE, countsAsDeletion: false };
    await undoEffects(dependencies)(
      { type: 'removed_state', ...release },
      AbortSignal.timeout(60_000),
      text => void warnings.push(text),
      () => {},
    );
    expect(warnings).toEqual([expect.stringContaining('was written to since')]);
    expect([owner.machine.states.has(LENDING_STATE), await contents(frozen), there()]).toEqual([
      true,
      written,
      2,
    ]);
  });

  test('is seen by its time where an earlier version lent the disk', async () => {
    forgetMarks();
    await runElsewhere();
    const later = new Date(Date.now() + 3_600_000);
    for (const path of frozen) utimesSync(path, later, later);
    const written = await contents(frozen);
    expect((await detach()).warnings).toEqual([expect.stringContaining(layers[0]!)]);
    expect([await contents(frozen), there()]).toEqual([written, 2]);
    await expectNobodyHeld();
  });

  test('stays also when the agent ended after it had forgotten the state', async () => {
    world.scripted.powerOff(owner.machine);
    answer = onN2({ active: true });
    await detach();
    answer = { kind: 'unused' };
    const warnings: string[] = [];
    const merge = (name: string | null) =>
      mergeState(
        dependencies,
        { domainId: key.ownerId, name, countsAsDeletion: false },
        {
          ...{ signal: AbortSignal.timeout(60_000), log: silent },
          warn: text => void warnings.push(text),
        },
      );
    let isForgotten = false;
    world.scripted.reach = async point => {
      if (point === 'virDomainSnapshotDelete.after') isForgotten = true;
      if (isForgotten && point === 'virDomainSetMetadata.before') throw new Error('the agent ends');
    };
    await expect(merge(LENDING_STATE)).rejects.toMatchObject({ msgKey: 'snapshot_remove_failed' });
    world.scripted.reach = async () => {};
    expect([owner.machine.states.size, there()]).toEqual([0, 2]);
    const written = await runElsewhere();
    for (const name of [LENDING_STATE, null]) await merge(name);
    expect([await contents(frozen), there()]).toEqual([written, 2]);
    expect(warnings).toEqual([1, 2].map(() => expect.stringContaining(layers[0]!)));
    // nor with what a later loan puts on the layers
    await attach();
    await detach();
    await expectRefused('was written to since');
    expect([await contents(frozen), there()]).toEqual([written, 2]);
    await expectNobodyHeld();
  });

  test('keeps nobody whose definition of before was put back: the state goes, and nothing is merged', async () => {
    const written = await runElsewhere();
    await detach();
    const { machine } = owner;
    const sources = Object.fromEntries(
      TARGETS.map((target, index) => [target, { path: frozen[index]!, format: 'qcow2', block: false }]),
    );
    machine.config = withSources(machine.config!, sources);
    answer = onN2({ active: false, lastRanHere: false });
    expect(await release()).toMatchObject({ state: OperationState.SUCCEEDED });
    expect([machine.states.size, await contents(frozen), there()]).toEqual([0, written, 2]);
  });

  test('is merged over when the owner runs with its layers: what it reads is what counts', async () => {
    await runElsewhere();
    expect((await detach()).warnings).toHaveLength(1);
    await world.scripted.start(owner.machine);
    const seen = await owner.view();
    expect(await release()).toMatchObject({ state: OperationState.SUCCEEDED, warnings: [] });
    expect([owner.tops(), await owner.view(), there()]).toEqual([frozen, seen, 0]);
  });
});

/** As an earlier version has left it. */
function forgetMarks(): void {
  const { machine } = owner;
  const without = (xml: string) => xml.replaceAll(/<(\w+:)?lent-layer [^>]*>/g, '');
  machine.config = without(machine.config!);
  machine.live = machine.live && without(machine.live);
}

describe('an instant below which nobody wrote is merged while its owner is off', () => {
  test.each<[string, () => Answer]>([
    ['and it is nowhere else', () => ({ kind: 'unused' })],
    ['and it is defined on another node', () => onN2({ active: false, lastRanHere: false })],
    ['and no answer comes', () => ({ kind: 'unknown', reason: 'n2 is away' })],
  ])('%s', async (_, said) => {
    world.scripted.powerOff(owner.machine);
    answer = said();
    expect(await detach()).toMatchObject({ state: OperationState.SUCCEEDED });
    await expectMerged();
    if (answer.kind === 'unused') expectNothingLeft();
  });

  test('and what was lent was merged into what it stands on meanwhile', async () => {
    const { machine } = owner;
    await detach();
    await expectMerged();
    await makeState(world, machine.uuid, 's');
    await attach();
    layers = owner.tops();
    world.scripted.powerOff(machine);
    answer = onN2({ active: true });
    expect((await detach()).warnings).toHaveLength(1);
    answer = { kind: 'unused' };
    const request = { domainId: machine.uuid, snapshotId: stateId(machine, 's'), bandwidth: 0n };
    const removal = removeSnapshotWorkflow(dependencies, { ...request, operationId: newId() });
    expect(await end(removal)).toMatchObject({ state: OperationState.SUCCEEDED, warnings: [] });
    expect(await release()).toMatchObject({ state: OperationState.SUCCEEDED, warnings: [] });
    await expectMerged();
    expectNothingLeft();
  });

  describe('and what it stands on was merged below it meanwhile', () => {
    const LENT = [
      ['lent by this version', () => {}],
      ['lent by an earlier version', () => forgetMarks()],
    ] as const;

    /** Two states below the instant, which stays with its owner off. */
    async function lendAboveTwo(
      forget: () => void = () => {},
      states: readonly string[] = ['s1', 's2'],
    ): Promise<void> {
      const { machine } = owner;
      await detach();
      for (const name of states) await makeState(world, machine.uuid, name);
      await attach();
      layers = owner.tops();
      forget();
    }

    async function remove(name: string): Promise<Operation> {
      const { uuid } = owner.machine;
      const request = { domainId: uuid, snapshotId: stateId(owner.machine, name), bandwidth: 0n };
      return await end(removeSnapshotWorkflow(dependencies, { ...request, operationId: newId() }));
    }

    async function endLoan(): Promise<void> {
      answer = onN2({ active: true });
      expect((await detach()).warnings).toHaveLength(1);
      answer = { kind: 'unused' };
    }

    async function removed(name: string): Promise<void> {
      expect(await remove(name)).toMatchObject({ state: OperationState.SUCCEEDED, warnings: [] });
    }

    /** With a word on the layers that stay, where they stand right on what is merged. */
    async function removedBelow(name: string): Promise<void> {
      expect(await remove(name)).toMatchObject({ state: OperationState.SUCCEEDED });
    }

    const lentFiles = async () => {
      const chains = await Promise.all(layers.map(path => readLayers(path, 'qcow2')));
      return chains.map(chain => chain[1]!.path);
    };

    /** As if the layers were older than what may still arrive below them: only what is noted proves anything then. */
    async function expectNoted(): Promise<void> {
      const noted = (metadataOf().lentLayers ?? []).filter(({ moving }) => !moving);
      expect(noted.map(({ path }) => path).sort()).toEqual([...layers].sort());
      for (const { path, below, mark } of noted) expect([path, await markOf(below)]).toEqual([path, mark]);
    }

    async function expectReleased(): Promise<void> {
      const seen = await owner.view();
      expect(await release()).toMatchObject({ state: OperationState.SUCCEEDED });
      expect([owner.machine.states.has(LENDING_STATE), await owner.view()]).toEqual([false, seen]);
      expect(owner.tops()).not.toEqual(layers);
    }

    test.each(LENT)('while its owner was off: %s', async (_, forget) => {
      await lendAboveTwo(forget);
      world.scripted.powerOff(owner.machine);
      await endLoan();
      await removed('s1');
      await expectNoted();
      // neither does a merge of what was lent itself
      await removed('s2');
      await expectNoted();
      answer = onN2({ active: false, lastRanHere: false });
      await expectReleased();
    });

    test.each(LENT)('while its owner was running: %s', async (_, forget) => {
      await lendAboveTwo(forget);
      world.scripted.powerOff(owner.machine);
      await endLoan();
      await world.scripted.start(owner.machine);
      for (const name of ['s1', 's2']) {
        await removed(name);
        await expectNoted();
      }
      world.scripted.powerOff(owner.machine);
      answer = onN2({ active: false, lastRanHere: false });
      await expectReleased();
    });

    test.each(LENT)(
      'and that was cut off before its end was noted: the others are asked: %s',
      async (_, forget) => {
        await lendAboveTwo(forget);
        world.scripted.powerOff(owner.machine);
        await endLoan();
        const [lent] = await lentFiles();
        const isMoved = async () => (await readLayers(lent!, 'qcow2')).length < 3;
        world.scripted.reach = async point => {
          if (point === 'virDomainSetMetadata.before' && (await isMoved())) throw new Error('the agent ends');
        };
        const request = { domainId: owner.machine.uuid, name: 's1', countsAsDeletion: true };
        const options = { signal: AbortSignal.timeout(60_000), log: silent, warn: () => {} };
        await expect(mergeState(dependencies, request, options)).rejects.toThrow();
        world.scripted.reach = async () => {};
        await mergeState(dependencies, request, options);
        answer = { kind: 'unknown', reason: 'n2 is away' };
        await expectRefused('n2 is away', /^The image .* stays as it is/);
        await expectNobodyHeld();
        answer = onN2({ active: false, lastRanHere: false });
        await expectRefused('used by');
        answer = onN2({ active: false, lastRanHere: true });
        await expectReleased();
      },
    );

    test('and another node wrote to it before: it stays', async () => {
      await lendAboveTwo(() => {}, ['s0', 's1', 's2']);
      const lent = await lentFiles();
      world.scripted.powerOff(owner.machine);
      await endLoan();
      const later = new Date(Date.now() + 3_600_000);
      for (const path of lent) {
        await world.write(path, 2, 8);
        utimesSync(path, later, later);
      }
      const written = await contents(lent);
      await removed('s1');
      await expectRefused('was written to since');
      expect([await contents(lent), there()]).toEqual([written, 2]);
      // what was written is in the file below now, with which it was merged
      await removedBelow('s2');
      await expectRefused('was written to since');
      expect([await contents(await lentFiles()), there()]).toEqual([written, 2]);
      await removedBelow('s0');
      await expectRefused('was written to since');
      expect([await contents(await lentFiles()), there()]).toEqual([written, 2]);
    });
  });

  test('and an earlier version lent the disk', async () => {
    forgetMarks();
    world.scripted.powerOff(owner.machine);
    expect(await detach()).toMatchObject({ state: OperationState.SUCCEEDED, warnings: [] });
    await expectMerged();
    expectNothingLeft();
  });
});

describe('of what cannot tell whether it was written to, while a node is not heard for long', () => {
  beforeEach(() => {
    stopAgent();
    startAgent(new PendingAnswers(0));
    world.scripted.powerOff(owner.machine);
    const { machine } = owner;
    // as a device cannot: what is noted is of other files
    machine.config = machine.config!.replaceAll(/(lent-layer [^>]*below=["'])[^"']*/g, '$1/other');
    expect(metadataOf().lentLayers?.map(({ below }) => below)).toEqual(['/other', '/other']);
  });

  const mergeRest = () => {
    const goal = { domainId: key.ownerId, name: null, countsAsDeletion: false };
    const options = { signal: AbortSignal.timeout(60_000), log: silent, warn: () => {} };
    return mergeState(dependencies, goal, options);
  };

  test('the state stays and is told', async () => {
    answer = { kind: 'unknown', reason: 'n2 is away' };
    for (const ending of [detach, release]) {
      const { state, warnings } = await ending();
      expect(state).toBe(OperationState.SUCCEEDED);
      expect(warnings).toEqual(layers.map(path => expect.stringContaining(path)));
      expect([owner.tops(), owner.machine.states.size, there()]).toEqual([layers, 1, 2]);
      await expectNobodyHeld();
    }
    answer = { kind: 'unused' };
    expect(await release()).toMatchObject({ state: OperationState.SUCCEEDED, warnings: [] });
    await expectMerged();
  });

  test('a merge that was cut off leaves the layers and holds nobody', async () => {
    const before = await contents(layers);
    let isForgotten = false;
    world.scripted.reach = async point => {
      if (point === 'virDomainSnapshotDelete.after') isForgotten = true;
      if (!isForgotten) return;
      answer = { kind: 'unknown', reason: 'n2 is away' };
      if (point === 'virDomainSetMetadata.before') throw new Error('the agent ends');
    };
    const { id } = await detach();
    world.scripted.reach = async () => {};
    expect(owner.machine.states.size).toBe(0);
    const until = performance.now() + 10_000;
    while (holders().some(kind => kind !== undefined) && performance.now() < until) await sleep(10);
    await expectNobodyHeld();
    expect([owner.tops(), await contents(layers)]).toEqual([layers, before]);
    const { warnings } = journal.operation(id)!.message;
    expect(warnings.slice(-2)).toEqual(layers.map(path => expect.stringContaining(path)));
    // nor is its backup held up
    const told: string[] = [];
    const context = {
      signal: AbortSignal.timeout(60_000),
      log: silent,
      warn: (text: string) => told.push(text),
    };
    await completeMerges(dependencies, context as never, key.ownerId);
    expect([told, owner.tops()]).toEqual([layers.map(path => expect.stringContaining(path)), layers]);
    answer = { kind: 'unused' };
    await mergeRest();
    await expectMerged();
  });
});

test('an owner whose memory is saved gets its disk back and can be started; then its instant is merged', async () => {
  const { machine } = owner;
  machine.saved = machine.live;
  world.scripted.powerOff(machine);
  const { state, warnings } = await detach();
  expect([state, warnings]).toEqual([OperationState.SUCCEEDED, [expect.stringContaining('managed save')]]);
  await expectNobodyHeld();
  expect([machine.states.size, metadataOf().loans ?? []]).toEqual([1, []]);
  // an agent that starts anew holds nobody either
  stopAgent();
  startAgent();
  runner.recover();
  await expectNobodyHeld();
  const due = async () => {
    const zfs = { releasable: new Set<string>(), hasClone: () => false };
    const { views } = await readViews(world.scripted.libvirt, zfs, async () => [world.poolRecord]);
    return planReconciliation(views).map(action => action.do);
  };
  expect(await due()).toEqual([]);
  await world.scripted.start(machine);
  machine.saved = null;
  expect(await due()).toEqual(['release']);
  // nobody gets the disk as it was then
  expect(await attach()).toMatchObject({
    state: OperationState.FAILED,
    error: { msgKey: 'snapshot_in_use' },
  });
  expect(machine.states.size).toBe(1);
  expect(await release()).toMatchObject({ state: OperationState.SUCCEEDED, warnings: [] });
  await expectMerged();
  expectNothingLeft();
  expect(await attach()).toMatchObject({ state: OperationState.SUCCEEDED });
});
