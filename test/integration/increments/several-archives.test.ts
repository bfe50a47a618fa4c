// Increments of several archives of one VM, beside states of the user: each archive has its own, and merges what no other needs.

import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { RemoveSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { GROWTH_LIMITS } from '../../../agent/src/archive/format/bounds.ts';
import { loadStates, savedStateId } from '../../../agent/src/snapshots/index.ts';
import { removeSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/remove.ts';
import type { WorkflowLab } from '../backup/lab.ts';
import { ChangesLab, refused } from './changes-lab.ts';
import { compareStates, diskHashes, firstBackup, increment, unpack } from './lab.ts';

let changes: ChangesLab;
let lab: WorkflowLab;
beforeAll(async () => {
  changes = await ChangesLab.start();
  ({ lab } = changes);
});
afterAll(() => changes?.stop());

describe('several archives and states of the user', () => {
  test('two archives of one VM, neither held, beside a state of the user', async () => {
    const guest = await changes.offGuest(['qcow2', 'raw']);
    let [one, two] = [await firstBackup(lab, guest), await firstBackup(lab, guest, { compress: true })];
    const before = await diskHashes(lab, guest);
    const wanted: Record<'one' | 'two', Record<string, string>[]> = { one: [before], two: [before] };
    for (const [round, which] of (
      ['one', 'one', 'two', 'one', 'two', 'one', 'one', 'two'] as const
    ).entries()) {
      if (round === 3) await changes.virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
      await changes.write(guest, 'vda', `${round % 4}M`);
      await changes.write(guest, 'vdb', `${(round + 1) % 4}M`);
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
    const guest = await changes.offGuest(['qcow2']);
    const lost = await increment(lab, guest, await firstBackup(lab, guest), { holdStates: true });
    await changes.virsh('snapshot-create-as', guest.name, 'mine', '--disk-only');
    await changes.virsh('snapshot-create-as', guest.name, 'other', '--disk-only');
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
    await changes.write(guest);
    let made = await firstBackup(lab, guest);
    const wanted = [await diskHashes(lab, guest)];
    const names = () => made.manifest.states.map(({ name }: { name: string }) => name);
    expect(await guest.snapshots()).toEqual(expect.arrayContaining(['mine', ...names()]));
    expect(await guest.snapshots()).toHaveLength(3);
    await changes.write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
  });

  test('those of an archive that was removed are merged by the next increment of another, and not before', async () => {
    const guest = await changes.offGuest(['qcow2']);
    const removed = await increment(lab, guest, await firstBackup(lab, guest));
    await changes.write(guest);
    let made = await firstBackup(lab, guest);
    const wanted = [await diskHashes(lab, guest)];
    await changes.write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    expect(await guest.snapshots()).toHaveLength(4);
    await changes.write(guest, 'vda', '3M');
    made = await increment(lab, guest, made, { removedArchives: [removed.manifest.backupId] });
    wanted.push(await diskHashes(lab, guest));
    const names = made.manifest.states.map(({ name }: { name: string }) => name);
    expect([...(await guest.snapshots())].sort()).toEqual([...names].sort());
    await changes.write(guest, 'vda', '3584k');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
  });

  test('those of an archive that has grown too long are merged once another has taken its place', async () => {
    const guest = await changes.offGuest(['qcow2']);
    const long = await increment(lab, guest, await firstBackup(lab, guest));
    lab.dependencies.growthLimits = { ...GROWTH_LIMITS, states: 2 };
    await changes.write(guest);
    let made = await increment(lab, guest, long, { fallbackFull: true, poolId: lab.world.node.pool(1).uuid });
    delete lab.dependencies.growthLimits;
    const wanted = [await diskHashes(lab, guest)];
    expect(made.manifest.fallbackReason).toMatch(/has grown to 2 states/);
    expect(await guest.snapshots()).toEqual([made.manifest.states[0].name]);
    await changes.write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
  });

  test('one that readers would not take gives way to a full backup, and its archive is left behind', async () => {
    const guest = await changes.offGuest(['qcow2']);
    const first = await firstBackup(lab, guest, { compress: true });
    lab.dependencies.mostFrames = 3;
    await changes.write(guest);
    const asked = { fallbackFull: true, poolId: lab.world.node.pool(1).uuid };
    let made = await increment(lab, guest, first, asked);
    delete lab.dependencies.mostFrames;
    const wanted = [await diskHashes(lab, guest)];
    expect(made.manifest.fallbackReason).toMatch(/would hold \d+ bytes/);
    expect(await guest.snapshots()).toEqual([made.manifest.states[0].name]);
    await changes.write(guest, 'vda', '2M');
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
    await compareStates(lab, made.path, wanted);
  });

  test('a state with memory made by the user goes in, once', async () => {
    const guest = await changes.offGuest(['qcow2']);
    let made = await firstBackup(lab, guest);
    await guest.start();
    const memory = changes.inPool('mine.memory');
    await changes.virsh(
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
