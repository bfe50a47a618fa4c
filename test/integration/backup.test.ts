import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { WorkflowLab } from './workflow-lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
}, 60_000);
afterAll(() => lab?.stop(), 60_000);

test('a running guest with agent', async () => {
  const guest = await lab.world.defineTiny({ cmdline: 'writer=/mnt/vda/w' });
  await guest.start();
  await guest.waitForAgent();
  const pid = guest.qemuPid();
  const { file } = await lab.backup(guest);
  expect(await guest.snapshots()).toEqual([]);
  expect(guest.qemuPid()).toBe(pid);
  const { result, operation } = await lab.restore(file, {
    poolId: lab.world.node.pool(0).uuid,
    startOn: true,
  });
  console.log(result, operation.warnings, lab.files(0));
  console.log(await lab.world.node.virsh('dumpxml', result.name));
}, 120_000);
test('a running guest without agent', async () => {
  const guest = await lab.world.defineTiny({ agent: false });
  await guest.start();
  await new Promise(resolve => setTimeout(resolve, 5000));
  const { file, manifest } = await lab.backup(guest);
  console.log(JSON.stringify(manifest.states), lab.files(0), lab.files(1));
  expect(await guest.snapshots()).toEqual([]);
  const { result, operation } = await lab.restore(file, {
    poolId: lab.world.node.pool(0).uuid,
    startOn: false,
  });
  console.log(result, operation.warnings, lab.files(0));
  await lab.world.node.virsh('start', result.name);
  console.log(await lab.world.node.virsh('list', '--all'));
}, 120_000);
