/** A deletion of a saved state whose user gives up, at any moment of its merge: nobody looks after what is left running then. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { RevertSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { mergeState } from '../../agent/src/snapshots/index.ts';
import { revertSnapshotWorkflow } from '../../agent/src/workflows/snapshot/revert.ts';
import { skipPauses } from './pauses.ts';
import { makeState, perform } from './stories/perform.ts';
import { makeVm, stateId, type Vm } from './stories/vm.ts';
import { silent, World } from './world.ts';

skipPauses();

let world: World;
let vm: Vm;
beforeEach(async () => {
  world = new World();
  vm = await makeVm(world, { running: true });
});
afterEach(() => world.remove());

/**
 * Deletes the state, and gives up at the n-th call of libvirt from the first commit on.
 * @returns where that was; undefined: it was done before
 */
async function givenUpAt(number: number): Promise<string | undefined> {
  const { machine } = vm;
  const ending = new AbortController();
  let calls = 0;
  let at: string | undefined;
  world.scripted.reach = async point => {
    if (machine.mirrors.size === 0 && calls === 0) return;
    calls += 1;
    if (calls !== number) return;
    at = point;
    ending.abort();
  };
  const goal = { domainId: machine.uuid, name: 's', countsAsDeletion: true };
  const options = { signal: ending.signal, log: silent, warn: () => {} };
  const merged = mergeState(world.dependencies, goal, options);
  if (at === undefined) await merged.catch(() => {});
  world.scripted.reach = async () => {};
  return at;
}

/** Deletes the state, and completes what was begun before. @returns what the user is told */
async function mergeWhole(name: string | null): Promise<string[]> {
  const told: string[] = [];
  const goal = { domainId: vm.machine.uuid, name, countsAsDeletion: true };
  const { signal } = new AbortController();
  await mergeState(world.dependencies, goal, { signal, log: silent, warn: text => void told.push(text) });
  return told;
}

/** Of the first disk: its commit begins, is looked at, and is ready. */
const MOMENTS = 12;

test('no job of its own is left running, whenever that is', async () => {
  for (let number = 1; number <= MOMENTS; number += 1) {
    await makeState(world, vm.machine.uuid, 's');
    const place = await givenUpAt(number);
    expect([place, ...vm.machine.mirrors]).toEqual([place]);
    expect(await mergeWhole('s')).toEqual([]);
    expect(place).toBeDefined();
  }
});

test('a revert to an older state leaves nothing of it, whenever that is', async () => {
  const { machine } = vm;
  const files = world.files();
  for (let number = 1; number <= MOMENTS; number += 1) {
    for (const name of ['older', 's']) await makeState(world, machine.uuid, name);
    const place = await givenUpAt(number);
    await perform(world, operationId =>
      revertSnapshotWorkflow(
        world.dependencies,
        RevertSnapshotRequest.fromPartial({
          ...{ operationId, domainId: machine.uuid, snapshotId: stateId(machine, 'older') },
        }),
      ),
    );
    const told = [...(await mergeWhole(null)), ...(await mergeWhole('older'))];
    const { looseLayers = [] } = parseDomain(machine.config!).metadata;
    expect([place, told, looseLayers, world.files()]).toEqual([place, [], [], files]);
  }
});
