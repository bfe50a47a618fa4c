// Increments that fail inside one process: a pool that runs full, layers changed behind our back. See faults-lab.ts.
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { run, waitFor } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { offGuest, picture } from './faults-lab.ts';
import { compareStates, diskHashes, firstBackup, increment } from './lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

test('a disk that got another layer by virsh in the middle of an increment is refused', async () => {
  const guest = await offGuest(lab);
  const made = await firstBackup(lab, guest);
  const pause = join(lab.world.dir, 'pause-layer');
  lab.inject(`backup.state.before=pause:${pause}`);
  try {
    const ending = increment(lab, guest, made).catch((error: unknown) => error);
    await waitFor('the step', () => existsSync(`${pause}.reached`), 180_000, 20);
    await lab.world.node.virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
    writeFileSync(pause, '');
    expect(await ending).toMatchObject({ msgKey: 'power_state_conflict' });
  } finally {
    lab.inject('');
  }
  expect(await guest.snapshots()).toEqual([made.manifest.states[0].name, 'mine']);
  expect((await increment(lab, guest, made)).manifest.states).toHaveLength(2);
});

test.each([false, true])(
  'a pool that runs full (compressed: %s) ends it; then there is room again',
  async compress => {
    const guest = await offGuest(lab);
    const { path } = lab.world.node.pool(1);
    await run(['mount', '-t', 'tmpfs', '-o', 'size=64M', 'tmpfs', path]);
    try {
      let made = await firstBackup(lab, guest, { compress, hashSum: true });
      const wanted = [await diskHashes(lab, guest)];
      for (const disk of Object.values(await guest.disks()).filter(found => found?.startsWith('/'))) {
        const noise = join(lab.world.dir, 'noise');
        await run(['dd', 'if=/dev/urandom', `of=${noise}`, 'bs=1M', 'count=6']);
        await run(['qemu-io', '-c', `write -s ${noise} 1M 6M`, disk!]);
      }
      const before = await picture(lab, guest, made);
      const pause = join(lab.world.dir, `pause-full-${compress}`);
      lab.inject(`backup.estimate.after=pause:${pause}`);
      const ending = increment(lab, guest, made).catch((error: unknown) => error);
      await waitFor('the step', () => existsSync(`${pause}.reached`), 180_000, 20);
      const filler = join(path, 'filler');
      await run(['sh', '-c', 'dd if=/dev/zero of="$1" bs=1M || true; truncate -s -2M "$1"', 'sh', filler]);
      writeFileSync(pause, '');
      expect(await ending).toMatchObject({ msgKey: 'disk_full' });
      // without the space it is refused before anything is touched
      lab.inject('');
      await expect(increment(lab, guest, made)).rejects.toMatchObject({ msgKey: 'pool_no_space' });
      rmSync(filler);
      expect(await picture(lab, guest, made)).toEqual(before);
      made = await increment(lab, guest, made);
      wanted.push(await diskHashes(lab, guest));
      await compareStates(lab, made.path, wanted);
    } finally {
      lab.inject('');
      await run(['umount', path]);
    }
  },
);
