// kill -9 of the agent at each step of attaching and detaching a disk of another VM: afterwards it is attached or it is
// not, both domains say the same, the state is there exactly when something is lent, and nothing is left over.
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { ATTACH_DISK_STEPS } from '../../agent/src/workflows/lend/attach.ts';
import { DETACH_DISK_STEPS } from '../../agent/src/workflows/lend/detach.ts';
import { LEND_DISK_STEPS, RETURN_DISK_STEPS } from '../../agent/src/workflows/lend/lend.ts';
import { type Operation, OperationState } from '../../shared/src/gen/virtkeep/agent/v1/operation.ts';
import { newId } from '../../shared/src/ids.ts';
import type { Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import { AgentAlone, lostAnswer, momentsOf } from './agent-alone.ts';

const STATE = 'vdisks_attached_to_another_domains';
let alone: AgentAlone;
let owner: Guest;
let borrower: Guest;
let [ownerId, domainId, diskId] = ['', '', ''];
let clean: string[];

beforeAll(async () => {
  alone = await AgentAlone.start();
  owner = await alone.world.defineTiny({ dataDisks: [{ sizeMiB: 64 }, { sizeMiB: 32, format: 'raw' }] });
  borrower = await alone.world.defineTiny({ dataDisks: [] });
  for (const guest of [owner, borrower]) await guest.start();
  for (const guest of [owner, borrower]) await guest.waitForAgent();
  [ownerId, domainId] = [await owner.uuid(), await borrower.uuid()];
  diskId = (await alone.domains.get({ id: ownerId })).disks[0]!.id;
  await owner.sh('echo kept > /mnt/vda/mark; sync');
  clean = files();
});
afterAll(() => alone?.stop());

const files = () => readdirSync(alone.world.node.pool(0).path).sort();

type Start = (operationId: string) => Promise<unknown>;
const attach: Start = operationId => alone.disks.attach({ operationId, domainId, diskId });
const detach: Start = operationId => alone.disks.detach({ operationId, domainId, diskId });
const stranger = newId();
const lend: Start = operationId =>
  alone.disks.lend({ operationId, diskId, borrowerId: stranger, borrowerNodeId: newId() });
const giveBack: Start = operationId =>
  alone.disks.return({ operationId, ownerId, diskId, borrowerId: stranger });

async function ended(start: Start): Promise<Operation> {
  const id = newId();
  await start(id).catch(lostAnswer);
  return alone.ended(id);
}

async function succeeds(start: Start): Promise<void> {
  expect(await ended(start)).toMatchObject({ state: OperationState.SUCCEEDED, error: undefined });
}

/** Starts the operation in an agent that dies at the point; the next agent settles it. */
async function killedAt(point: string, start: Start): Promise<Operation> {
  await alone.arm(`${point}=kill`);
  const id = newId();
  await start(id).catch(lostAnswer);
  await alone.died();
  await alone.up();
  return alone.ended(id);
}

/** Waits until nothing holds the two and all parts say the same; tells whether the disk is lent. */
async function lentNow(): Promise<boolean> {
  await waitFor(
    'the end of all operations on the two',
    async () => {
      const { operations } = await alone.operations.list({ running: true });
      return operations.length === 0;
    },
    120_000,
  );
  // the agent looks after loans by itself, and may be just at it
  let told = '';
  const isAgreed = async () => {
    told = JSON.stringify(await parts());
    return [LENT, FREE].some(parts => JSON.stringify(parts) === told);
  };
  await waitFor('agreement', isAgreed, 120_000, 500).catch(() => {
    throw new Error(`the parts say different things: ${told}`);
  });
  const isLent = told === JSON.stringify(LENT);
  if (!isLent) expect(files()).toEqual(clean);
  return isLent;
}

const LENT = { live: true, loans: 1, attachments: 1, states: [STATE], config: true };
const FREE = { live: false, loans: 0, attachments: 0, states: [] as string[], config: false };

/** What each place says of the loan. */
async function parts(): Promise<typeof LENT> {
  return {
    live: (await borrower.xml()).includes('ua-virtkeep-'),
    loans: (await alone.domains.get({ id: ownerId })).loans.length,
    attachments: (await alone.domains.get({ id: domainId })).attachments.length,
    states: await owner.snapshots(),
    config: (await borrower.xml(true)).includes('ua-virtkeep-'),
  };
}

async function expectWhole(): Promise<void> {
  expect((await owner.sh('cat /mnt/vda/mark')).trim()).toBe('kept');
  expect(await owner.agent('guest-fsfreeze-status')).toBe('thawed');
  for (const [path, format] of [
    [(await owner.disks()).vda!, 'qcow2'],
    [(await owner.disks()).vdb!, 'raw'],
  ] as const)
    if (path.endsWith('.qcow2') || format === 'qcow2')
      await run(['qemu-img', 'check', '-q', '-U', '-f', 'qcow2', path]);
  expect(await borrower.agent('guest-ping')).toEqual({});
}

describe('attaching', () => {
  test.each(momentsOf(ATTACH_DISK_STEPS))('killed at %s', async moment => {
    const operation = await killedAt(`attach_disk.${moment}`, attach);
    if (operation.state === OperationState.SUCCEEDED) {
      expect(await lentNow()).toBe(true);
      await succeeds(detach);
    } else expect(operation).toMatchObject({ error: { msgKey: 'interrupted' } });
    expect(await lentNow()).toBe(false);
    await expectWhole();
  });

  test('a further disk: the instant of the others stays', async () => {
    const second = (await alone.domains.get({ id: ownerId })).disks[1]!.id;
    await succeeds(attach);
    const { states } = { states: await owner.snapshots() };
    await killedAt('attach_disk.note.after', operationId =>
      alone.disks.attach({ operationId, domainId, diskId: second }),
    );
    expect(await owner.snapshots()).toEqual(states);
    expect(await lentNow()).toBe(true);
    await succeeds(detach);
    expect(await lentNow()).toBe(false);
  });

  test.each(['check.after', 'freeze.after', 'note.after'])('cancelled at %s', async moment => {
    const file = alone.pauseFile(moment);
    await alone.arm(`attach_disk.${moment}=pause:${file}`);
    const id = newId();
    await attach(id);
    await alone.whilePaused(file, async () => {
      await alone.operations.cancel({ id });
    });
    expect((await alone.ended(id)).state).toBe(OperationState.CANCELED);
    expect(await lentNow()).toBe(false);
    await alone.arm('');
  });
});

describe('detaching', () => {
  test.each(momentsOf(DETACH_DISK_STEPS))('killed at %s', async moment => {
    await alone.arm('');
    await succeeds(attach);
    const operation = await killedAt(`detach_disk.${moment}`, detach);
    const isDone = operation.state === OperationState.SUCCEEDED;
    if (!isDone) expect(operation).toMatchObject({ error: { msgKey: 'interrupted' } });
    if (await lentNow()) {
      expect(isDone).toBe(false);
      await succeeds(detach);
    }
    expect(await lentNow()).toBe(false);
    await expectWhole();
  });
});

describe('lending to a VM of another node', () => {
  const loans = async () => (await alone.domains.get({ id: ownerId })).loans.length;

  test.each(momentsOf(LEND_DISK_STEPS))('killed at %s', async moment => {
    const operation = await killedAt(`lend_disk.${moment}`, lend);
    const isDone = operation.state === OperationState.SUCCEEDED;
    expect(await loans()).toBe(isDone ? 1 : 0);
    expect(await owner.snapshots()).toEqual(isDone ? [STATE] : []);
    if (isDone) await succeeds(giveBack);
    expect(await lentNow()).toBe(false);
  });

  test.each(momentsOf(RETURN_DISK_STEPS))('given back, killed at %s', async moment => {
    await alone.arm('');
    await succeeds(lend);
    await killedAt(`return_disk.${moment}`, giveBack);
    await succeeds(giveBack);
    expect(await loans()).toBe(0);
    expect(await lentNow()).toBe(false);
    await expectWhole();
  });
});

test('a detaching that the guest did not follow is gone on with by the next agent', async () => {
  await alone.arm('');
  await succeeds(attach);
  await alone.world.node.virsh('suspend', borrower.name);
  expect(await ended(detach)).toMatchObject({ error: { msgKey: 'device_did_not_detach' } });
  await alone.agent.daemon.kill();
  await alone.world.node.virsh('resume', borrower.name);
  await alone.up();
  await waitFor('the end of the loan', async () => !(await borrower.xml()).includes('ua-virtkeep-'), 120_000);
  await waitFor('the end of the state', async () => (await owner.snapshots()).length === 0, 120_000);
  expect(await lentNow()).toBe(false);
  await expectWhole();
});
