// States of a guest through their workflows: made, reverted to, removed, and what is refused.

import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import type { Guest } from '../../lab/guest.ts';
import { SnapshotLab } from './lab.ts';

let lab: SnapshotLab;
beforeAll(async () => {
  lab = await SnapshotLab.start();
});
afterAll(() => lab?.stop());

const virsh = (...args: string[]) => lab.world.node.virsh(...args);
const metadataOf = async (guest: Guest) => parseDomain(await guest.xml()).metadata;

let booted: Promise<Guest> | undefined;
/** A guest that runs a system with an agent; booted once, it runs on. */
function systemGuest(): Promise<Guest> {
  const boot = async () => {
    const guest = await lab.world.defineTiny({ dataDisks: [{}, { format: 'raw' }] });
    return (await guest.start()).waitForAgent();
  };
  booted ??= boot();
  return booted;
}

describe('a state by hand', () => {
  test('of a running guest is quiesced, holds all disks, and is told of', async () => {
    const guest = await systemGuest();
    const { snapshot, warnings } = await lab.create(guest, 'before update', {
      description: 'a "test" & more',
    });
    expect(warnings).toEqual([]);
    expect(snapshot).toMatchObject({
      name: 'before update', current: true, description: 'a "test" & more', targets: ['vda', 'vdb'],
    }); // biome-ignore format: one record
    await expect(lab.create(guest, 'before update')).rejects.toMatchObject({ msgKey: 'snapshot_name_taken' });
    expect(await guest.snapshots()).toEqual(['before update']);
    await guest.sh('echo later > /mnt/vda/later; sync');
    await lab.remove(guest, 'before update');
    expect(await guest.sh('cat /mnt/vda/later')).toBe('later\n');
  });

  test('is refused where it cannot be what was asked for', async () => {
    const guest = await lab.plainGuest(['qcow2']);
    await expect(lab.create(guest, 's1', { memory: true })).rejects.toMatchObject({
      msgKey: 'power_state_conflict',
    });
    await guest.start();
    await expect(lab.create(guest, 's1', { requireConsistency: true })).rejects.toMatchObject({
      msgKey: 'consistency_unavailable',
    });
    for (const name of ['', 'a/b', '.a', 'virtkeep-tmp-x', 'a\nb', 'я'.repeat(124)])
      await expect(lab.create(guest, name)).rejects.toMatchObject({ msgKey: 'invalid_field' });
    expect(await guest.snapshots()).toEqual([]);
    expect((await lab.create(guest, 'я'.repeat(100))).warnings).toHaveLength(1);
    await guest.destroy();
  });
});

