// Lending of disks on a real libvirt with real guests: the table of the specification's 3.1 and the rules of 4.1 to 4.3.
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { PowerAction } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import { LENDING_STATE } from '../../../agent/src/snapshots/index.ts';
import { makeTwoFaced } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { openFilesOf } from '../../lab/processes.ts';
import { CALL } from '../inventory/lab.ts';
import { deviceOf, LendLab, onLent } from './lab.ts';

const failure = (msgKey: string) => expect.objectContaining({ msgKey });
let lab: LendLab;
let owner: Guest;
let reader: Guest;
let other: Guest;
let disks: string[];

beforeAll(async () => {
  lab = await LendLab.start();
  owner = await lab.base.world.defineTiny({ name: 'owner', dataDisks: [{ sizeMiB: 64 }, { sizeMiB: 32 }] });
  reader = await lab.base.world.defineTiny({ name: 'reader', dataDisks: [] });
  other = await lab.base.world.defineTiny({ name: 'other', dataDisks: [] });
  for (const guest of [owner, reader]) await guest.start();
  for (const guest of [owner, reader]) await guest.waitForAgent();
  disks = await lab.diskIds(owner);
  lab.keep();
});
afterAll(() => lab?.stop());

const poolFiles = () => readdirSync(lab.base.world.node.pool(0).path).sort();
const write = (disk: 'vda' | 'vdb', text: string) => owner.sh(`echo ${text} > /mnt/${disk}/mark; sync`);
const read = (guest: Guest, diskId: string) =>
  guest.sh(onLent(diskId, 'cat $M/mark')).then(text => text.trim());

test('the first attach makes the state; the borrower reads its instant while the owner writes on; the last detach removes it', async () => {
  const before = poolFiles();
  await write('vda', 'one');
  const result = await lab.attach(reader, disks[0]!);
  expect(result).toMatchObject({
    vdisk: disks[0],
    owner_id: await owner.uuid(),
    attached: { target_dev: 'vda' },
    snapshot: { name: LENDING_STATE },
    warnings: [],
  });
  expect(result.attached.id).not.toBe(disks[0]);
  expect(await owner.snapshots()).toEqual([LENDING_STATE]);
  await write('vda', 'two');
  expect(await read(reader, disks[0]!)).toBe('one');
  expect(await owner.sh('cat /mnt/vda/mark')).toBe('two\n');

  // read-only, virtio, cache none, whatever was asked; and in the definition of the next start too
  for (const inactive of [false, true]) {
    const xml = await reader.xml(inactive);
    expect(xml).toContain("cache='none'");
    expect(xml).toContain('<readonly/>');
    expect(xml).toContain(`<alias name='ua-virtkeep-${disks[0]!.replaceAll('-', '')}'/>`);
  }
  await expect(
    reader.sh(`dd if=/dev/zero of=/dev/${deviceOf(disks[0]!)} count=1 conv=fsync`),
  ).rejects.toThrow();
  expect(await read(reader, disks[0]!)).toBe('one');

  const { attachments, disks: own } = await lab.known(reader);
  expect(own).toEqual([]);
  expect(attachments).toMatchObject([
    { diskId: disks[0], ownerId: await owner.uuid(), attachedId: result.attached.id, detaching: false },
  ]);
  expect((await lab.known(owner)).loans).toEqual([
    { diskId: disks[0], borrowerId: await reader.uuid(), borrowerNodeId: '', mark: '' },
  ]);

  expect(await lab.detach(reader, disks[0]!)).toEqual({
    vdisk: disks[0],
    owner_id: await owner.uuid(),
    domain_id: await reader.uuid(),
    owner_is_here: true,
  });
  expect(await owner.snapshots()).toEqual([]);
  expect(poolFiles()).toEqual(before);
  expect(await owner.sh('cat /mnt/vda/mark')).toBe('two\n');
  expect((await lab.known(reader)).attachments).toEqual([]);
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
  expect(await reader.xml(true)).not.toContain('virtkeep');
});

