// What needs no guest that runs: pools that are full or read-only, and changes of disks of a VM that is off.
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { changeOffline } from '../../../agent/src/workflows/guest/offline.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { WorkflowLab } from './lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

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
    const guest = await lab.world.defineTiny();
    await mounted(['-t', 'tmpfs', '-o', 'ro', 'tmpfs'], async () => {
      const picture = async () => [
        await guest.xml(true),
        await guest.snapshots(),
        lab.files(0),
        lab.files(1),
      ];
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
    await off.destroy();
    await holds(8);
    expect([await off.disks(), files()]).toEqual([disks, listed]);
  });
});
