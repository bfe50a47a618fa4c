import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { createLogger } from '@virtkeep/shared/log';
import { ensureThawed } from '../../../agent/src/guest/index.ts';
import { BACKUP_STEPS } from '../../../agent/src/workflows/backup/backup.ts';
import type { Guest } from '../../lab/guest.ts';
import { waitFor } from '../../lab/run.ts';
import { checkFileSystem } from '../archives/archive-tools.ts';
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
  test.each(BACKUP_STEPS.flatMap(step => [`${step}.before`, `${step}.after`]))(
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

  test.each(['state.before', 'copy.before', 'copy.after', 'publish.before'])(
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

  test.each(['libvirtd is killed', 'the guest is powered off'])('%s in the middle of the merge', async what => {
    const before = await picture();
    lab.dependencies.mergeBandwidthMiB = 1;
    const merging = async () => (await virsh('domblklist', guest.name)).includes('virtkeep-tmp') &&
      (await virsh('blockjob', guest.name, 'vda', '--info', '--raw').catch(() => '')).includes('end=');
    try {
      const backup = backupWith('copy.after', () => guest.sh('dd if=/dev/urandom of=/mnt/vda/big bs=1M count=24; sync; md5sum /mnt/vda/big > /mnt/vda/big.md5; sync'));
      await waitFor('the merge', merging, 180_000, 50);
      if (what.startsWith('libvirtd')) {
        await lab.world.node.killLibvirtd();
        await lab.world.node.startLibvirtd();
      } else await guest.destroy();
      lab.dependencies.mergeBandwidthMiB = 0;
      expect((await backup).done).toBeDefined();
    } finally {
      lab.dependencies.mergeBandwidthMiB = 0;
    }
    expect(await picture()).toMatchObject({ states: before.states, disks: before.disks, files: before.files });
    if (what.startsWith('the guest')) {
      await checkFileSystem(before.disks.vda!).catch(() => {}); // a journal to be replayed is no damage
      await bootAgain();
    }
    expect(await guest.sh('md5sum -c /mnt/vda/big.md5')).toContain('OK');
  }); // biome-ignore format: one condition
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

describe('a frozen guest', () => {
  test('whose agent dies between freeze and thaw of a backup', async () => {
    const before = await picture();
    const again = 'qemu-ga -m virtio-serial -p /dev/virtio-ports/org.qemu.guest_agent.0 -t /run';
    const hook = `#!/bin/sh\n[ "$1" = freeze ] && (sleep 0.1; killall -9 qemu-ga; sleep 4; ${again}) </dev/null >/dev/null 2>&1 &\n`;
    await guest.sh(`printf '${hook}' > /tmp/hook; chmod +x /tmp/hook`);
    const anew = `sleep 1; killall qemu-ga; sleep 1; touch /tmp/anew; ${again} -F/tmp/hook`;
    await guest.background('/bin/sh', ['-c', anew]);
    const isAnew = () =>
      guest.sh('test -e /tmp/anew', 10_000).then(
        () => true,
        () => false,
      );
    await waitFor('the agent with the hook', isAnew, 180_000);
    const { manifest } = await lab.backup(guest);
    expect(manifest.states[0].consistency).toMatch(/quiesced|memory/);
    await guest.waitForAgent();
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    await guest.sh('echo writable > /mnt/vda/writable; sync');
    expect(await picture()).toMatchObject({
      states: before.states,
      disks: before.disks,
      files: before.files,
    });
  });

  test('whose agent dies is thawed when the agent is back', async () => {
    // the agent makes the file when it begins to freeze; its answer is out long before the seconds are over
    await guest.background('/bin/sh', [
      '-c',
      'until [ -e /run/qga.state.isfrozen ]; do sleep 0.2; done; sleep 10; killall -9 qemu-ga; sleep 5; qemu-ga -m virtio-serial -p /dev/virtio-ports/org.qemu.guest_agent.0 -f /run/qga2.pid -t /run',
    ]);
    await virsh('domfsfreeze', guest.name);
    await guest.waitForNoAgent();
    const log = createLogger('test', 'error');
    await ensureThawed(lab.libvirt.domain(await guest.uuid()), AbortSignal.timeout(180_000), log);
    await guest.waitForAgent();
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    await guest.sh('echo thawed > /mnt/vda/thawed; sync');
  });
});
