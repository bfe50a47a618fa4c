import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { LendLab } from './lab.ts';
import { attachAll, defineRich, MANY, sees } from './many-disks.ts';

let lab: LendLab;
beforeAll(async () => {
  lab = await LendLab.start();
  lab.keep();
});
afterAll(() => lab?.stop());

test('24 disks of another VM fit into a running one that has ports for them', async () => {
  const { rich, ids } = await defineRich(lab);
  const devices = "<controller type='pci' model='pcie-root-port'/>".repeat(MANY);
  const wide = await lab.base.world.defineTiny({ name: 'wide', dataDisks: [], devices });
  await lab.known(wide);
  await (await wide.start()).waitForAgent();
  await attachAll(lab, wide, ids);
  await sees(wide, MANY);
  expect((await lab.isSound(rich)).lends).toBe(MANY);
  await wide.destroy();
  await lab.base.world.node.virsh('undefine', wide.name);
  await lab.nothingLent(rich);
});
