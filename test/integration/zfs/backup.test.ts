/** Backup and restore of VMs whose disks are files on zfs datasets (specification 8): O_DIRECT, no reflink, and the limits. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { fileOf } from '../../e2e/agent-alone.ts';
import type { Guest } from '../../lab/guest.ts';
import { zfsFuseMissing } from '../../lab/zfs-fuse.ts';
import { ZfsLab } from './lab.ts';

const missing = await zfsFuseMissing();
if (missing) process.stderr.write(`SKIPPED, backups of disks on zfs are not tested here: ${missing}\n`);

interface Restored {
  disks: { path: string; target_dev: string }[];
}

(missing ? describe.skip : describe)('backup of disks on zfs', () => {
  let lab: ZfsLab;
  let guest: Guest;

  beforeAll(async () => {
    lab = await ZfsLab.start();
    const disks = [await lab.diskOn('vm', 'qcow2'), await lab.diskOn('more', 'raw')];
    guest = await lab.alone.world.defineTiny({ name: 'onzfs', disks });
    await lab.known(guest);
  });
  afterAll(async () => {
    await lab?.stop();
  });

  const ended = async (id: Promise<string>) => lab.alone.ended(await id, 280_000);
  const result = (id: Promise<string>) => lab.result<Restored>(id.then(known => ({ id: known })));
  const disksOf = async () => Object.entries(await guest.disks());

  /** Compares the restored disks with those of the guest, which is off. */
  async function expectSame({ disks }: Restored): Promise<void> {
    for (const [target, path] of await disksOf()) {
      const copy = disks.find(disk => disk.target_dev === target)!.path;
      await lab.node.runInside(['qemu-img', 'compare', path, copy]);
    }
  }

  test('while it runs, to a pool elsewhere; restored onto zfs', async () => {
    await guest.start();
    await guest.waitForAgent();
    await guest.sh('dd if=/dev/urandom of=/mnt/vda/data bs=1M count=4; cp /mnt/vda/data /mnt/vdb/data; sync');
    const sums = await guest.sh('md5sum /mnt/vda/data /mnt/vdb/data');
    const before = await disksOf();
    const { filename } = fileOf(await ended(lab.alone.startBackup(guest)));
    expect(await guest.snapshots()).toEqual([]);
    expect(await disksOf()).toEqual(before);

    const restored = await result(
      lab.alone.startRestore(filename, { poolId: lab.pool.uuid, name: 'again', startOn: true }),
    );
    for (const { path } of restored.disks) expect(path.startsWith(lab.pool.path)).toBe(true);
    const again = Object.assign(Object.create(Object.getPrototypeOf(guest)), guest, {
      name: 'again',
    }) as Guest;
    await again.waitForAgent();
    expect(await again.sh('md5sum /mnt/vda/data /mnt/vdb/data')).toBe(sums);
    await again.destroy();
    await guest.destroy();
  });

  test('while it is off, to a pool on zfs; restored from there onto another file system', async () => {
    const { filename, path } = fileOf(await ended(lab.alone.startBackup(guest, { poolId: lab.pool.uuid })));
    expect(path.startsWith(join(lab.pool.path, 'backups'))).toBe(true);
    const file = { poolId: lab.pool.uuid, filename };
    const poolId = lab.node.pool(0).uuid;
    await expectSame(await result(lab.alone.startRestore(filename, { file, poolId, name: 'elsewhere' })));
    await expectSame(
      await result(lab.alone.startRestore(filename, { file, poolId: lab.pool.uuid, name: 'here' })),
    );
  });

  test('increments are refused, and backups of a VM with saved states', async () => {
    const increment = await ended(lab.alone.startBackup(guest, { canBeIncremental: true }));
    expect(increment.error?.msgKey).toBe('zfs_incremental');
    expect(increment.error?.detail).toContain('tank/');
    await lab.node.virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
    const full = await ended(lab.alone.startBackup(guest));
    expect(full.error?.msgKey).toBe('zfs_with_states');
  });
});
