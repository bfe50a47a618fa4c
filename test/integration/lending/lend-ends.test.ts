/**
 * Loans that end otherwise than by a detach that the guest follows: the borrower goes, it does not let go, or what says who has what
 * is lost. The owner's instant goes with its last loan all the same.
 */
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { readViews } from '../../../agent/src/reconcilers/loan-views.ts';
import { KEEP_LOANS } from '../../../agent/src/reconcilers/loans.ts';
import { zfsHoldings } from '../../../agent/src/snapshots/index.ts';
import { reconcileLoansWorkflow } from '../../../agent/src/workflows/lend/reconcile.ts';
import { type LoanAction, planReconciliation } from '../../../agent/src/workflows/lend/reconcile-plan.ts';
import type { Guest } from '../../lab/guest.ts';
import { waitFor } from '../../lab/run.ts';
import { CALL } from '../inventory/lab.ts';
import { LendLab, seesDisk } from './lab.ts';

const failure = (msgKey: string) => expect.objectContaining({ msgKey });
let lab: LendLab;
let owner: Guest;
let reader: Guest;
let disks: string[];

beforeAll(async () => {
  lab = await LendLab.start();
  const { world } = lab.base;
  // what is on its disks is not asked: it runs without a system
  owner = await world.defineTiny({
    name: 'owner',
    dataDisks: [{ sizeMiB: 64 }, { sizeMiB: 32 }],
    idle: true,
  });
  reader = await world.defineTiny({ name: 'reader', dataDisks: [] });
  for (const guest of [owner, reader]) await guest.start();
  await reader.waitForAgent();
  await lab.known(reader);
  disks = await lab.diskIds(owner);
  lab.keep();
});
afterAll(() => lab?.stop());

const poolFiles = () => readdirSync(lab.base.world.node.pool(0).path).sort();

describe('a borrower that goes', () => {
  const borrow = async (name: string): Promise<Guest> => {
    const guest = await lab.base.world.defineTiny({ name, dataDisks: [] });
    await lab.known(guest);
    await lab.attach(guest, disks[0]!);
    expect((await lab.isSound(owner)).hasState).toBe(true);
    return guest;
  };

  test('removed by us', async () => {
    const before = poolFiles();
    const guest = await borrow('removed');
    await lab.base.remove(await guest.uuid(), { full: true });
    await lab.nothingLent(owner);
    expect(poolFiles()).toEqual(before);
  });

  test('undefined behind our back', async () => {
    const guest = await borrow('undefined');
    await lab.base.world.node.virsh('undefine', guest.name);
    await lab.nothingLent(owner);
  });

  test('whose disk was taken away behind our back', async () => {
    const guest = await borrow('plucked');
    await lab.base.world.node.virsh('detach-disk', guest.name, 'vda', '--config');
    await lab.nothingLent(owner);
    await waitFor(
      'the note of the borrower',
      async () => !(await guest.xml()).includes('urn:virtkeep'),
      120_000,
    );
  });
});

describe('a guest that does not let go', () => {
  test('a paused one keeps the disk, and it goes when it resumes', async () => {
    await lab.attach(reader, disks[0]!);
    await reader.sh(seesDisk(disks[0]!));
    await lab.base.world.node.virsh('suspend', reader.name);
    await expect(lab.detach(reader, disks[0]!)).rejects.toMatchObject({
      msgKey: 'device_did_not_detach',
      message: expect.stringContaining(`Domain ${await reader.uuid()} device did not detach`),
    });
    expect((await lab.known(reader)).attachments).toMatchObject([{ diskId: disks[0], detaching: true }]);
    expect((await lab.isSound(owner)).hasState).toBe(true);
    await lab.base.world.node.virsh('resume', reader.name);
    await lab.nothingLent(owner);
    expect((await lab.known(reader)).attachments).toEqual([]);
    await reader.waitForAgent();
  });

  test('one without an operating system lets go when it stops, and nothing comes back', async () => {
    const idle = await lab.base.world.defineTiny({
      name: 'idle',
      dataDisks: [],
      agent: false,
      cmdline: 'break=halt',
    });
    await idle.start();
    await lab.base.world.node.virsh('suspend', idle.name);
    await lab.known(idle);
    await lab.attach(idle, disks[0]!);
    await expect(lab.detach(idle, disks[0]!)).rejects.toEqual(failure('device_did_not_detach'));
    // again, on request: still the same answer, nothing lost
    await expect(lab.detach(idle, disks[0]!)).rejects.toEqual(failure('device_did_not_detach'));
    expect((await lab.isSound(owner)).lends).toBe(1);
    await idle.destroy();
    await lab.nothingLent(owner);
    expect(await idle.xml(true)).not.toContain('virtkeep');
  });

  test('what was asked for is asked for again after a restart of the agent', async () => {
    await lab.attach(reader, disks[0]!);
    await reader.sh(seesDisk(disks[0]!));
    await lab.unkeep();
    await lab.base.world.node.virsh('suspend', reader.name);
    await expect(lab.detach(reader, disks[0]!)).rejects.toEqual(failure('device_did_not_detach'));
    await lab.base.world.node.virsh('resume', reader.name);
    lab.keep();
    await lab.nothingLent(owner);
    await reader.waitForAgent();
  });
});

