// Archives made to reach the node through who restores them: shown, restored, started, reverted, freed of their states and
// removed, with everything recorded that libvirtd, QEMU and the agent open, make and remove meanwhile.
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { CORPUS, liveWatched } from '../integration/hostile-corpus.ts';
import { HostileLab } from '../integration/hostile-lab.ts';
import { WorkflowLab } from '../integration/workflow-lab.ts';

let lab: WorkflowLab;
let hostile: HostileLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  hostile = new HostileLab(lab, join(dirname(lab.world.dir), `${basename(lab.world.dir)}.out`));
});
afterAll(async () => {
  hostile?.remove();
  await lab?.stop();
});

test.each(Object.entries(CORPUS))('nothing outside of the pools is touched by %s', async (_name, make) => {
  const attack = make(file => join(hostile.outside, file), hostile.pool, hostile);
  const { touched } = await liveWatched(lab, hostile, attack, true);
  expect(touched).toEqual([]);
});
