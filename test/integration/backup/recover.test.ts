// A backup that fails, is cancelled or meets something on its way: what is left of it, and what the guest finds on its disks.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { BACKUP_STEPS } from '../../../agent/src/workflows/backup/backup.ts';
import { few } from '../../lab/few.ts';
import type { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { WorkflowLab } from './lab.ts';

let lab: WorkflowLab;
let guest: Guest;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  guest = await lab.world.defineTiny({ dataDisks: [{ sizeMiB: 96 }, { format: 'raw' }] });
  await (await guest.start()).waitForAgent();
});
afterAll(() => lab?.stop());

const virsh = (...args: string[]) => lab.world.node.virsh(...args);

interface Picture {
  states: string[];
  disks: Record<string, string>;
  files: string[];
  archives: string[];
}

const picture = async (): Promise<Picture> => ({
  states: await guest.snapshots(),
  disks: await guest.disks(),
  files: lab.files(0),
  archives: lab.files(1),
});

/** Runs a backup that is held at a point, and does something there. */
async function backupWith(point: string, work: () => Promise<unknown>, request = {}) {
  const file = join(lab.world.dir, `pause-${point}`);
  lab.inject(`backup.${point}=pause:${file}`);
  try {
    const ending = lab.backup(guest, request).then(
      done => ({ done, error: undefined }),
      (error: Error & { msgKey: string }) => ({ done: undefined, error }),
    );
    await waitFor(point, () => existsSync(`${file}.reached`), 180_000, 20);
    await work();
    writeFileSync(file, '');
    return await ending;
  } finally {
    lab.inject('');
    rmSync(file, { force: true });
    rmSync(`${file}.reached`, { force: true });
  }
}

async function bootAgain(): Promise<void> {
  await guest.start();
  await guest.waitForAgent();
}

describe('a backup that fails', () => {
  test.each(
    few(
      BACKUP_STEPS.flatMap(step => [`${step}.before`, `${step}.after`]),
      'state.after',
      'copy.after',
      'merge.before',
    ),
  )(
    'at %s leaves nothing',
    async where => {
      const before = await picture();
      lab.inject(`backup.${where}=fail`);
      try {
        if (where.startsWith('merge')) {
          // the archive is good: what went wrong afterwards is a warning
          const { path } = await lab.backup(guest);
          rmSync(path);
        } else await expect(lab.backup(guest)).rejects.toMatchObject({ msgKey: 'io_failed' });
      } finally {
        lab.inject('');
      }
      expect(await picture()).toMatchObject({
        states: before.states,
        disks: before.disks,
        files: before.files,
      });
      expect(lab.files(1).filter(name => name !== 'backups')).toEqual([]);
      expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    },
    180_000,
  );

  test.each(few(['state.before', 'copy.before', 'copy.after', 'publish.before'], 'copy.before'))(
    'by cancel at %s leaves nothing',
    async where => {
      const before = await picture();
      const cancel = async () => {
        for (const { id } of lab.runner.list(true).operations) lab.runner.cancel(id);
      };
      const { error } = await backupWith(where, cancel);
      expect(error).toMatchObject({ msgKey: 'canceled' });
      expect(await picture()).toEqual({ ...before, archives: lab.files(1) });
      expect(lab.files(1).filter(name => name !== 'backups')).toEqual([]);
    },
    180_000,
  );
});

describe('before a backup', () => {
  test('an automatic state that no journal knows is removed', async () => {
    const before = await picture();
    await virsh('snapshot-create-as', guest.name, `virtkeep-tmp-${newId()}`, '--disk-only');
    await guest.sh('echo kept > /mnt/vda/since; sync');
    const { manifest } = await lab.backup(guest);
    expect(manifest.snapshots).toEqual([]);
    expect(await picture()).toMatchObject({
      states: before.states,
      disks: before.disks,
      files: before.files,
    });
    expect(await guest.sh('cat /mnt/vda/since')).toBe('kept\n');
  });
});

