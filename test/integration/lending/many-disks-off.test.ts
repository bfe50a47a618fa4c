import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { PowerAction } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { LendLab } from './lab.ts';
import { attachAll, defineRich, MANY, sees } from './many-disks.ts';

let lab: LendLab;
beforeAll(async () => {
  lab = await LendLab.start();
  lab.keep();
});
afterAll(() => lab?.stop());

test('24 disks of another VM fit into one that is off, which starts with them', async () => {
  const { rich, ids } = await defineRich(lab);
  const poor = await lab.base.world.defineTiny({ name: 'poor', dataDisks: [{ sizeMiB: 8 }] });
  await lab.known(poor);
  await attachAll(lab, poor, ids);
  await (await poor.start()).waitForAgent();
  await sees(poor, 1 + MANY);
  expect((await lab.isSound(rich)).lends).toBe(MANY);
  await lab.base.power(await poor.uuid(), PowerAction.SHUTDOWN, { force: true });
  await lab.base.world.node.virsh('undefine', poor.name);
  await lab.nothingLent(rich);
});
