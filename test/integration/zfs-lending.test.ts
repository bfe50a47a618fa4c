/**
 * Lending from zfs, on zfs-fuse: the rows and rules of the specification for zfs pools (3.1, 4.1, 4.2, 8). The agent is a
 * process of its own inside the node, where the datasets are mounted.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { RemoveDomainRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { LENDING_STATE } from '../../agent/src/snapshots/index.ts';
import { AgentAlone, lostAnswer } from '../e2e/agent-alone.ts';
import { makeDataDisk } from '../lab/disks.ts';
import type { DiskSpec } from '../lab/domain-xml.ts';
import type { Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import { startZfsFuse, type ZfsFuse, zfsFuseMissing } from '../lab/zfs-fuse.ts';
import { onLent } from './lend-lab.ts';

const missing = await zfsFuseMissing();
if (missing) process.stderr.write(`SKIPPED, lending from zfs is not tested here: ${missing}\n`);

(missing ? describe.skip : describe)('lending from zfs', () => {
  let lab: AgentAlone;
  let fuse: ZfsFuse;
  let tank: string;
  let owner: Guest;
  let reader: Guest;
  let disks: string[];

  beforeAll(async () => {
    lab = await AgentAlone.start();
    fuse = await startZfsFuse(lab.world.node);
    tank = await fuse.createPool('tank');
    for (const name of ['vm', 'more']) await fuse.zfs('create', `tank/${name}`);
    process.env.PATH = `${fuse.bin}:${process.env.PATH}`;
    await lab.restart();
    owner = await lab.world.defineTiny({
      name: 'owner',
      disks: [await diskOn('vm', 'qcow2'), await diskOn('more', 'raw')],
    });
    reader = await lab.world.defineTiny({ name: 'reader', dataDisks: [] });
    for (const guest of [owner, reader]) await guest.start();
    for (const guest of [owner, reader]) await guest.waitForAgent();
    disks = (await known(owner)).disks.map(({ id }) => id);
  });

  afterAll(async () => {
    await lab?.stop();
  });

  beforeEach(async () => {
    expect(await zfsNames('snapshot')).toEqual([]);
    expect(await clones()).toEqual([]);
  });

  /** A disk with an ext4 file system on a dataset: made outside of the node, where nothing is mounted. */
  async function diskOn(dataset: string, format: 'qcow2' | 'raw'): Promise<DiskSpec> {
    const name = `${newId()}.${format}`;
    const made = await makeDataDisk(join(lab.world.dir, name), { sizeMiB: 32, format });
    const path = join(tank, dataset, name);
    await lab.world.node.runInside(['cp', '--sparse=always', made, path]);
    await run(['rm', made]);
    return { path, format };
  }

  const zfsNames = (type: string): Promise<string[]> =>
    fuse.zfs('list', '-H', '-o', 'name', '-t', type).then(
      ({ stdout }) => stdout.split('\n').filter(Boolean),
      () => [],
    );
  const clones = async () => (await zfsNames('filesystem')).filter(name => name.includes('virtkeep-'));
  const ids = async (guest: Guest, diskId: string) => ({
    operationId: newId(),
    domainId: await guest.uuid(),
    diskId,
    thinCloneId: '',
  });

  async function result(started: Promise<Operation>): Promise<Record<string, unknown>> {
    const { state, error, resultJson } = await lab.ended((await started).id, 240_000);
    if (state === OperationState.SUCCEEDED) return JSON.parse(resultJson) as Record<string, unknown>;
    throw Object.assign(new Error(error?.detail), { msgKey: error?.msgKey });
  }

  interface Attached {
    attached: { id: string; path: string; target_dev: string };
    snapshot: { id: string; name: string };
    warnings: string[];
  }
  const attach = async (guest: Guest, diskId: string) =>
    (await result(lab.disks.attach(await ids(guest, diskId)))) as unknown as Attached;
  const detach = async (guest: Guest, diskId: string) => result(lab.disks.detach(await ids(guest, diskId)));
  const known = async (guest: Guest) => {
    const id = await guest.uuid();
    return waitFor(
      `the inventory's knowledge of ${guest.name}`,
      async () => (await lab.domains.list({})).domains.find(domain => domain.id === id),
      120_000,
    );
  };
  /** An agent that has just begun knows nothing yet. */
  const knownAgain = async () => {
    for (const guest of [owner, reader]) await known(guest);
  };
  const states = async (guest: Guest) =>
    (await lab.snapshots.list({ domainId: await guest.uuid() })).snapshots.map(({ name, id }) => ({
      name,
      id,
    }));
  const write = (disk: 'vda' | 'vdb', text: string) => owner.sh(`echo ${text} > /mnt/${disk}/mark; sync`);
  const read = (guest: Guest, diskId: string) =>
    guest.sh(onLent(diskId, 'cat $M/mark')).then(text => text.trim());
  const released = () =>
    waitFor('the end of the state', async () => (await zfsNames('snapshot')).length === 0, 180_000);

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
    expect((await zfsNames('snapshot')).map(name => name.split('@')[0])).toEqual(['tank/more', 'tank/vm']);
    expect(await clones()).toHaveLength(2);

    expect(await states(owner)).toEqual([{ name: LENDING_STATE, id: first.snapshot.id }]);
    await waitFor(
      'the state in the inventory',
      async () => (await known(owner)).savedStates.some(({ id }) => id === first.snapshot.id),
      120_000,
    );
    const { attachments, disks: own } = await known(reader);
    expect(own).toEqual([]);
    expect(attachments.map(({ attachedId }) => attachedId).sort()).toEqual(
      [first.attached.id, second.attached.id].sort(),
    );

    await detach(reader, disks[0]!);
    expect(await clones()).toHaveLength(1);
    expect(await states(owner)).toHaveLength(1);
    await detach(reader, disks[1]!);
    expect(await clones()).toEqual([]);
    expect(await states(owner)).toEqual([]);
    await waitFor(
      'the inventory without the state',
      async () => (await known(owner)).savedStates.length === 0,
      120_000,
    );
  });

  test('detached by the id of the clone, the clone stays and holds the state until somebody destroys it', async () => {
    await write('vda', 'kept');
    const { attached, snapshot } = await attach(reader, disks[0]!);
    await detach(reader, attached.id);
    expect((await known(reader)).attachments).toEqual([]);
    expect(await clones()).toHaveLength(1);
    const [clone] = await clones();
    expect(await states(owner)).toEqual([{ name: LENDING_STATE, id: snapshot.id }]);

    const domainId = await owner.uuid();
    const remove = () =>
      result(
        lab.snapshots.remove({ operationId: newId(), domainId, snapshotId: snapshot.id, bandwidth: 0n }),
      );
    await expect(remove()).rejects.toMatchObject({
      msgKey: 'zfs_clone_exists',
      message: expect.stringContaining(clone!),
    });
    const create = { operationId: newId(), domainId, name: 'mine', description: '', memory: false };
    await expect(result(lab.snapshots.create(create))).rejects.toMatchObject({
      msgKey: 'vdisk_attached_elsewhere',
    });

    await fuse.zfs('destroy', clone!);
    // the keeper looks once a minute, and when the agent starts
    await lab.restart();
    await released();
    await waitFor('the end of the loan', async () => (await known(owner)).loans.length === 0, 120_000);
    expect(await states(owner)).toEqual([]);
  });

  test('while something is attached the state cannot be removed, nor another one made', async () => {
    const { snapshot } = await attach(reader, disks[1]!);
    const domainId = await owner.uuid();
    const request = { operationId: newId(), domainId, snapshotId: snapshot.id, bandwidth: 0n };
    await expect(result(lab.snapshots.remove(request))).rejects.toMatchObject({
      msgKey: 'vdisk_attached_elsewhere',
    });
    const create = { operationId: newId(), domainId, name: 'mine', description: '', memory: false };
    await expect(result(lab.snapshots.create(create))).rejects.toMatchObject({
      msgKey: 'vdisk_attached_elsewhere',
    });
    await expect(lab.startBackup(owner).then(id => result(lab.operations.get({ id })))).rejects.toMatchObject(
      {
        msgKey: 'vdisk_attached_elsewhere',
      },
    );
    await detach(reader, disks[1]!);
  });

  test('a clone that somebody made by hand holds the state, and nothing else', async () => {
    await attach(reader, disks[0]!);
    const [snapshot] = (await zfsNames('snapshot')).filter(name => name.startsWith('tank/vm@'));
    await fuse.zfs('clone', snapshot!, 'tank/mine');
    await detach(reader, disks[0]!);
    const [state] = await states(owner);
    expect(state?.name).toBe(LENDING_STATE);
    const domainId = await owner.uuid();
    const request = { operationId: newId(), domainId, snapshotId: state!.id, bandwidth: 0n };
    await expect(result(lab.snapshots.remove(request))).rejects.toMatchObject({ msgKey: 'zfs_clone_exists' });
    await waitFor(
      'the unmounting of the clone',
      () =>
        fuse.zfs('destroy', 'tank/mine').then(
          () => true,
          () => false,
        ),
      120_000,
    );
    await result(lab.snapshots.remove({ ...request, operationId: newId() })).catch(error => {
      // the keeper was faster
      if (error.msgKey !== 'snapshot_not_found') throw error;
    });
    await released();
  });

  test('the second VM is deleted: clones and state go', async () => {
    const short = await lab.world.defineTiny({ name: 'short', dataDisks: [] });
    await known(short);
    await attach(short, disks[0]!);
    await attach(short, disks[1]!);
    const request = RemoveDomainRequest.fromPartial({
      operationId: newId(),
      domainId: await short.uuid(),
      full: true,
    });
    await result(lab.domains.remove(request));
    await released();
    expect(await clones()).toEqual([]);
  });

  test('the agent is killed at every step of attaching and detaching: nothing is left, nothing is lost', async () => {
    for (const step of ['freeze.after', 'note.after', 'plug.before']) {
      await lab.restart(`attach_disk.${step}=kill`);
      await knownAgain();
      await lab.disks.attach(await ids(reader, disks[0]!)).catch(lostAnswer);
      await lab.died();
      await lab.up();
      await released();
      expect(await clones()).toEqual([]);
      expect(await owner.state()).toBe('running');
    }
    await knownAgain();
    await write('vda', 'alive');
    await attach(reader, disks[0]!);
    await lab.restart('detach_disk.unplug.after=kill');
    await knownAgain();
    await lab.disks.detach(await ids(reader, disks[0]!)).catch(lostAnswer);
    await lab.died();
    await lab.up();
    await released();
    expect(await owner.sh('cat /mnt/vda/mark')).toBe('alive\n');
  });

  test('owners and borrowers that are off; two owners in one dataset', async () => {
    const second = await lab.world.defineTiny({ name: 'second', disks: [await diskOn('vm', 'qcow2')] });
    const cold = await lab.world.defineTiny({ name: 'cold', dataDisks: [] });
    const [disk] = (await known(second)).disks;
    await known(cold);
    await attach(cold, disk!.id);
    await attach(reader, disks[0]!);
    expect(await zfsNames('snapshot')).toHaveLength(3);
    await detach(cold, disk!.id);
    expect(await zfsNames('snapshot')).toHaveLength(2);
    await detach(reader, disks[0]!);
  });

  test('after a restart of the agent loans are known, and can be ended', async () => {
    const { attached } = await attach(reader, disks[0]!);
    await lab.restart();
    await waitFor(
      'the attachment',
      async () => (await known(reader)).attachments.some(({ attachedId }) => attachedId === attached.id),
      120_000,
    );
    await detach(reader, disks[0]!);
  });
});
