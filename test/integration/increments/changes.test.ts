// What may change in a guest that is off between two increments, and what ends them.

import { utimesSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { readArchive } from '../../../agent/src/workflows/archives/read-archive.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import type { WorkflowLab } from '../backup/lab.ts';
import { ChangesLab, idsOf, MIB, refused } from './changes-lab.ts';
import { compareStates, diskHashes, firstBackup, increment } from './lab.ts';

let changes: ChangesLab;
let lab: WorkflowLab;
beforeAll(async () => {
  changes = await ChangesLab.start();
  ({ lab } = changes);
});
afterAll(() => changes?.stop());

describe('a guest that is off', () => {
  test('raw and qcow2 disks, changes between, then started from what the increments left', async () => {
    const guest = await changes.offGuest(['qcow2', 'raw']);
    let made = await firstBackup(lab, guest);
    expect(made.manifest.states[0]).toMatchObject({ consistency: 'off', memoryMember: null });
    const wanted = [await diskHashes(lab, guest)];
    for (let count = 0; count < 4; count += 1) {
      await changes.write(guest, 'vda', `${count}M`);
      if (count % 2) await changes.write(guest, 'vdb', '3M');
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
    const guest = await changes.offGuest(['qcow2', 'qcow2', 'qcow2']);
    let made = await firstBackup(lab, guest);
    const ids = idsOf(made);
    const wanted = [await diskHashes(lab, guest)];
    const again = async () => {
      for (const target of Object.keys(await diskHashes(lab, guest))) await changes.write(guest, target);
      made = await increment(lab, guest, made);
      wanted.push(await diskHashes(lab, guest));
    };
    await changes.virsh(
      'attach-disk',
      guest.name,
      await changes.newDisk(),
      'vdd',
      '--subdriver',
      'qcow2',
      '--config',
    );
    await again();
    expect(idsOf(made)).toEqual([...ids, expect.any(String)]);
    await changes.virsh('detach-disk', guest.name, 'vdb', '--config');
    await again();
    expect(idsOf(made)).toEqual([ids[0], ids[2], expect.any(String)]);
    await run(['qemu-img', 'resize', '-q', (await guest.disks()).vda!, '6M']);
    await again();
    expect(made.manifest.disks[0].virtualSizeBytes).toBe(6 * MIB);
    await changes.redefine(guest, xml =>
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
    const [old, replacement] = [(await guest.disks()).vda!, await changes.newDisk()];
    await changes.redefine(guest, xml => xml.replace(old, replacement));
    await again();
    expect(idsOf(made)).not.toContain(ids[2]);
    await compareStates(lab, made.path, wanted);
  });

  test('another name, another pool: the disks keep their identity', async () => {
    const guest = await changes.offGuest(['qcow2']);
    let made = await firstBackup(lab, guest);
    const ids = idsOf(made);
    const wanted = [await diskHashes(lab, guest)];
    await changes.virsh('domrename', guest.name, `${guest.name}-renamed`);
    Object.assign(guest, { name: `${guest.name}-renamed` });
    await changes.write(guest);
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    expect(made.manifest.vm.name).toBe(guest.name);
    await moveToOtherPool(guest);
    await changes.write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    expect(made.manifest.disks[0].formerPath).toContain(lab.world.node.pool(1).path);
    expect(idsOf(made)).toEqual(ids);
    await compareStates(lab, made.path, wanted);
  });

  test('an image changed goes in once more, the same one does not', async () => {
    const image = changes.inPool('tools.iso');
    writeFileSync(image, 'first');
    const guest = await lab.world.defineTiny({
      disks: [{ path: await changes.newDisk() }, { path: image, device: 'cdrom' }],
      idle: true,
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
        { path: await changes.newDisk() },
        { path: await changes.newDisk() },
        { path: await changes.newDisk(), readonly: true },
      ],
      idle: true,
    });
    let made = await firstBackup(lab, guest);
    const [, excluded, readonly] = idsOf(made);
    const wanted = [await diskHashes(lab, guest)];
    await changes.write(guest, 'vdb');
    made = await increment(lab, guest, made, { excludeVdisks: [excluded!] });
    const { vdb: _, ...others } = await diskHashes(lab, guest);
    wanted.push(others);
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    const told = await readArchive(made.path, AbortSignal.timeout(60_000), false);
    expect(told!.states!.map(({ excludedDisks }) => excludedDisks)).toEqual([[], ['vdb'], []]);
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
  for (const name of states)
    xmls.push(await changes.virsh('snapshot-dumpxml', guest.name, name, '--security-info'));
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
  for (const name of states.toReversed())
    await changes.virsh('snapshot-delete', guest.name, name, '--metadata');
  await changes.redefine(guest, moved);
  for (const [index, xml] of xmls.entries()) {
    const file = join(lab.world.dir, 'state.xml');
    writeFileSync(file, xml.replaceAll(`${from}/`, `${to}/`));
    const current = index === xmls.length - 1 ? ['--current'] : [];
    await changes.virsh('snapshot-create', guest.name, '--redefine', file, ...current);
  }
  for (const path of chain) await run(['rm', path]);
}

describe('an archive that cannot be extended', () => {
  test('says why, and a full backup takes its place when asked', async () => {
    const guest = await changes.offGuest(['qcow2']);
    const plain = await lab.backup(guest);
    await expect(increment(lab, guest, plain)).rejects.toMatchObject(refused(/without increment capability/));
    const other = await changes.offGuest(['qcow2']);
    const foreign = await firstBackup(lab, other);
    await expect(increment(lab, guest, foreign)).rejects.toMatchObject(refused(/another VM/));
    const made = await firstBackup(lab, guest);
    await expect(increment(lab, guest, made, { extendFileId: newId() })).rejects.toMatchObject(
      refused(/copy/),
    );
    await changes.virsh('snapshot-delete', guest.name, made.manifest.states[0].name);
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
    const guest = await changes.offGuest(['qcow2']);
    await changes.virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
    const made = await firstBackup(lab, guest);
    await changes.virsh('snapshot-delete', guest.name, 'mine', '--metadata');
    await expect(increment(lab, guest, made)).rejects.toMatchObject(
      refused(/"mine" was deleted|was deleted or reverted/),
    );
    const second = await firstBackup(lab, guest);
    const [top] = Object.values(await guest.disks());
    const before = await run(['qemu-img', 'info', '--output=json', top!]);
    const below = (JSON.parse(before.stdout) as { 'full-backing-filename': string })['full-backing-filename'];
    await run(['qemu-img', 'commit', '-q', '-d', top!]);
    await changes.redefine(guest, xml =>
      xml.replace(top!, below).replace(/<backingStore[\s\S]*?<\/backingStore>\n(?=\s*<target)/, ''),
    );
    await expect(increment(lab, guest, second)).rejects.toMatchObject(
      refused(/no longer in a layer of its own/),
    );
  });

  test('when the VM left the branch that a state of the user is on', async () => {
    const guest = await changes.offGuest(['qcow2']);
    const first = (await guest.disks()).vda!;
    const made = await firstBackup(lab, guest);
    await changes.virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
    const top = (await guest.disks()).vda!;
    const other = changes.inPool(`${newId()}.qcow2`);
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', first, '-F', 'qcow2', other]);
    const backing = /<backingStore[\s\S]*?<\/backingStore>\n(?=\s*<target)/;
    await changes.redefine(guest, xml => xml.replace(top, other).replace(backing, ''));
    await expect(increment(lab, guest, made)).rejects.toMatchObject({ msgKey: 'snapshot_chain_unsupported' });
    await expect(lab.backup(guest)).rejects.toMatchObject({ msgKey: 'snapshot_chain_unsupported' });
  });

  test('with a disk on zfs', async () => {
    const guest = await changes.offGuest(['qcow2']);
    lab.poolChanges.set('fast', { kind: 'zfs' });
    await expect(firstBackup(lab, guest)).rejects.toMatchObject({ msgKey: 'zfs_incremental' });
    lab.poolChanges.clear();
    const made = await firstBackup(lab, guest);
    lab.poolChanges.set('bulk', { readonly: true });
    await expect(increment(lab, guest, made)).rejects.toMatchObject({ msgKey: 'pool_read_only' });
    lab.poolChanges.clear();
  });
});