test('further disks share the instant of the first; one disk goes to several VMs, off ones too', async () => {
  await write('vda', 'a1');
  await write('vdb', 'b1');
  await lab.attach(reader, disks[0]!);
  await write('vda', 'a2');
  await write('vdb', 'b2');
  await lab.attach(reader, disks[1]!);
  await lab.attach(other, disks[1]!);
  expect(await owner.snapshots()).toEqual([LENDING_STATE]);
  expect([await read(reader, disks[0]!), await read(reader, disks[1]!)]).toEqual(['a1', 'b1']);
  await (await other.start()).waitForAgent();
  expect(await read(other, disks[1]!)).toBe('b1');
  await expect(lab.attach(reader, disks[1]!)).rejects.toEqual(failure('vdisk_attached_already'));

  await lab.detach(reader, disks[0]!);
  await lab.detach(reader, disks[1]!);
  expect(await owner.snapshots()).toEqual([LENDING_STATE]);
  await lab.base.power(await other.uuid(), PowerAction.SHUTDOWN, { force: true });
  expect(await owner.snapshots()).toEqual([LENDING_STATE]);
  await lab.detach(other, disks[1]!);
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
  expect(await owner.sh('cat /mnt/vda/mark /mnt/vdb/mark')).toBe('a2\nb2\n');
});

test('requests that mean nothing are refused, and leave nothing', async () => {
  const before = poolFiles();
  await expect(lab.attach(reader, newId())).rejects.toEqual(failure('vdisk_not_found'));
  await expect(lab.attach(owner, disks[0]!)).rejects.toEqual(failure('invalid_field'));
  await expect(lab.attach(reader, disks[0]!, await owner.uuid())).rejects.toEqual(failure('not_thin_clone'));
  await expect(lab.detach(reader, disks[0]!)).rejects.toEqual(failure('vdisk_not_attached'));
  const { attached } = await lab.attach(reader, disks[0]!);
  await expect(lab.detach(reader, attached.id)).rejects.toEqual(failure('attached_object_given'));
  await expect(lab.detach(reader, disks[1]!)).rejects.toEqual(failure('vdisk_not_attached'));
  await lab.detach(reader, disks[0]!);
  expect(poolFiles()).toEqual(before);
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
});

test('while something is lent, the owner gets no state, loses none, is not reverted, marked or removed', async () => {
  await lab.attach(reader, disks[0]!);
  const domainId = await owner.uuid();
  const [state] = (await lab.known(owner)).savedStates;
  const refused = failure('vdisk_attached_elsewhere');
  const make = lab.snapshots.create(
    {
      operationId: newId(),
      domainId,
      name: 's',
      description: '',
      memory: false,
      requireConsistency: false,
      allowNetworkLayers: false,
    },
    CALL,
  );
  await expect(lab.base.ended(Promise.resolve(make))).rejects.toEqual(refused);
  const drop = { operationId: newId(), domainId, snapshotId: state!.id, bandwidth: 0n };
  await expect(lab.base.ended(Promise.resolve(lab.snapshots.remove(drop, CALL)))).rejects.toEqual(refused);
  const revert = { operationId: newId(), domainId, snapshotId: state!.id };
  await expect(lab.base.ended(Promise.resolve(lab.snapshots.revert(revert, CALL)))).rejects.toEqual(refused);
  for (const full of [false, true])
    await expect(lab.base.remove(domainId, { full, force: true })).rejects.toMatchObject({
      msgKey: 'vdisk_attached_elsewhere',
      message: expect.stringContaining('reader'),
    });
  await lab.base.power(domainId, PowerAction.SHUTDOWN, { force: true });
  await expect(async () => lab.base.domains.update({ domainId, template: true }, CALL)).rejects.toEqual(
    refused,
  );
  const reserved = { operationId: newId(), domainId, name: LENDING_STATE, description: '', memory: false };
  await expect(async () =>
    lab.snapshots.create({ ...reserved, requireConsistency: false, allowNetworkLayers: false }, CALL),
  ).rejects.toEqual(failure('invalid_field'));
  // the owner is off now: the state goes all the same
  await lab.detach(reader, disks[0]!);
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
});

test('an owner that is off lends too; one that has lent starts and stops as it likes', async () => {
  expect(await owner.state()).toBe('shut off');
  await lab.attach(reader, disks[0]!);
  expect(await read(reader, disks[0]!)).toBe('a2');
  await (await owner.start()).waitForAgent();
  await write('vda', 'a3');
  expect(await read(reader, disks[0]!)).toBe('a2');
  await lab.detach(reader, disks[0]!);
  expect(await owner.sh('cat /mnt/vda/mark')).toBe('a3\n');
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
});