describe('while a backup runs', () => {
  test('libvirtd is killed and comes back', async () => {
    const before = await picture();
    const pid = guest.qemuPid();
    const { done } = await backupWith('copy.before', async () => {
      await lab.world.node.killLibvirtd();
      await lab.world.node.startLibvirtd();
    });
    expect(done?.manifest.states[0].consistency).toBe('quiesced');
    expect(await picture()).toMatchObject({
      states: before.states,
      disks: before.disks,
      files: before.files,
    });
    expect(guest.qemuPid()).toBe(pid);
  });

  test('the guest is powered off: what it wrote since is merged, and it starts again', async () => {
    const before = await picture();
    const { done } = await backupWith('copy.after', async () => {
      await guest.sh('echo later > /mnt/vda/later; echo later > /mnt/vdb/later; sync');
      await guest.destroy();
    });
    expect(done).toBeDefined();
    expect(await picture()).toMatchObject({
      states: before.states,
      disks: before.disks,
      files: before.files,
    });
    await bootAgain();
    expect(await guest.sh('cat /mnt/vda/later /mnt/vdb/later')).toBe('later\nlater\n');
  });

  test('somebody makes a saved state on top: that one stays, with its data', async () => {
    const { done } = await backupWith('copy.after', async () => {
      await guest.sh('echo below > /mnt/vda/below; sync');
      await virsh('snapshot-create-as', guest.name, 'theirs', '--disk-only', '--quiesce');
      await guest.sh('echo above > /mnt/vda/above; sync');
    });
    expect(done).toBeDefined();
    expect(await guest.snapshots()).toEqual(['theirs']);
    expect(await guest.sh('cat /mnt/vda/below /mnt/vda/above')).toBe('below\nabove\n');
    await virsh('snapshot-delete', guest.name, 'theirs');
    expect(lab.files(0).filter(name => name.includes('virtkeep-tmp'))).toEqual([]);
  });

  test('somebody puts a layer on top without a state: ours is merged below it', async () => {
    const before = await picture();
    const { done } = await backupWith('copy.after', async () => {
      await virsh('snapshot-create-as', guest.name, 'layer', '--disk-only', '--no-metadata');
      await guest.sh('echo on-top > /mnt/vda/on-top; sync');
    });
    expect(done).toBeDefined();
    expect(lab.files(0).filter(name => name.includes('virtkeep-tmp'))).toEqual([]);
    for (const target of ['vda', 'vdb']) {
      const top = (await guest.disks())[target]!;
      await virsh('blockcommit', guest.name, target, '--active', '--shallow', '--pivot', '--wait');
      rmSync(top);
    }
    expect(await picture()).toMatchObject({
      states: before.states,
      disks: before.disks,
      files: before.files,
    });
    expect(await guest.sh('cat /mnt/vda/on-top')).toBe('on-top\n');
  });

  /** Lifts the limit of the merges that QEMU does, until the backup has ended. */
  async function liftUntil(ended: Promise<unknown>): Promise<void> {
    let over = false;
    const note = () => {
      over = true;
    };
    ended.then(note, note);
    const lifted = async () => {
      for (const target of ['vda', 'vdb'])
        if (!over) await virsh('blockjob', guest.name, target, '--bandwidth', '0').catch(() => {});
      return over;
    };
    await waitFor('the end of the merge', lifted, 240_000, 250);
  }

  /** Bytes of a file on a disk of a guest that is off; its journal is replayed in a copy. */
  async function bytesInside(image: string, name: string): Promise<Buffer> {
    const raw = join(lab.world.dir, 'looked-into.raw');
    await run(['qemu-img', 'convert', '-f', 'qcow2', '-O', 'raw', image, raw]);
    await run(['e2fsck', '-p', raw]).catch((error: { exitCode?: number }) => {
      if (error.exitCode !== 1) throw error; // what it repaired is the journal that it replayed
    });
    await run(['debugfs', '-R', `dump ${name} ${raw}.file`, raw]);
    const bytes = readFileSync(`${raw}.file`);
    for (const path of [raw, `${raw}.file`]) rmSync(path);
    return bytes;
  }

  // nobody waits for the system that the last one leaves behind: no case comes after it
  test.each([
    ['libvirtd is killed', 0.001],
    // the rest is done by qemu-img then, at the same limit
    ['the guest is powered off', 1],
  ])('%s in the middle of the merge', async (what, limitMiB) => {
    const before = await picture();
    lab.dependencies.mergeBandwidthMiB = limitMiB;
    const merging = async () => {
      if (!(await virsh('domblklist', guest.name)).includes('virtkeep-tmp')) return false;
      const job = await virsh('blockjob', guest.name, 'vda', '--info', '--raw').catch(() => '');
      return job.includes('end=');
    };
    let md5 = '';
    try {
      const backup = backupWith('copy.after', async () => {
        await guest.sh('dd if=/dev/urandom of=/mnt/vda/big bs=1M count=6; sync');
        md5 = (await guest.sh('md5sum < /mnt/vda/big')).slice(0, 32);
      });
      await waitFor('the merge', merging, 180_000, 50);
      if (what.startsWith('libvirtd')) {
        await lab.world.node.killLibvirtd();
        await lab.world.node.startLibvirtd();
        await liftUntil(backup);
      } else await guest.destroy();
      expect((await backup).done).toBeDefined();
    } finally {
      lab.dependencies.mergeBandwidthMiB = 0;
    }
    expect(await picture()).toMatchObject({
      states: before.states,
      disks: before.disks,
      files: before.files,
    });
    if (what.startsWith('libvirtd')) expect(await guest.sh('md5sum < /mnt/vda/big')).toContain(md5);
    else {
      const bytes = await bytesInside(before.disks.vda!, 'big');
      expect(createHash('md5').update(bytes).digest('hex')).toBe(md5);
      await guest.start();
      expect(await guest.state()).toBe('running');
    }
  });
});
