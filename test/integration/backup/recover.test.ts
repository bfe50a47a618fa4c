import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { createLogger } from '@virtkeep/shared/log';
import { ensureThawed } from '../../../agent/src/guest/index.ts';
import { BACKUP_STEPS } from '../../../agent/src/workflows/backup/backup.ts';
import { changeOffline } from '../../../agent/src/workflows/guest/offline.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
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
      guest.sh('test -e /tmp/anew').then(
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

describe('the target pool', () => {
  const backups = () => join(lab.world.node.pool(1).path, 'backups');
  async function mounted(options: string[], work: () => Promise<void>): Promise<void> {
    rmSync(backups(), { recursive: true, force: true });
    mkdirSync(backups());
    await run(['mount', ...options, backups()]);
    try {
      await work();
    } finally {
      await run(['umount', backups()]);
    }
  }

  test.each([false, true])(
    'is full (compressed: %s): refused or ended with disk_full, nothing left',
    async compress => {
      const path = join(lab.world.node.pool(0).path, 'random.qcow2');
      await makePlainDisk(path, { sizeBytes: 24 << 20, dataBytes: 24 << 20 });
      const other = await lab.world.defineTiny({ disks: [{ path }] });
      await mounted(['-t', 'tmpfs', '-o', 'size=16M', 'tmpfs'], async () => {
        // the pool has room, the file system that was mounted into it has not
        await expect(lab.backup(other, { compress })).rejects.toMatchObject({ msgKey: 'disk_full' });
        expect(lab.files(1).filter(name => name !== 'backups')).toEqual([]);
      });
      rmSync(path);
    },
    180_000,
  );

  test('is read-only', async () => {
    await mounted(['-t', 'tmpfs', '-o', 'ro', 'tmpfs'], async () => {
      const before = await picture();
      await expect(lab.backup(guest)).rejects.toMatchObject({ msgKey: 'pool_read_only' });
      expect(await picture()).toEqual(before);
    });
  });

  test('of a restore has too little space: the pool of the backup is used; runs full: disk_full', async () => {
    const path = join(lab.world.node.pool(0).path, `${newId()}.qcow2`);
    await makePlainDisk(path, { sizeBytes: 24 << 20, dataBytes: 24 << 20 });
    const other = await lab.world.defineTiny({ disks: [{ path }] });
    const { file } = await lab.backup(other, { poolId: lab.world.node.pool(0).uuid });
    const from = { poolId: lab.world.node.pool(0).uuid, filename: file.filename };
    const target = lab.world.node.pool(1);
    await run(['mount', '-t', 'tmpfs', '-o', 'size=16M', 'tmpfs', target.path]);
    try {
      const { result } = await lab.restore(file, { file: from, poolId: target.uuid });
      expect(result).toMatchObject({ pool_changed: true, disks: [{ pool_id: lab.world.node.pool(0).uuid }] });
      await run(['mount', '-o', 'remount,size=40M', target.path]);
      const before = lab.files(1);
      const pause = join(lab.world.dir, 'pause-full');
      lab.inject(`restore.check.after=pause:${pause}`);
      const ending = lab.restore(file, { file: from, poolId: target.uuid }).catch(error => error);
      await waitFor('the check', () => existsSync(`${pause}.reached`), 180_000, 20);
      await run(['dd', 'if=/dev/zero', `of=${join(target.path, 'fill')}`, 'bs=1M', 'count=30']);
      writeFileSync(pause, '');
      expect(await ending).toMatchObject({ msgKey: 'disk_full' });
      rmSync(join(target.path, 'fill'));
      expect(lab.files(1)).toEqual(before);
    } finally {
      lab.inject('');
      await run(['umount', target.path]);
    }
  });
});

describe('a change of the disks of a guest that is off', () => {
  let off: Guest;
  let before: string;
  beforeAll(async () => {
    off = await lab.world.defineTiny({ dataDisks: [{ sizeMiB: 8 }, { format: 'raw', sizeMiB: 8 }] });
    before = await definition();
  });

  /** libvirt keeps the element that a domain's metadata were in. */
  const definition = async () => (await off.xml(true)).replace(/\s*<metadata\/>/, '');
  const dataDisks = async () =>
    Object.entries(await off.disks())
      .filter(([targetDev]) => targetDev.startsWith('vd'))
      .map(([targetDev, path]) => ({
        ...{ id: targetDev, targetDev, path, block: false, format: targetDev === 'vda' ? 'qcow2' : 'raw' },
      }));
  const change = async (faults: string, byte: number) => {
    const disks = await dataDisks();
    const operations = { ...lab.dependencies, scratchDirectory: join(lab.world.dir, 'scratch') };
    const domain = await lab.libvirt.domainByUuid(await off.uuid());
    lab.inject(faults);
    const target = { domain, name: off.name, disks, action: 'changed', allowNetworkLayers: false };
    return lab
      .run('change', context =>
        changeOffline(operations as never, context, target, async ({ overlays }) => {
          for (const path of overlays)
            await run(['qemu-io', '-f', 'qcow2', '-c', `write -q -P ${byte} 4M 64k`, path]);
          return { $case: 'prepare', value: { operations: [] } };
        }),
      )
      .finally(() => lab.inject(''));
  };
  const holds = async (byte: number) => {
    for (const { path, format } of await dataDisks())
      await run(['qemu-io', '-r', '-U', '-f', format, '-c', `read -P ${byte} 4M 64k`, path]);
  };
  const files = () => lab.files(0);

  test('is there whole, on the disks that it had', async () => {
    const listed = files();
    await change('', 5);
    await holds(5);
    expect([await definition(), files()]).toEqual([before, listed]);
  });

  test.each(['change.after', 'apply.before', 'merge.before', 'merge.after'])(
    'that fails at %s',
    async where => {
      const listed = files();
      const isMade = where.startsWith('merge');
      const ending = change(`change.${where}=fail`, isMade ? 6 : 7);
      if (isMade) await ending;
      else await expect(ending).rejects.toMatchObject({ msgKey: 'io_failed' });
      await holds(isMade ? 6 : 5);
      expect([await definition(), files()]).toEqual([before, listed]);
      if (isMade) await change('', 5);
    },
  );

  test('goes on while somebody starts it by other means', async () => {
    const [listed, disks] = [files(), await off.disks()];
    const file = join(lab.world.dir, 'pause-change');
    const ending = change(`change.merge.before=pause:${file}`, 8);
    await Promise.race([ending, waitFor('the merge', () => existsSync(`${file}.reached`), 180_000, 20)]);
    await off.start();
    writeFileSync(file, '');
    await ending;
    expect(Object.values(await off.disks()).some(path => path.includes('virtkeep-tmp'))).toBe(false);
    await virsh('destroy', off.name);
    await holds(8);
    expect([await off.disks(), files()]).toEqual([disks, listed]);
  });
});
