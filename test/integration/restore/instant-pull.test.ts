// What happens to a VM that was started from its archive while its data are pulled in. It is asked of the disks alone, from
// outside: the VM runs no system, and what its guest would write is written through QEMU.
import { createHash } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { makePlainDisk } from '../../lab/disks.ts';
import { run, waitFor } from '../../lab/run.ts';
import { sameContent } from '../archives/archive-tools.ts';
import { StateArchive } from '../archives/state-archive.ts';
import type { RestoreResult, WorkflowLab } from '../backup/lab.ts';
import { chainOf, FILE, InstantLab } from './instant-lab.ts';

let instant: InstantLab;
let lab: WorkflowLab;
/** What the disks of state 1 show, in images of their own. */
let wanted: string[];

const MIB = 2 ** 20;
const hashOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

/** State 1 and one on top of it; the original is gone, and files that are no disks lie where its layers were. */
beforeAll(async () => {
  instant = await InstantLab.start();
  lab = instant.lab;
  const pool = lab.world.node.pool(0).path;
  const paths = ['one.qcow2', 'two.qcow2'].map(name => join(pool, name));
  for (const path of paths) await makePlainDisk(path, { sizeBytes: 48 * MIB, dataBytes: 8 * MIB });
  const guest = await lab.world.defineTiny({ idle: true, disks: paths.map(path => ({ path })) });
  const archive = new StateArchive(guest, lab.world.dir);
  wanted = paths.map((_path, index) => join(lab.world.dir, `wanted${index}.qcow2`));
  for (const [index, path] of paths.entries())
    await run(['qemu-img', 'convert', '-O', 'qcow2', path, wanted[index]!]);
  await archive.take();
  const tops = Object.values(await guest.disks()).filter(path => path.startsWith('/'));
  for (const path of tops) await run(['qemu-io', '-f', 'qcow2', '-c', 'write -q -P 2 0 1M', path]);
  await archive.take();
  await archive.write(instant.pathOf(FILE), { hash: true });
  const chains = await Promise.all(
    Object.values(await guest.disks())
      .filter(path => path.startsWith('/'))
      .map(chainOf),
  );
  await instant.virsh('undefine', guest.name, '--snapshots-metadata');
  for (const path of chains.flat()) writeFileSync(path, 'not a disk any more');
});
afterAll(() => instant?.stop());

/** Writes where nothing is pulled in yet, as the guest would: on the first disk of the running VM. */
async function writeInside({ name }: RestoreResult): Promise<void> {
  const device = '/machine/peripheral/virtio-disk0/virtio-backend';
  const command = `qemu-io -d ${device} "write -P 165 5M 256k"`;
  expect(await instant.virsh('qemu-monitor-command', name, '--hmp', command)).toBe('');
}

/** The disks show what state 1 shows, and what was written since. The VM is off: a running one has some of it in its memory alone. */
async function expectContent({ disks }: RestoreResult, written: boolean): Promise<void> {
  for (const [index, { path }] of disks.entries()) {
    const expected = join(lab.world.dir, 'expected.qcow2');
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', wanted[index]!, '-F', 'qcow2', expected]);
    if (written && index === 0)
      await run(['qemu-io', '-f', 'qcow2', '-c', 'write -q -P 165 5M 256k', expected]);
    expect([path, await sameContent(path, expected)]).toEqual([path, true]);
    rmSync(expected);
  }
}

/** A small file system in a pool's place, for us and for the node, which has mounts of its own. @returns what ends it */
async function mountSmall(pool: string): Promise<() => Promise<void>> {
  const image = join(lab.world.dir, 'small.img');
  await run(['truncate', '-s', '100M', image]);
  await run(['mkfs.ext4', '-q', '-F', image]);
  const device = (await run(['losetup', '--find', '--show', image])).stdout.trim();
  const inside = ['nsenter', '--mount', '--target', String(lab.world.node.pids()[0])] as const;
  await run(['mount', device, pool]);
  await run([...inside, 'mount', device, pool]);
  return async () => {
    await run([...inside, 'umount', '-l', pool]);
    await run(['umount', '-l', pool]);
    await run(['losetup', '--detach', device]);
    rmSync(image);
  };
}

describe('what happens to the VM while its data are pulled in', () => {
  test.each([
    ['it is switched off', true],
    ['it is switched off and on', false],
  ])('%s', async (_what, off) => {
    const before = hashOf(instant.pathOf(FILE));
    const id = instant.beginHeld('1');
    const result = await instant.committed(id);
    await instant.pulling(result);
    const copy = instant.restored(result.name);
    await writeInside(result);
    expect(await copy.xml()).toContain(FILE);
    await copy.destroy();
    // while qemu-img works on a disk, its lock keeps the VM from starting
    if (!off)
      await waitFor(
        'the start',
        () =>
          copy.start().then(
            () => true,
            () => false,
          ),
        120_000,
        100,
      );
    await instant.goOn(result);
    expect((await lab.ended(id)).warnings).toEqual([]);
    if (off) {
      expect(await copy.state()).toBe('shut off');
      await copy.start();
    }
    expect(await copy.state()).toBe('running');
    await instant.expectIndependent(result);
    await copy.destroy();
    await expectContent(result, true);
    expect(lab.files(0).filter(name => name.includes('.layer'))).toEqual([]);
    expect(hashOf(instant.pathOf(FILE))).toBe(before);
    await instant.remove(result);
  });

  test('its pool is full: the pull goes on when there is space again', async () => {
    const pool = lab.world.node.pool(0).path;
    const unmount = await mountSmall(pool);
    try {
      const id = instant.beginHeld('1');
      const result = await instant.committed(id);
      await instant.pulling(result);
      const copy = instant.restored(result.name);
      const filler = join(pool, 'filler');
      await run(['sh', '-c', `cat /dev/zero > ${filler} 2> /dev/null || true`]);
      const end = instant.goOn(result);
      await waitFor('the trouble', () => lab.runner.get(id).warnings.length > 0, 240_000, 100);
      expect(lab.runner.holderOf('file', instant.pathOf(FILE))?.operationId).toBe(id);
      rmSync(filler);
      await end;
      await lab.ended(id);
      await instant.expectIndependent(result);
      if ((await copy.state()) === 'paused') await instant.virsh('resume', result.name);
      expect(await copy.state()).toBe('running');
      await copy.destroy();
      await expectContent(result, false);
      await instant.remove(result);
    } finally {
      await unmount();
    }
  });

  test('it is undefined: its images are whole all the same', async () => {
    const id = instant.beginHeld('1');
    const result = await instant.committed(id);
    await instant.virsh('destroy', result.name);
    await instant.virsh('undefine', result.name);
    await lab.ended(id);
    for (const { path } of result.disks) expect(await chainOf(path)).toEqual([path]);
    await expectContent(result, false);
    for (const { path } of result.disks) rmSync(path, { force: true });
  });
});
