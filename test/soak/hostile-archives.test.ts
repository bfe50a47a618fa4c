// Archives made to reach the node through who restores them: shown, restored, started, reverted, freed of their states and
// removed. Each attack alone, and what it is after is watched; and all together, with everything recorded that libvirtd, QEMU and
// the agent open, make and remove meanwhile.
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { CORPUS, liveWatched, TOGETHER, TWO_FACED } from '../integration/archives/hostile-corpus.ts';
import { HostileLab, together } from '../integration/archives/hostile-lab.ts';
import { WorkflowLab } from '../integration/backup/lab.ts';

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

test.each(Object.entries({ ...CORPUS, ...TWO_FACED }))(
  'nothing outside of the pools is touched by %s',
  async (_name, make) => {
    const attack = make(file => join(hostile.outside, file), hostile.pool, hostile);
    const { touched } = await liveWatched(lab, hostile, attack, false);
    expect(touched).toEqual([]);
  },
);

test.each(TOGETHER)(
  'no file but their own is opened by libvirtd, QEMU and the agent for an archive of %s',
  async (_whose, names) => {
    const attacks = names.map(name =>
      CORPUS[name]!(file => join(hostile.outside, file), hostile.pool, hostile),
    );
    const { touched } = await liveWatched(lab, hostile, together(attacks), true);
    expect(touched).toEqual([]);
  },
  900_000,
);
