/** A deletion of a saved state whose user gives up, at any moment of its merge: nobody looks after what is left running then. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { mergeState } from '../../agent/src/snapshots/index.ts';
import { skipPauses } from './pauses.ts';
import { makeState } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
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

/** Of the first disk: its commit begins, is looked at, and is ready. */
const MOMENTS = 12;

test('no job of its own is left running, whenever that is', async () => {
  for (let number = 1; number <= MOMENTS; number += 1) {
    await makeState(world, vm.machine.uuid, 's');
    const place = await givenUpAt(number);
    expect([place, ...vm.machine.mirrors]).toEqual([place]);
    const goal = { domainId: vm.machine.uuid, name: 's', countsAsDeletion: true };
    const { signal } = new AbortController();
    await mergeState(world.dependencies, goal, { signal, log: silent, warn: () => {} });
    expect(place).toBeDefined();
  }
});
