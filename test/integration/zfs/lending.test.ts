/**
 * Lending from zfs, on zfs-fuse: the rows and rules of the specification for zfs pools (3.1, 4.1, 4.2, 8). The agent is a
 * process of its own inside the node, where the datasets are mounted.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { RemoveDomainRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import { LENDING_STATE } from '../../../agent/src/snapshots/index.ts';
import { lostAnswer } from '../../e2e/agent-alone.ts';
import type { Guest } from '../../lab/guest.ts';
import { waitFor } from '../../lab/run.ts';
import { zfsFuseMissing } from '../../lab/zfs-fuse.ts';
import { onLent } from '../lending/lab.ts';
import { ZfsLab } from './lab.ts';

const missing = await zfsFuseMissing();
if (missing) process.stderr.write(`SKIPPED, lending from zfs is not tested here: ${missing}\n`);

(missing ? describe.skip : describe)('lending from zfs', () => {
  let lab: ZfsLab;
  let owner: Guest;
  let reader: Guest;
  let disks: string[];

  beforeAll(async () => {
    lab = await ZfsLab.start();
    const { world } = lab.alone;
    const own = [await lab.diskOn('vm', 'qcow2'), await lab.diskOn('more', 'raw')];
    owner = await world.defineTiny({ name: 'owner', disks: own });
    reader = await world.defineTiny({ name: 'reader', dataDisks: [] });
    for (const guest of [owner, reader]) await guest.start();
    for (const guest of [owner, reader]) await guest.waitForAgent();
    disks = (await known(owner)).disks.map(({ id }) => id);
  });

  afterAll(async () => {
    await lab?.stop();
  });

  beforeEach(async () => {
    expect(await lab.names('snapshot')).toEqual([]);
    expect(await lab.clones()).toEqual([]);
  });

  const known = (guest: Guest) => lab.known(guest);
  const ids = async (guest: Guest, diskId: string) => ({
    operationId: newId(),
    domainId: await guest.uuid(),
    diskId,
    thinCloneId: '',
  });

  interface Attached {
    attached: { id: string; path: string; target_dev: string };
    snapshot: { id: string; name: string };
    warnings: string[];
  }
  const attach = async (guest: Guest, diskId: string) =>
    lab.result<Attached>(lab.alone.disks.attach(await ids(guest, diskId)));
  const detach = async (guest: Guest, diskId: string) =>
    lab.result(lab.alone.disks.detach(await ids(guest, diskId)));
  /** An agent that has just begun knows nothing yet. */
  const knownAgain = async () => {
    for (const guest of [owner, reader]) await known(guest);
  };
  const states = async (guest: Guest) =>
    (await lab.alone.snapshots.list({ domainId: await guest.uuid() })).snapshots.map(({ name, id }) => ({
      name,
      id,
    }));
  const write = (disk: 'vda' | 'vdb', text: string) => owner.sh(`echo ${text} > /mnt/${disk}/mark; sync`);
  const read = (guest: Guest, diskId: string) =>
    guest.sh(onLent(diskId, 'cat $M/mark')).then(text => text.trim());
  const released = () =>
    waitFor('the end of the state', async () => (await lab.names('snapshot')).length === 0, 180_000);

  test('what is attached is a clone with an id of its own, at one instant of all disks; the last detach removes the state', async () => {
    await write('vda', 'a1');
    await write('vdb', 'b1');
    const first = await attach(reader, disks[0]!);
    await write('vda', 'a2');
    await write('vdb', 'b2');
    const second = await attach(reader, disks[1]!);
    expect(first.warnings).toEqual([]);
    expect(first.snapshot).toEqual(second.snapshot);
    expect(first.snapshot.name).toBe(LENDING_STATE);
    expect(new Set([first.attached.id, second.attached.id, ...disks]).size).toBe(4);
    for (const { attached } of [first, second]) expect(attached.path).toContain(attached.id);

    expect([await read(reader, disks[0]!), await read(reader, disks[1]!)]).toEqual(['a1', 'b1']);
    expect(await owner.sh('cat /mnt/vda/mark /mnt/vdb/mark')).toBe('a2\nb2\n');
    expect(await owner.snapshots()).toEqual([]);
    expect((await lab.names('snapshot')).map(name => name.split('@')[0])).toEqual(['tank/more', 'tank/vm']);
    expect(await lab.clones()).toHaveLength(2);

    expect(await states(owner)).toEqual([{ name: LENDING_STATE, id: first.snapshot.id }]);
    expect((await known(owner)).savedStates.map(({ id }) => id)).toEqual([first.snapshot.id]);
    const { attachments, disks: own } = await known(reader);
    expect(own).toEqual([]);
    expect(attachments.map(({ attachedId }) => attachedId).sort()).toEqual(
      [first.attached.id, second.attached.id].sort(),
    );

    await detach(reader, disks[0]!);
    expect(await lab.clones()).toHaveLength(1);
    expect(await states(owner)).toHaveLength(1);
    await detach(reader, disks[1]!);
    expect(await lab.clones()).toEqual([]);
    expect(await states(owner)).toEqual([]);
    expect((await known(owner)).savedStates).toEqual([]);
  });

  test('detached by the id of the clone, the clone stays and holds the state until somebody destroys it', async () => {
    await write('vda', 'kept');
    const { attached, snapshot } = await attach(reader, disks[0]!);
    await detach(reader, attached.id);
    expect((await known(reader)).attachments).toEqual([]);
    expect(await lab.clones()).toHaveLength(1);
    const [clone] = await lab.clones();
    expect(await states(owner)).toEqual([{ name: LENDING_STATE, id: snapshot.id }]);

    const domainId = await owner.uuid();
    const remove = () =>
      lab.result(
        lab.alone.snapshots.remove({
          operationId: newId(),
          domainId,
          snapshotId: snapshot.id,
          bandwidth: 0n,
        }),
      );
    await expect(remove()).rejects.toMatchObject({
      msgKey: 'zfs_clone_exists',
      message: expect.stringContaining(clone!),
    });
    const create = { operationId: newId(), domainId, name: 'mine', description: '', memory: false };
    await expect(lab.result(lab.alone.snapshots.create(create))).rejects.toMatchObject({
      msgKey: 'vdisk_attached_elsewhere',
    });

    await lab.fuse.destroy(clone!);
    // the reconciler looks once a minute, and when the agent starts
    await lab.alone.restart();
    await released();
    await waitFor('the end of the loan', async () => (await known(owner)).loans.length === 0, 120_000);
    expect(await states(owner)).toEqual([]);
  });

  test('while something is attached the state cannot be removed, nor another one made', async () => {
    const { snapshot } = await attach(reader, disks[1]!);
    const domainId = await owner.uuid();
    const request = { operationId: newId(), domainId, snapshotId: snapshot.id, bandwidth: 0n };
    await expect(lab.result(lab.alone.snapshots.remove(request))).rejects.toMatchObject({
      msgKey: 'vdisk_attached_elsewhere',
    });
    const create = { operationId: newId(), domainId, name: 'mine', description: '', memory: false };
    await expect(lab.result(lab.alone.snapshots.create(create))).rejects.toMatchObject({
      msgKey: 'vdisk_attached_elsewhere',
    });
    await expect(
      lab.alone.startBackup(owner).then(id => lab.result(lab.alone.operations.get({ id }))),
    ).rejects.toMatchObject({
      msgKey: 'vdisk_attached_elsewhere',
    });
    await detach(reader, disks[1]!);
  });

  test('a clone that somebody made by hand holds the state, and nothing else', async () => {
    await attach(reader, disks[0]!);
    const [snapshot] = (await lab.names('snapshot')).filter(name => name.startsWith('tank/vm@'));
    await lab.fuse.zfs('clone', snapshot!, 'tank/mine');
    await detach(reader, disks[0]!);
    const [state] = await states(owner);
    expect(state?.name).toBe(LENDING_STATE);
    const domainId = await owner.uuid();
    const request = { operationId: newId(), domainId, snapshotId: state!.id, bandwidth: 0n };
    await expect(lab.result(lab.alone.snapshots.remove(request))).rejects.toMatchObject({
      msgKey: 'zfs_clone_exists',
    });
    await lab.fuse.destroy('tank/mine');
    await lab.result(lab.alone.snapshots.remove({ ...request, operationId: newId() })).catch(error => {
      // the reconciler was faster
      if (error.msgKey !== 'snapshot_not_found') throw error;
    });
    await released();
  });

  test('the second VM is deleted: clones and state go', async () => {
    const short = await lab.alone.world.defineTiny({ name: 'short', dataDisks: [] });
    await known(short);
    await attach(short, disks[0]!);
    await attach(short, disks[1]!);
    const request = RemoveDomainRequest.fromPartial({
      operationId: newId(),
      domainId: await short.uuid(),
      full: true,
    });
    await lab.result(lab.alone.domains.remove(request));
    await released();
    expect(await lab.clones()).toEqual([]);
  });

  test('the agent is killed at every step of attaching and detaching: nothing is left, nothing is lost', async () => {
    for (const step of ['freeze.after', 'note.after', 'plug.before']) {
      await lab.alone.restart(`attach_disk.${step}=kill`);
      await knownAgain();
      await lab.alone.disks.attach(await ids(reader, disks[0]!)).catch(lostAnswer);
      await lab.alone.died();
      await lab.alone.up();
      await released();
      expect(await lab.clones()).toEqual([]);
      expect(await owner.state()).toBe('running');
    }
    await knownAgain();
    await write('vda', 'alive');
    await attach(reader, disks[0]!);
    await lab.alone.restart('detach_disk.unplug.after=kill');
    await knownAgain();
    await lab.alone.disks.detach(await ids(reader, disks[0]!)).catch(lostAnswer);
    await lab.alone.died();
    await lab.alone.up();
    await released();
    expect(await owner.sh('cat /mnt/vda/mark')).toBe('alive\n');
  });

  test('the agent is killed while the guest is frozen and suspended: it goes on, and the state goes', async () => {
    await write('vda', 'before');
    const request = await ids(reader, disks[0]!);
    await lab.fuse.whileHeld(
      'snapshot',
      () => lab.alone.disks.attach(request),
      async () => {
        expect(await owner.state()).toBe('paused');
        await lab.alone.agent.daemon.kill();
      },
    );
    // a program that nobody waits for any more may have made its snapshot all the same
    const id = await owner.uuid();
    const marks = ['-o', `virtkeep:owner=${id}`, '-o', 'virtkeep:created=1'];
    await lab.fuse.zfs('snapshot', ...marks, `tank/vm@${LENDING_STATE}-${id}`);
    await lab.alone.up();
    await waitFor('the guest', async () => (await owner.state()) === 'running', 120_000);
    await released();
    await write('vda', 'after');
    expect(await owner.sh('cat /mnt/vda/mark')).toBe('after\n');
    await knownAgain();
  });

  test('owners and borrowers that are off; two owners in one dataset', async () => {
    const second = await lab.alone.world.defineTiny({
      name: 'second',
      disks: [await lab.diskOn('vm', 'qcow2')],
    });
    const cold = await lab.alone.world.defineTiny({ name: 'cold', dataDisks: [] });
    const [disk] = (await known(second)).disks;
    await known(cold);
    await attach(cold, disk!.id);
    await attach(reader, disks[0]!);
    expect(await lab.names('snapshot')).toHaveLength(3);
    await detach(cold, disk!.id);
    expect(await lab.names('snapshot')).toHaveLength(2);
    await detach(reader, disks[0]!);
  });

  test('after a restart of the agent loans are known, and can be ended', async () => {
    const { attached } = await attach(reader, disks[0]!);
    await lab.alone.restart();
    await waitFor(
      'the attachment',
      async () => (await known(reader)).attachments.some(({ attachedId }) => attachedId === attached.id),
      120_000,
    );
    await detach(reader, disks[0]!);
  });
});
