// What may change between two increments, and what ends them.

import { utimesSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { RemoveSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { newId } from '@virtkeep/shared/ids';
import { GROWTH_LIMITS } from '../../../agent/src/archive/format/bounds.ts';
import { loadStates, savedStateId } from '../../../agent/src/snapshots/index.ts';
import { removeSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/remove.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { compareStates, diskHashes, firstBackup, increment, type Made, unpack } from './lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

const MIB = 1024 * 1024;
const virsh = (...args: string[]) => lab.world.node.virsh(...args);
const inPool = (name: string) => join(lab.world.node.pool(0).path, name);
const newDisk = (format: 'qcow2' | 'raw' = 'qcow2') =>
  makePlainDisk(inPool(`${newId()}.${format}`), { sizeBytes: 4 * MIB, dataBytes: MIB, format });

/** A guest that is off, with plain disks. */
async function offGuest(formats: ('qcow2' | 'raw')[], options: object = {}): Promise<Guest> {
  const disks = [];
  for (const format of formats) disks.push({ path: await newDisk(format), format });
  return lab.world.defineTiny({ disks, idle: true, ...options });
}

let mark = 0;
/** Writes to a disk of a guest that is off. */
async function write(guest: Guest, target = 'vda', offset = '1M'): Promise<void> {
  mark = (mark % 250) + 1;
  const path = (await guest.disks())[target]!;
  await run(['qemu-io', '-c', `write -P ${mark} ${offset} 64k`, path]);
}

/** Defines a guest anew from its changed definition. */
async function redefine(guest: Guest, change: (xml: string) => string): Promise<void> {
  const file = join(lab.world.dir, 'redefine.xml');
  writeFileSync(file, change(await guest.xml(true)));
  await virsh('define', file);
}

const idsOf = (made: Made): string[] => made.manifest.disks.map(({ id }: { id: string }) => id);
const refused = (reason: RegExp) => ({ msgKey: 'not_extendable', message: expect.stringMatching(reason) });

describe('a guest that is off', () => {
  test('raw and qcow2 disks, changes between, then started from what the increments left', async () => {
    const guest = await offGuest(['qcow2', 'raw']);
    let made = await firstBackup(lab, guest);
    expect(made.manifest.states[0]).toMatchObject({ consistency: 'off', memoryMember: null });
    const wanted = [await diskHashes(lab, guest)];
    for (let count = 0; count < 4; count += 1) {
      await write(guest, 'vda', `${count}M`);
      if (count % 2) await write(guest, 'vdb', '3M');
      made = await increment(lab, guest, made);
      wanted.push(await diskHashes(lab, guest));
    }
    await compareStates(lab, made.path, wanted);
    expect(await guest.snapshots()).toHaveLength(3);
    await guest.start();
    made = await increment(lab, guest, made, { holdStates: true });
    expect(made.manifest.states.at(-1)).toMatchObject({ number: 6, consistency: 'memory' });
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
    await guest.destroy();
  });

  test('a disk added, removed, resized, exchanged, and one on another target', async () => {
    const guest = await offGuest(['qcow2', 'qcow2', 'qcow2']);
    let made = await firstBackup(lab, guest);
    const ids = idsOf(made);
    const wanted = [await diskHashes(lab, guest)];
    const again = async () => {
      for (const target of Object.keys(await diskHashes(lab, guest))) await write(guest, target);
      made = await increment(lab, guest, made);
      wanted.push(await diskHashes(lab, guest));
    };
    await virsh('attach-disk', guest.name, await newDisk(), 'vdd', '--subdriver', 'qcow2', '--config');
    await again();
    expect(idsOf(made)).toEqual([...ids, expect.any(String)]);
    await virsh('detach-disk', guest.name, 'vdb', '--config');
    await again();
    expect(idsOf(made)).toEqual([ids[0], ids[2], expect.any(String)]);
    await run(['qemu-img', 'resize', '-q', (await guest.disks()).vda!, '6M']);
    await again();
    expect(made.manifest.disks[0].virtualSizeBytes).toBe(6 * MIB);
    await redefine(guest, xml =>
      xml.replace("'vda'", "'other'").replace("'vdc'", "'vda'").replace("'other'", "'vdc'"),
    );
    await again();
    expect(made.manifest.disks.map(({ id, target }: Record<string, string>) => [target, id])).toEqual(
      expect.arrayContaining([
        ['vda', ids[2]],
        ['vdc', ids[0]],
      ]),
    );
    // another disk in the place of one
    const [old, replacement] = [(await guest.disks()).vda!, await newDisk()];
    await redefine(guest, xml => xml.replace(old, replacement));
    await again();
    expect(idsOf(made)).not.toContain(ids[2]);
    await compareStates(lab, made.path, wanted);
  });

  test('another name, another pool: the disks keep their identity', async () => {
    const guest = await offGuest(['qcow2']);
    let made = await firstBackup(lab, guest);
    const ids = idsOf(made);
    const wanted = [await diskHashes(lab, guest)];
    await virsh('domrename', guest.name, `${guest.name}-renamed`);
    Object.assign(guest, { name: `${guest.name}-renamed` });
    await write(guest);
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    expect(made.manifest.vm.name).toBe(guest.name);
    await moveToOtherPool(guest);
    await write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    expect(made.manifest.disks[0].formerPath).toContain(lab.world.node.pool(1).path);
    expect(idsOf(made)).toEqual(ids);
    await compareStates(lab, made.path, wanted);
  });

  test('an image changed goes in once more, the same one does not', async () => {
    const image = inPool('tools.iso');
    writeFileSync(image, 'first');
    const guest = await lab.world.defineTiny({
      disks: [{ path: await newDisk() }, { path: image, device: 'cdrom' }],
      agent: false,
    });
    let made = await firstBackup(lab, guest);
    made = await increment(lab, guest, made);
    expect(made.manifest.isos).toMatchObject([{ member: 'tools.iso' }]);
    writeFileSync(image, 'other');
    utimesSync(image, 1, 1);
    made = await increment(lab, guest, made);
    expect(made.manifest.isos).toMatchObject([{ member: 'tools-2.iso' }]);
    made = await increment(lab, guest, made, { excludeIso: true });
    expect(made.manifest.isos).toMatchObject([{ member: null }]);
    const kinds = made.manifest.members.map(({ kind }: { kind: string }) => kind);
    expect(kinds.filter((kind: string) => kind === 'iso')).toHaveLength(2);
  });

  test('an excluded disk goes in whole when it comes back; a read-only one goes in once', async () => {
    const guest = await lab.world.defineTiny({
      disks: [
        { path: await newDisk() },
        { path: await newDisk() },
        { path: await newDisk(), readonly: true },
      ],
      agent: false,
    });
    let made = await firstBackup(lab, guest);
    const [, excluded, readonly] = idsOf(made);
    const wanted = [await diskHashes(lab, guest)];
    await write(guest, 'vdb');
    made = await increment(lab, guest, made, { excludeVdisks: [excluded!] });
    const { vdb: _, ...others } = await diskHashes(lab, guest);
    wanted.push(others);
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    const byId = (id: string) =>
      made.manifest.disks
        .find((disk: { id: string }) => disk.id === id)
        .layers.map((l: { stateNumber: number }) => l.stateNumber);
    expect(byId(readonly!)).toEqual([1]);
    expect(byId(excluded!).every((number: number) => number === 3)).toBe(true);
    await compareStates(lab, made.path, wanted);
  });
});

/** As an administrator moves a VM: files copied, chains and definitions told the new place. */
async function moveToOtherPool(guest: Guest): Promise<void> {
  const [from, to] = [lab.world.node.pool(0).path, lab.world.node.pool(1).path];
  const states = await guest.snapshots();
  const xmls: string[] = [];
  for (const name of states) xmls.push(await virsh('snapshot-dumpxml', guest.name, name, '--security-info'));
  const top = (await guest.disks()).vda!;
  const info = await run(['qemu-img', 'info', '--backing-chain', '--output=json', top]);
  const chain = (JSON.parse(info.stdout) as { filename: string }[]).map(({ filename }) => filename);
  for (const path of chain) await run(['cp', '--sparse=always', path, join(to, basename(path))]);
  for (const [index, path] of chain.slice(0, -1).entries()) {
    const below = join(to, basename(chain[index + 1]!));
    await run(['qemu-img', 'rebase', '-u', '-F', 'qcow2', '-b', below, join(to, basename(path))]);
  }
  const moved = (xml: string) =>
    xml
      .replaceAll(`${from}/`, `${to}/`)
      .replace(/<backingStore(\/>|[\s\S]*?<\/backingStore>\n(?=\s*<target))/g, '');
  for (const name of states.toReversed()) await virsh('snapshot-delete', guest.name, name, '--metadata');
  await redefine(guest, moved);
  for (const [index, xml] of xmls.entries()) {
    const file = join(lab.world.dir, 'state.xml');
    writeFileSync(file, xml.replaceAll(`${from}/`, `${to}/`));
    const current = index === xmls.length - 1 ? ['--current'] : [];
    await virsh('snapshot-create', guest.name, '--redefine', file, ...current);
  }
  for (const path of chain) await run(['rm', path]);
}

describe('several archives and states of the user', () => {
  test('two archives of one VM, neither held, beside a state of the user', async () => {
    const guest = await offGuest(['qcow2', 'raw']);
    let [one, two] = [await firstBackup(lab, guest), await firstBackup(lab, guest, { compress: true })];
    const before = await diskHashes(lab, guest);
    const wanted: Record<'one' | 'two', Record<string, string>[]> = { one: [before], two: [before] };
    for (const [round, which] of (
      ['one', 'one', 'two', 'one', 'two', 'one', 'one', 'two'] as const
    ).entries()) {
      if (round === 3) await virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
      await write(guest, 'vda', `${round % 4}M`);
      await write(guest, 'vdb', `${(round + 1) % 4}M`);
      if (which === 'one') one = await increment(lab, guest, one);
      else two = await increment(lab, guest, two);
      wanted[which].push(await diskHashes(lab, guest));
    }
    await compareStates(lab, one.path, wanted.one);
    await compareStates(lab, two.path, wanted.two);
    const left = await guest.snapshots();
    expect(left).toHaveLength(7);
    expect(left).toContain('mine');
    expect(one.manifest.snapshots.map(({ name }: { name: string }) => name)).toContain('mine');
    const { manifests } = await unpack(lab, two.path);
    expect(manifests.get(4)!.disks[0]!.layers.map(layer => layer.frozenBy)).toContain('mine');
  });

  test('what a new archive finds of those that can be extended no more is merged', async () => {
    const guest = await offGuest(['qcow2']);
    const lost = await increment(lab, guest, await firstBackup(lab, guest), { holdStates: true });
    await virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
    await virsh('snapshot-create-as', guest.name, 'other', '--disk-only');
    const domainId = await guest.uuid();
    const other = (await loadStates(lab.libvirt.domain(domainId))).find(({ name }) => name === 'other')!;
    const snapshotId = savedStateId(domainId, other);
    const removal = removeSnapshotWorkflow(
      lab.dependencies,
      RemoveSnapshotRequest.fromPartial({ domainId, snapshotId }),
    );
    await lab.run('remove_snapshot', removal, [domainId]);
    await expect(increment(lab, guest, lost)).rejects.toMatchObject(refused(/was deleted or reverted/));
    await firstBackup(lab, guest, { holdStates: true });
    expect(await guest.snapshots()).toHaveLength(4);
    await write(guest);
    let made = await firstBackup(lab, guest);
    const wanted = [await diskHashes(lab, guest)];
    const names = () => made.manifest.states.map(({ name }: { name: string }) => name);
    expect(await guest.snapshots()).toEqual(expect.arrayContaining(['mine', ...names()]));
    expect(await guest.snapshots()).toHaveLength(3);
    await write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
  });

  test('those of an archive that was removed are merged by the next increment of another, and not before', async () => {
    const guest = await offGuest(['qcow2']);
    const removed = await increment(lab, guest, await firstBackup(lab, guest));
    await write(guest);
    let made = await firstBackup(lab, guest);
    const wanted = [await diskHashes(lab, guest)];
    await write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    expect(await guest.snapshots()).toHaveLength(4);
    await write(guest, 'vda', '3M');
    made = await increment(lab, guest, made, { removedArchives: [removed.manifest.backupId] });
    wanted.push(await diskHashes(lab, guest));
    const names = made.manifest.states.map(({ name }: { name: string }) => name);
    expect([...(await guest.snapshots())].sort()).toEqual([...names].sort());
    await write(guest, 'vda', '3584k');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
  });

  test('those of an archive that has grown too long are merged once another has taken its place', async () => {
    const guest = await offGuest(['qcow2']);
    const long = await increment(lab, guest, await firstBackup(lab, guest));
    lab.dependencies.growthLimits = { ...GROWTH_LIMITS, states: 2 };
    await write(guest);
    let made = await increment(lab, guest, long, { fallbackFull: true, poolId: lab.world.node.pool(1).uuid });
    delete lab.dependencies.growthLimits;
    const wanted = [await diskHashes(lab, guest)];
    expect(made.manifest.fallbackReason).toMatch(/has grown to 2 states/);
    expect(await guest.snapshots()).toEqual([made.manifest.states[0].name]);
    await write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
  });

  test('one that readers would not take gives way to a full backup, and its archive is left behind', async () => {
    const guest = await offGuest(['qcow2']);
    const first = await firstBackup(lab, guest, { compress: true });
    lab.dependencies.mostFrames = 3;
    await write(guest);
    const asked = { fallbackFull: true, poolId: lab.world.node.pool(1).uuid };
    let made = await increment(lab, guest, first, asked);
    delete lab.dependencies.mostFrames;
    const wanted = [await diskHashes(lab, guest)];
    expect(made.manifest.fallbackReason).toMatch(/would hold \d+ bytes/);
    expect(await guest.snapshots()).toEqual([made.manifest.states[0].name]);
    await write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
  });

  test('a state with memory made by the user goes in, once', async () => {
    const guest = await offGuest(['qcow2']);
    let made = await firstBackup(lab, guest);
    await guest.start();
    const memory = inPool('mine.memory');
    await virsh(
      'snapshot-create-as',
      guest.name,
      'mine',
      '--live',
      '--memspec',
      memory,
      '--diskspec',
      'vda,snapshot=external',
    );
    made = await increment(lab, guest, made);
    made = await increment(lab, guest, made);
    const mine = made.manifest.snapshots.find(({ name }: { name: string }) => name === 'mine');
    expect(mine.memoryMember).toBe('mine.memory');
    const memories = made.manifest.members.filter(({ kind }: { kind: string }) => kind === 'memory');
    // of the user's state, and of the two increments
    expect(memories).toHaveLength(3);
    await guest.destroy();
  });
});

describe('an archive that cannot be extended', () => {
  test('says why, and a full backup takes its place when asked', async () => {
    const guest = await offGuest(['qcow2']);
    const plain = await lab.backup(guest);
    await expect(increment(lab, guest, plain)).rejects.toMatchObject(refused(/without increment capability/));
    const other = await offGuest(['qcow2']);
    const foreign = await firstBackup(lab, other);
    await expect(increment(lab, guest, foreign)).rejects.toMatchObject(refused(/another VM/));
    const made = await firstBackup(lab, guest);
    await expect(increment(lab, guest, made, { extendFileId: newId() })).rejects.toMatchObject(
      refused(/copy/),
    );
    await virsh('snapshot-delete', guest.name, made.manifest.states[0].name);
    const reason = /has no saved state|was deleted/;
    await expect(increment(lab, guest, made)).rejects.toMatchObject(refused(reason));
    const fileId = newId();
    const full = await increment(lab, guest, made, { fallbackFull: true, fileId });
    expect(full.file.id).toBe(fileId);
    expect(full.path).not.toBe(made.path);
    expect(full.manifest).toMatchObject({ incremental: true, fallbackReason: expect.stringMatching(reason) });
    expect(full.operation.warnings.join()).toMatch(reason);
    await increment(lab, guest, full);
    const asked = await firstBackup(lab, guest, { fallbackReason: 'the limit was reached' });
    expect(asked.manifest.fallbackReason).toBe('the limit was reached');
    const gone = { ...made, file: { ...made.file, filename: 'gone.tar' } };
    await expect(increment(lab, guest, gone)).rejects.toMatchObject({ msgKey: 'file_not_found' });
    expect(
      (await increment(lab, guest, gone, { fallbackFull: true, fileId: newId() })).manifest.fallbackReason,
    ).toContain('gone.tar');
  });

  test('when a state of the user is gone, or a layer was merged by hand', async () => {
    const guest = await offGuest(['qcow2']);
    await virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
    const made = await firstBackup(lab, guest);
    await virsh('snapshot-delete', guest.name, 'mine', '--metadata');
    await expect(increment(lab, guest, made)).rejects.toMatchObject(
      refused(/"mine" was deleted|was deleted or reverted/),
    );
    const second = await firstBackup(lab, guest);
    const [top] = Object.values(await guest.disks());
    const before = await run(['qemu-img', 'info', '--output=json', top!]);
    const below = (JSON.parse(before.stdout) as { 'full-backing-filename': string })['full-backing-filename'];
    await run(['qemu-img', 'commit', '-q', '-d', top!]);
    await redefine(guest, xml =>
      xml.replace(top!, below).replace(/<backingStore[\s\S]*?<\/backingStore>\n(?=\s*<target)/, ''),
    );
    await expect(increment(lab, guest, second)).rejects.toMatchObject(
      refused(/no longer in a layer of its own/),
    );
  });

  test('when the VM left the branch that a state of the user is on', async () => {
    const guest = await offGuest(['qcow2']);
    const first = (await guest.disks()).vda!;
    const made = await firstBackup(lab, guest);
    await virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
    const top = (await guest.disks()).vda!;
    const other = inPool(`${newId()}.qcow2`);
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', first, '-F', 'qcow2', other]);
    const backing = /<backingStore[\s\S]*?<\/backingStore>\n(?=\s*<target)/;
    await redefine(guest, xml => xml.replace(top, other).replace(backing, ''));
    await expect(increment(lab, guest, made)).rejects.toMatchObject({ msgKey: 'snapshot_chain_unsupported' });
    await expect(lab.backup(guest)).rejects.toMatchObject({ msgKey: 'snapshot_chain_unsupported' });
  });

  test('with a disk on zfs', async () => {
    const guest = await offGuest(['qcow2']);
    lab.poolChanges.set('fast', { kind: 'zfs' });
    await expect(firstBackup(lab, guest)).rejects.toMatchObject({ msgKey: 'zfs_incremental' });
    lab.poolChanges.clear();
    const made = await firstBackup(lab, guest);
    lab.poolChanges.set('bulk', { readonly: true });
    await expect(increment(lab, guest, made)).rejects.toMatchObject({ msgKey: 'pool_read_only' });
    lab.poolChanges.clear();
  });
});