test('what a running owner lent is merged while it is off, however often it ran meanwhile', async () => {
  const before = poolFiles();
  const off = async () => lab.base.power(await owner.uuid(), PowerAction.SHUTDOWN, { force: true });
  await lab.attach(reader, disks[0]!);
  await write('vda', 'a4');
  await off();
  await (await owner.start()).waitForAgent();
  await write('vda', 'a5');
  await off();
  expect(await read(reader, disks[0]!)).toBe('a3');
  await lab.detach(reader, disks[0]!);
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
  expect(poolFiles()).toEqual(before);
  expect(await owner.xml(true)).not.toContain('lent-layer');
  await (await owner.start()).waitForAgent();
  expect(await owner.sh('cat /mnt/vda/mark')).toBe('a5\n');
});

test('an owner whose memory was saved gets its disk back, starts at once, and its state goes', async () => {
  const before = poolFiles();
  await lab.attach(reader, disks[0]!);
  await write('vda', 'a6');
  await lab.base.world.node.virsh('managedsave', owner.name);
  await lab.detach(reader, disks[0]!);
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: true });
  await lab.base.power(await owner.uuid(), PowerAction.START);
  await lab.nothingLent(owner);
  expect(await owner.sh('cat /mnt/vda/mark')).toBe('a6\n');
  expect(poolFiles()).toEqual(before);
});

test('saved states that were there before stay what they were', async () => {
  const domainId = await owner.uuid();
  const make = (name: string) =>
    lab.base.ended(
      Promise.resolve(
        lab.snapshots.create(
          {
            operationId: newId(),
            domainId,
            name,
            description: '',
            memory: false,
            requireConsistency: false,
            allowNetworkLayers: false,
          },
          CALL,
        ),
      ),
    );
  await make('mine');
  await write('vda', 'a4');
  await lab.attach(reader, disks[0]!);
  await write('vda', 'a5');
  expect(await read(reader, disks[0]!)).toBe('a4');
  await lab.detach(reader, disks[0]!);
  expect(await owner.snapshots()).toEqual(['mine']);
  const { savedStates, statesDeleted } = await lab.known(owner);
  expect(statesDeleted).toBeUndefined();
  const snapshotId = savedStates[0]!.id;
  await lab.base.ended(
    Promise.resolve(
      lab.snapshots.remove({ operationId: newId(), domainId, snapshotId, bandwidth: 0n }, CALL),
    ),
  );
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
});

test('a running guest without a free slot is told so, and one with slots gets disks until they are used up', async () => {
  await lab.unkeep();
  let attached = 0;
  for (;;) {
    const target = disks[0]!;
    expect(target).toBeDefined();
    const more = await lab.base.world.defineTiny({ name: `more${attached}`, dataDisks: [{ sizeMiB: 8 }] });
    const [id] = await lab.diskIds(more);
    const outcome = await lab.attach(reader, id!).then(
      () => 'attached',
      (error: { msgKey: string }) => error.msgKey,
    );
    if (outcome !== 'attached') {
      expect(outcome).toBe('no_free_slot');
      expect(await lab.isSound(more)).toEqual({ lends: 0, hasState: false });
      break;
    }
    attached += 1;
  }
  expect(attached).toBeGreaterThan(0);
  for (const { diskId } of (await lab.known(reader)).attachments) await lab.detach(reader, diskId);
  expect((await lab.known(reader)).attachments).toEqual([]);
});

test('a raw disk stays raw when it is lent, although its guest wrote the header of an image on a file of the host', async () => {
  const { world } = lab.base;
  const secret = join(world.dir, 'secret');
  writeFileSync(secret, 'of the node'.repeat(6000));
  const raw = makeTwoFaced(join(world.node.pool(0).path, 'two-faced.img'), secret);
  const liar = await world.defineTiny({ name: 'liar', disks: [{ path: raw, format: 'raw' }] });
  const curious = await world.defineTiny({ name: 'curious', dataDisks: [] });
  const [disk] = await lab.diskIds(liar);
  await lab.attach(curious, disk!);
  await world.node.virsh('start', 'curious', '--paused');
  const open = openFilesOf(await curious.uuid());
  expect(open).toContain(raw);
  expect(open).not.toContain(secret);
  await curious.destroy();
  await lab.detach(curious, disk!);
});