describe('what was found before a disk was lent', () => {
  test.each(['release', 'take_back'] as const)('%s: it is not done to the new loan', async what => {
    await lab.unkeep();
    await lab.attach(reader, disks[0]!);
    const { inventory, link, runner, workflows } = lab.base;
    const [ownerId, borrowerId] = await Promise.all([owner.uuid(), reader.uuid()]);
    const key = what === 'release' ? { diskId: '', borrowerId: '' } : { diskId: disks[0]!, borrowerId };
    const found: LoanAction[] = [{ do: what, ownerId, ...key }];
    const pools = () => inventory.pools(AbortSignal.timeout(60_000));
    const dueNow = async () => {
      const onZfs = await zfsHoldings(workflows.zfs, AbortSignal.timeout(60_000));
      const { views, unread } = await readViews(link.get(), onZfs, pools);
      return planReconciliation(views, unread);
    };
    const id = newId();
    const operation = runner.start({
      id,
      kind: KEEP_LOANS,
      request: { id },
      entities: [],
      locks: [ownerId, borrowerId].map(id => ({ kind: 'domain', id, mode: 'exclusive' })),
      mayBeCopies: 'all',
      cancellable: false,
      heavy: false,
      workflow: reconcileLoansWorkflow(workflows, found, dueNow),
    });
    await lab.base.ended(Promise.resolve(operation));
    expect(await lab.isSound(owner)).toEqual({ lends: 1, hasState: true });
    expect((await lab.known(reader)).attachments).toMatchObject([{ diskId: disks[0], detaching: false }]);
    await lab.detach(reader, disks[0]!);
    expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
    lab.keep();
  });
});

test('an image that QEMU kept open although the disk is gone is closed, and the loan ends', async () => {
  await lab.attach(reader, disks[0]!);
  await reader.sh(seesDisk(disks[0]!));
  const frozen = (await lab.known(reader)).attachments[0]!.path;
  const { node } = lab.base.world;
  const qemu = async (execute: string, args: object) => {
    const command = JSON.stringify({ execute, arguments: args });
    const answer = JSON.parse(await node.virsh('qemu-monitor-command', reader.name, command));
    expect(answer).toMatchObject({ return: expect.anything() });
    return answer.return;
  };
  // as libvirt leaves them
  const shared = { 'read-only': true, 'auto-read-only': false };
  const [storage, format] = ['libvirt-999-storage', 'libvirt-999-format'];
  await qemu('blockdev-add', { driver: 'file', 'node-name': storage, filename: frozen, ...shared });
  await qemu('blockdev-add', { driver: 'qcow2', 'node-name': format, file: storage, ...shared });
  await lab.detach(reader, disks[0]!);
  await lab.nothingLent(owner);
  expect(lab.base.recent.filter(line => line.includes('has closed it'))).toHaveLength(2);
  const left = (await qemu('query-named-block-nodes', { flat: true })) as { 'node-name': string }[];
  expect(left.map(one => one['node-name'])).not.toEqual(expect.arrayContaining([storage]));
});

test('a loan to another node ends only as it was when it was found to be over, and when nobody there has the disk', async () => {
  const { workflows } = lab.base;
  const [ownerId, borrowerId, diskId] = [await owner.uuid(), newId(), disks[0]!];
  const loan = { diskId, thinCloneId: '', borrowerId, borrowerNodeId: newId(), allowNetworkLayers: false };
  const lend = async () => {
    await lab.base.ended(Promise.resolve(lab.disks.lend({ operationId: newId(), ...loan }, CALL)));
    return (await lab.known(owner)).loans[0]!.mark;
  };
  const giveBack = async (mark: string) =>
    lab.base.ended(
      Promise.resolve(lab.disks.return({ operationId: newId(), ownerId, diskId, borrowerId, mark }, CALL)),
    );
  const first = await lend();
  const second = await lend();
  await expect(giveBack(first)).rejects.toEqual(failure('loan_renewed'));
  const by = { nodeName: 'afar', domainId: borrowerId, domainName: 'reader', active: true };
  const { otherNodes } = workflows;
  workflows.otherNodes = {
    whoUses: async things =>
      things.map(({ kind }) => (kind === 'file' ? { kind: 'used', by } : { kind: 'unused' })),
  };
  await expect(giveBack(second)).rejects.toEqual(failure('loan_in_use'));
  workflows.otherNodes = otherNodes;
  expect(await lab.isSound(owner)).toEqual({ lends: 1, hasState: true });
  await giveBack(second);
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
  await giveBack(second);
});

describe('what is lost is found again', () => {
  test('the metadata of both domains', async () => {
    await lab.attach(reader, disks[0]!);
    await lab.unkeep();
    for (const guest of [owner, reader])
      await lab.base.world.node.virsh(
        'metadata',
        guest.name,
        '--uri',
        'urn:virtkeep:domain:1',
        '--remove',
        '--live',
        '--config',
      );
    // the loan is forgotten first: as long as the owner is known with it, it tells whose disk the reader has
    expect((await lab.known(owner)).loans).toEqual([]);
    const [attachment] = (await lab.known(reader)).attachments;
    expect(attachment).toMatchObject({ diskId: disks[0], ownerId: '' });
    await lab.detach(reader, disks[0]!);
    expect((await lab.known(reader)).attachments).toEqual([]);
    lab.keep();
    await lab.nothingLent(owner);
  });

  test("the owner's metadata alone", async () => {
    await lab.attach(reader, disks[0]!);
    await lab.base.world.node.virsh(
      'metadata',
      owner.name,
      '--uri',
      'urn:virtkeep:domain:1',
      '--remove',
      '--live',
      '--config',
    );
    await lab.unkeep();
    lab.keep();
    await waitFor('the loan', async () => (await lab.known(owner)).loans.length === 1, 120_000);
    await lab.detach(reader, disks[0]!);
    expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
  });
});
