// Archives made to reach the node through who restores them: shown, restored, started, reverted, freed of their states and
// removed. Here all attacks that can be made at once, and what they are after is watched; `make soak` makes each alone, and records
// everything that libvirtd, QEMU and the agent open, make and remove.
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { CORPUS, liveWatched, TOGETHER } from './hostile-corpus.ts';
import { HostileLab, together } from './hostile-lab.ts';
import { WorkflowLab } from './workflow-lab.ts';

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

test('what is read outside of the pools is noticed', () => {
  hostile.seal();
  expect(hostile.unsealed()).toEqual([]);
  readFileSync(join(hostile.outside, 'secret'));
  expect(hostile.unsealed()).toEqual(['secret']);
});

test.each(TOGETHER)('nothing outside of the pools is touched by an archive of %s', async (_whose, names) => {
  const attacks = names.map(name =>
    CORPUS[name]!(file => join(hostile.outside, file), hostile.pool, hostile),
  );
  const { touched, failed, warnings } = await liveWatched(lab, hostile, together(attacks), false);
  expect(touched).toEqual([]);
  expect(failed).toEqual([]);
  expect(warnings).toContainEqual(expect.stringContaining('Left out of'));
});