describe('reverting', () => {
  test.each(['running', 'off'])('to a state of the disks, and on from there; %s', async power => {
    const guest = await lab.plainGuest(['qcow2', 'raw']);
    if (power === 'running') await guest.start();
    await lab.write(guest, 'vda', 1);
    await lab.create(guest, 's1');
    const atS1 = await lab.contents(guest);
    await lab.write(guest, 'vda', 2);
    await lab.create(guest, 's2');
    const atS2 = await lab.contents(guest);
    await lab.write(guest, 'vdb', 3);
    const files = lab.files();

    expect(await lab.revert(guest, 's1')).toEqual({ power_state: power });
    expect(await guest.state()).toBe(power === 'running' ? 'running' : 'shut off');
    expect(await lab.contents(guest)).toEqual(atS1);
    expect(await lab.statesContents(guest)).toEqual({ s1: atS1, s2: atS2 });
    expect(lab.files()).toHaveLength(files.length);
    expect((await metadataOf(guest)).statesDeleted).toBeInstanceOf(Date);

    await lab.write(guest, 'vda', 4);
    await lab.create(guest, 's3');
    const atS3 = await lab.contents(guest);
    await lab.write(guest, 'vdb', 5);
    await lab.revert(guest, 's2');
    expect(await lab.contents(guest)).toEqual(atS2);
    await lab.write(guest, 'vda', 6);
    const now = await lab.contents(guest);

    // what two branches read stays as it is until one of them goes away
    await lab.remove(guest, 's1');
    expect(await lab.contents(guest)).toEqual(now);
    expect(await lab.statesContents(guest)).toEqual({ s2: atS2, s3: atS3 });
    await lab.check(guest);
    await lab.remove(guest, 's3');
    expect(await lab.contents(guest)).toEqual(now);
    expect(await lab.statesContents(guest)).toEqual({ s2: atS2 });
    await lab.remove(guest, 's2');
    expect(await lab.contents(guest)).toEqual(now);
    await lab.check(guest);
    const own = Object.values(await guest.disks()).filter(path => path?.startsWith('/'));
    expect(lab.files().filter(name => own.some(path => path.includes(name.slice(0, 36))))).toHaveLength(2);
    if (power === 'off') await guest.start();
    await guest.destroy();
  });

  test('to a state with memory: the guest goes on where it was', async () => {
    const guest = await systemGuest();
    await guest.sh('echo then > /run/mark; echo disk > /mnt/vda/mark; sync');
    const boot = await guest.sh('cat /proc/sys/kernel/random/boot_id');
    await guest.sh('date -s "2001-09-09 01:46:40"');
    const { snapshot } = await lab.create(guest, 'mem', { memory: true });
    expect(snapshot).toMatchObject({ memory: true });
    const atState = await lab.statesContents(guest);
    await guest.sh('echo now > /run/mark; echo now > /mnt/vda/mark; sync');
    await guest.destroy();

    for (const change of ['first', 'second']) {
      expect(await lab.revert(guest, 'mem')).toEqual({ power_state: 'running' });
      await guest.waitForAgent();
      expect(await guest.sh('cat /run/mark /mnt/vda/mark /proc/sys/kernel/random/boot_id')).toBe(
        `then\ndisk\n${boot}`,
      );
      const clock = Number(await guest.sh('date +%s'));
      expect(Math.abs(Date.now() / 1000 - clock)).toBeLessThan(600);
      await guest.sh(`echo ${change} > /mnt/vda/mark; echo ${change} > /run/mark; sync`);
      expect(await lab.statesContents(guest)).toEqual(atState);
    }
    await lab.remove(guest, 'mem');
    expect(await guest.sh('cat /mnt/vda/mark')).toBe('second\n');
    expect(lab.files().filter(name => name.endsWith('.memory'))).toEqual([]);
  });

  test('to a state of the memory alone is undone like any other, also when the guest has gone on', async () => {
    const guest = await lab.plainGuest([], { agent: false });
    await guest.start();
    await lab.create(guest, 'mem', { memory: true });
    await guest.destroy();
    await virsh('desc', guest.name, '--config', 'since then');
    const former = await guest.xml(true);
    const { libvirt } = lab;
    const resume = libvirt.restoreDomain;
    libvirt.restoreDomain = async (...asked) => {
      await resume.apply(libvirt, asked);
      throw new Error('cut off');
    };
    await expect(lab.revert(guest, 'mem')).rejects.toMatchObject({ msgKey: 'revert_failed' });
    libvirt.restoreDomain = resume;
    expect([await guest.state(), await guest.xml(true)]).toEqual(['shut off', former]);
    expect(await lab.revert(guest, 'mem')).toEqual({ power_state: 'running' });
    await guest.destroy();
  });

  test('forgets disks that came later and brings back those that were taken away', async () => {
    const guest = await lab.plainGuest(['qcow2', 'qcow2']);
    await guest.start();
    await lab.create(guest, 's1');
    const atS1 = await lab.contents(guest);
    const added = await lab.plainDisk();
    await virsh('attach-disk', guest.name, added, 'vdc', '--subdriver', 'qcow2', '--persistent');
    await guest.destroy();
    const detached = (await guest.disks()).vdb!;
    await virsh('detach-disk', guest.name, 'vdb', '--config');
    await lab.create(guest, 's2');
    const atS2 = await lab.contents(guest);
    await lab.revert(guest, 's1');
    expect(await lab.contents(guest)).toEqual(atS1);
    await lab.revert(guest, 's2');
    expect(await lab.contents(guest)).toEqual(atS2);
    // the detached disk is its owner's: what it stands on stays
    const content = await lab.hash(detached, 'qcow2');
    await lab.remove(guest, 's1');
    expect(await lab.hash(detached, 'qcow2')).toBe(content);
    await lab.remove(guest, 's2');
    expect(await lab.contents(guest)).toEqual(atS2);
    expect(await lab.hash(detached, 'qcow2')).toBe(content);
  });
});

