import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { PowerAction } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import { run, waitFor } from '../../lab/run.ts';
import { LendLab } from './lab.ts';

let lab: LendLab;
beforeAll(async () => {
  lab = await LendLab.start();
  lab.keep();
});
afterAll(() => lab?.stop());

test('24 disks of another VM fit into one that is off, which starts with them, and into a running one', async () => {
  const { path } = lab.base.world.node.pool(0);
  const specs = [];
  for (let index = 0; index < 24; index += 1) {
    const file = join(path, `${newId()}.qcow2`);
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', file, '1M']);
    specs.push({ path: file, format: 'qcow2' as const });
  }
  const rich = await lab.base.world.defineTiny({
    name: 'rich',
    disks: specs.map((spec, index) => ({
      ...spec,
      target: `sd${String.fromCharCode(97 + index)}`,
      bus: 'scsi' as const,
    })),
  });
  const poor = await lab.base.world.defineTiny({ name: 'poor', dataDisks: [{ sizeMiB: 8 }] });
  await lab.known(poor);
  const ids = await lab.diskIds(rich);
  expect(new Set(ids).size).toBe(24);
  for (const id of ids) await lab.attach(poor, id);
  expect((await lab.known(poor)).attachments).toHaveLength(24);
  await (await poor.start()).waitForAgent();
  expect((await poor.sh('ls /sys/block | grep -c vd')).trim()).toBe('25');
  // and into a running one that has ports for them
  const devices = "<controller type='pci' model='pcie-root-port'/>".repeat(24);
  const wide = await lab.base.world.defineTiny({ name: 'wide', dataDisks: [], devices });
  await lab.known(wide);
  await (await wide.start()).waitForAgent();
  for (const id of ids) await lab.attach(wide, id);
  expect((await lab.known(wide)).attachments).toHaveLength(24);
  await waitFor(
    'the disks',
    async () => (await wide.sh('ls /sys/block | grep -c vd')).trim() === '24',
    120_000,
  );
  expect((await lab.isSound(rich)).lends).toBe(48);
  await wide.destroy();
  await lab.base.world.node.virsh('undefine', wide.name);
  await lab.base.power(await poor.uuid(), PowerAction.SHUTDOWN, { force: true });
  await lab.base.world.node.virsh('undefine', poor.name);
  await lab.nothingLent(rich);
});
