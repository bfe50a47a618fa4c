// See trimmed.ts.
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { WorkflowLab } from '../backup/lab.ts';
import { diskHashes, firstBackup, increment, write } from './lab.ts';
import { expectRestored, type Shown, trim } from './trimmed.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

test('saved states of the user come back with what stays', async () => {
  const guest = await lab.world.defineTiny({ dataDisks: [{ sizeMiB: 8 }] });
  await (await guest.start()).waitForAgent();
  const shown: Shown = new Map();
  let made = await firstBackup(lab, guest);
  shown.set(1, await diskHashes(lab, guest));
  await write(guest, '/mnt/vda/note', 'before mine');
  const disksOnly = ['--disk-only', '--atomic', '--quiesce'];
  await lab.world.node.virsh('snapshot-create-as', guest.name, 'mine', ...disksOnly);
  for (const number of [2, 3, 4]) {
    await write(guest, '/mnt/vda/note', `text ${number}`);
    made = await increment(lab, guest, made, { holdStates: true });
    shown.set(number, await diskHashes(lab, guest));
  }
  expect(await trim(lab, made, 2)).toEqual([1, 2]);
  made = await increment(lab, guest, made, { holdStates: true });
  shown.set(5, await diskHashes(lab, guest));
  await guest.destroy();
  const names = await expectRestored(lab, made, shown);
  expect(names.get(3)).toEqual(['mine']);
  expect(names.get(4)).toHaveLength(2);
});