describe('guards', () => {
  test('a layer that another VM has attached, a block job, a state that is not there', async () => {
    const guest = await lab.plainGuest(['qcow2']);
    await lab.create(guest, 's1');
    const frozen = (await lab.frozenFiles(guest, 's1'))[0]!;
    const other = await lab.world.defineTiny({
      disks: [{ path: frozen, format: 'qcow2', readonly: true }],
      idle: true,
    });
    await expect(lab.remove(guest, 's1')).rejects.toMatchObject({ msgKey: 'snapshot_in_use' });
    await virsh('undefine', other.name);
    await guest.start();
    await virsh('blockpull', guest.name, 'vda', '--bandwidth', '1', '--bytes');
    await expect(lab.remove(guest, 's1')).rejects.toMatchObject({ msgKey: 'snapshot_in_use' });
    await expect(lab.create(guest, 's2')).rejects.toMatchObject({ msgKey: 'snapshot_in_use' });
    await virsh('blockjob', guest.name, 'vda', '--abort');
    await lab.remove(guest, 's1');
    await expect(lab.removeById(guest, newId())).rejects.toMatchObject({ msgKey: 'snapshot_not_found' });
    await guest.destroy();
  });

  test('an internal state is deleted and reverted to by libvirt itself', async () => {
    const guest = await lab.plainGuest(['qcow2']);
    await virsh('snapshot-create-as', guest.name, 'inner');
    const before = await lab.contents(guest);
    await lab.write(guest, 'vda', 3);
    await lab.revert(guest, 'inner');
    expect(await lab.contents(guest)).toEqual(before);
    await lab.remove(guest, 'inner');
    expect(await guest.snapshots()).toEqual([]);
    expect((await metadataOf(guest)).statesDeleted).toBeInstanceOf(Date);
  });
});

describe('an internal state between external ones', () => {
  test.each(['running', 'off'])('does not come back into a file that a later one keeps; %s', async power => {
    const guest = await lab.plainGuest(['qcow2']);
    if (power === 'running') await guest.start();
    await virsh('snapshot-create-as', guest.name, 'inner');
    const atInner = await lab.contents(guest);
    await lab.write(guest, 'vda', 2);
    await lab.create(guest, 'ext');
    const atExt = await lab.contents(guest);
    await lab.write(guest, 'vda', 3);
    const now = await lab.contents(guest);
    await expect(lab.revert(guest, 'inner')).rejects.toMatchObject({
      msgKey: 'snapshot_in_use',
      message: expect.stringContaining('"ext"'),
    });
    expect([await lab.contents(guest), (await lab.statesContents(guest)).ext]).toEqual([now, atExt]);
    // without it the file is the disk again
    await lab.remove(guest, 'ext');
    expect(await lab.revert(guest, 'inner')).toEqual({ power_state: power });
    expect(await lab.contents(guest)).toEqual(atInner);
    if (power === 'running') await guest.destroy();
  });

  test.each(['running', 'off'])('reads what it did, whatever is merged around it; %s', async power => {
    const guest = await lab.plainGuest(['qcow2']);
    if (power === 'running') await guest.start();
    for (const [block, name] of ['e1', 'e2'].entries()) {
      await lab.write(guest, 'vda', block);
      await lab.create(guest, name);
    }
    await lab.write(guest, 'vda', 2);
    await virsh('snapshot-create-as', guest.name, 'inner');
    const atInner = await lab.contents(guest);
    await lab.write(guest, 'vda', 3);
    await lab.create(guest, 'e3');
    await lab.write(guest, 'vda', 4);
    const now = await lab.contents(guest);
    await expect(lab.remove(guest, 'e2')).rejects.toMatchObject({
      msgKey: 'snapshot_in_use',
      message: expect.stringContaining('"inner"'),
    });
    for (const name of ['e1', 'e3']) await lab.remove(guest, name);
    expect(await lab.contents(guest)).toEqual(now);
    // libvirt would look for all files that were below the running disk then
    await lab.revert(guest, 'inner');
    expect(await lab.contents(guest)).toEqual(atInner);
    expect(await guest.state()).toBe(power === 'running' ? 'running' : 'shut off');
    await lab.remove(guest, 'inner');
    await lab.remove(guest, 'e2');
    expect(await lab.contents(guest)).toEqual(atInner);
    await lab.check(guest);
    if (power === 'running') await guest.destroy();
  });
});
