// Increments that fail inside one process: an off guest at each step, a pool that runs full, layers changed behind our back.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { BACKUP_STEPS } from '../../../agent/src/workflows/backup/backup.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { compareStates, diskHashes, firstBackup, increment, type Made } from './lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

const MIB = 1024 * 1024;
let mark = 0;

async function offGuest(): Promise<Guest> {
  const disks = [];
  for (const format of ['qcow2', 'raw'] as const) {
    const path = join(lab.world.node.pool(0).path, `${newId()}.${format}`);
    disks.push({ path: await makePlainDisk(path, { sizeBytes: 8 * MIB, dataBytes: MIB, format }), format });
  }
  return lab.world.defineTiny({ disks, idle: true });
}

async function write(guest: Guest, length = '64k'): Promise<void> {
  mark = (mark % 250) + 1;
  for (const path of Object.values(await guest.disks()).filter(found => found?.startsWith('/')))
    await run(['qemu-io', '-c', `write -P ${mark} 1M ${length}`, path!]);
}

const bytesOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');
const picture = async (guest: Guest, made: Made) => ({
  states: await guest.snapshots(),
  disks: await guest.disks(),
  shown: await diskHashes(lab, guest),
  files: [lab.files(0), lab.files(1)],
  archive: bytesOf(made.path),
});

describe('an increment of a guest that is off', () => {
  test.each(BACKUP_STEPS.flatMap(step => [`${step}.before`, `${step}.after`]))(
    'that fails at %s leaves VM and archive as before',
    async where => {
      const guest = await offGuest();
      let made = await firstBackup(lab, guest);
      const wanted = [await diskHashes(lab, guest)];
      await write(guest);
      const before = await picture(guest, made);
      lab.inject(`backup.${where}=fail`);
      try {
        if (where.startsWith('merge')) made = await increment(lab, guest, made);
        else await expect(increment(lab, guest, made)).rejects.toMatchObject({ msgKey: 'io_failed' });
      } finally {
        lab.inject('');
      }
      if (where.startsWith('merge')) wanted.push(await diskHashes(lab, guest));
      else expect(await picture(guest, made)).toEqual(before);
      await write(guest);
      made = await increment(lab, guest, made);
      wanted.push(await diskHashes(lab, guest));
      await compareStates(lab, made.path, wanted);
    },
  );

  test('whose disk got another layer by virsh in the middle is refused', async () => {
    const guest = await offGuest();
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
});

test.each([false, true])(
  'a pool that runs full (compressed: %s) ends it; then there is room again',
  async compress => {
    const guest = await offGuest();
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
      const before = await picture(guest, made);
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
      expect(await picture(guest, made)).toEqual(before);
      made = await increment(lab, guest, made);
      wanted.push(await diskHashes(lab, guest));
      await compareStates(lab, made.path, wanted);
    } finally {
      lab.inject('');
      await run(['umount', path]);
    }
  },
);
