// Archives made to reach the node through who restores them: shown, restored, started, reverted, freed of their states and
// removed. Here all attacks that can be made at once, and what they are after is watched; `make soak` makes each alone, and records
// everything that libvirtd, QEMU and the agent open, make and remove.
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { makeTwoFaced } from '../../lab/disks.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { CORPUS, drive, liveWatched, TOGETHER, TWO_FACED } from './hostile-corpus.ts';
import { HostileLab, together } from './hostile-lab.ts';

/** Steps of a VM's life that cannot be with such an archive. */
const FAILS: Record<string, unknown[]> = {
  'the first layer of a disk': [expect.stringContaining('a backing file that does not belong to it')],
  'a raw disk': [expect.stringContaining('revert'), expect.stringContaining('delete state')],
};

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

test('a file of the host that an image names is noticed, where QEMU goes by its header', async () => {
  hostile.seal();
  const image = makeTwoFaced(join(hostile.pool, 'two-faced.iso'), join(hostile.outside, 'secret'));
  const device = drive(image, 'cdrom', 'sda', 'qcow2');
  const guest = await lab.world.defineTiny({ name: 'victim', dataDisks: [], devices: device });
  await lab.world.node.virsh('start', 'victim', '--paused');
  hostile.noteOpened(await guest.uuid());
  await lab.world.node.virsh('destroy', 'victim');
  await lab.world.node.virsh('undefine', 'victim');
  expect(hostile.unsealed()).toContain('QEMU has secret');
});

test.each(["an image of a pool, in somebody else's archive", 'the first layer of a disk', 'a raw disk'])(
  '%s that names a file of the host is no reason to open that',
  async name => {
    const attack = TWO_FACED[name]!(file => join(hostile.outside, file), hostile.pool, hostile);
    const { touched, failed } = await liveWatched(lab, hostile, attack, false);
    expect(touched).toEqual([]);
    expect(failed).toEqual(FAILS[name] ?? []);
  },
);
