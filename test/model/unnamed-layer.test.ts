/**
 * Another manager (virsh, a cluster) has put the definition of before a saved state back. Then the state alone names the layer with what
 * was written since: its deletion must not be silent about that.
 */
import { existsSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { LENDING_STATE, mergeState } from '../../agent/src/snapshots/index.ts';
import { makeState } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { silent, World } from './world.ts';

let world: World;
let vm: Vm;
let former: string;
let warnings: string[];

beforeEach(async () => {
  [world, warnings] = [new World(), []];
});
afterEach(() => world.remove());

async function made(running: boolean, name = 's'): Promise<string[]> {
  vm = await makeVm(world, { running });
  const { config, states, uuid } = vm.machine;
  former = config!;
  await vm.write(0, 1);
  await makeState(world, uuid, 's');
  const xml = states.get('s')!;
  states.delete('s');
  states.set(name, xml.replace('<name>s</name>', `<name>${name}</name>`));
  return vm.tops();
}

const remove = (name: string | null, countsAsDeletion = true) =>
  mergeState(
    world.dependencies,
    { domainId: vm.machine.uuid, name, countsAsDeletion },
    { signal: AbortSignal.timeout(60_000), log: silent, warn: text => void warnings.push(text) },
  );

const named = (path: string) => warnings.filter(text => text.includes(path));

describe.each([
  ['of the user', 's', true],
  ['of an increment', 's', false],
  ['of a loan', LENDING_STATE, false],
])('the deletion of a state %s', (_what, name, countsAsDeletion) => {
  test('names the layer that nothing names any more', async () => {
    const layers = await made(false, name);
    await world.write(layers[0]!, 1, 2);
    vm.machine.config = former;
    await remove(name, countsAsDeletion);
    expect(vm.machine.states.has(name)).toBe(false);
    expect(layers.map(existsSync)).toEqual([true, true]);
    // nothing was ever written to the other one
    expect([named(layers[0]!).length, warnings.length]).toEqual([1, 1]);
    expect(warnings[0]).toContain('it may hold the newest data of a disk');
  });
});

test('also where it stands below another such layer', async () => {
  const [lower] = (await made(false)) as [string];
  await world.write(lower, 1, 2);
  await makeState(world, vm.machine.uuid, 't');
  const [upper] = vm.tops() as [string];
  await world.write(upper, 2, 3);
  vm.machine.config = former;
  await remove('s');
  // the other state names it
  expect(warnings).toEqual([]);
  await remove('t');
  expect(warnings.filter(text => text.startsWith(`The layer ${upper} `))).toHaveLength(1);
  expect([lower, upper].map(existsSync)).toEqual([true, true]);
});

test('a running VM is told that its next start is without it, and nobody that the layer may go', async () => {
  const layers = await made(true);
  await world.write(layers[0]!, 1, 2);
  vm.machine.config = former;
  await remove('s');
  expect(vm.tops()).toEqual(layers);
  expect(layers.map(existsSync)).toEqual([true, true]);
  expect(warnings).toEqual(layers.map(path => expect.stringContaining(`writes to ${path}`)));
  expect(warnings.join()).not.toContain('remove');
});

test.each([true, false])('an ordinary deletion tells nothing (running: %s)', async running => {
  const layers = await made(running);
  for (const path of layers) await world.write(path, 1, 2);
  await remove('s');
  expect([layers.map(existsSync), warnings]).toEqual([[false, false], []]);
});

test('nor does one of a running VM whose next start is without the disk', async () => {
  const layers = await made(true);
  for (const path of layers) await world.write(path, 1, 2);
  vm.machine.config = vm.machine.config!.replaceAll(/<disk.*?<\/disk>/gs, '');
  await remove('s');
  expect([layers.map(existsSync), warnings]).toEqual([[false, false], []]);
});
