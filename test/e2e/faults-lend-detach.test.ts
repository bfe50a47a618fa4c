// kill -9 of the agent at each step of detaching a disk of another VM, and of lending one to a VM of another node and of taking it
// back: afterwards it is lent or it is not, all say the same, the state is there exactly when something is lent, and nothing is left
// over.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { DETACH_DISK_STEPS } from '../../agent/src/workflows/lend/detach.ts';
import { LEND_DISK_STEPS, RETURN_DISK_STEPS } from '../../agent/src/workflows/lend/lend.ts';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { type AgentAlone, momentsOf } from './agent-alone.ts';
import { LendAlone, STATE, type Start } from './faults-lend-lab.ts';

let lending: LendAlone;
let alone: AgentAlone;
let owner: Guest;
let borrower: Guest;
let [ownerId, diskId] = ['', ''];

beforeAll(async () => {
  lending = await LendAlone.start();
  ({ alone, owner, borrower, ownerId, diskId } = lending);
});
afterAll(() => lending?.stop());

const stranger = newId();
const lend: Start = operationId =>
  alone.disks.lend({ operationId, diskId, borrowerId: stranger, borrowerNodeId: newId() });
const giveBack: Start = operationId =>
  alone.disks.return({ operationId, ownerId, diskId, borrowerId: stranger });

describe('detaching', () => {
  test.each(momentsOf(DETACH_DISK_STEPS))('killed at %s', async moment => {
    await alone.arm('');
    await lending.succeeds(lending.attach);
    const operation = await lending.killedAt(`detach_disk.${moment}`, lending.detach);
    const isDone = operation.state === OperationState.SUCCEEDED;
    if (!isDone) expect(operation).toMatchObject({ error: { msgKey: 'interrupted' } });
    if (await lending.lentNow()) {
      expect(isDone).toBe(false);
      await lending.succeeds(lending.detach);
    }
    expect(await lending.lentNow()).toBe(false);
    await lending.expectWhole();
  });
});

describe('lending to a VM of another node', () => {
  const loans = async () => (await alone.domains.get({ id: ownerId })).loans.length;

  test.each(momentsOf(LEND_DISK_STEPS))('killed at %s', async moment => {
    const operation = await lending.killedAt(`lend_disk.${moment}`, lend);
    const isDone = operation.state === OperationState.SUCCEEDED;
    expect(await loans()).toBe(isDone ? 1 : 0);
    expect(await owner.snapshots()).toEqual(isDone ? [STATE] : []);
    if (isDone) await lending.succeeds(giveBack);
    expect(await lending.lentNow()).toBe(false);
  });

  test.each(momentsOf(RETURN_DISK_STEPS))('given back, killed at %s', async moment => {
    await alone.arm('');
    await lending.succeeds(lend);
    await lending.killedAt(`return_disk.${moment}`, giveBack);
    await lending.succeeds(giveBack);
    expect(await loans()).toBe(0);
    expect(await lending.lentNow()).toBe(false);
    await lending.expectWhole();
  });
});

test('a detaching that the guest did not follow is gone on with by the next agent', async () => {
  await alone.arm('');
  await lending.succeeds(lending.attach);
  await alone.world.node.virsh('suspend', borrower.name);
  expect(await lending.ended(lending.detach)).toMatchObject({ error: { msgKey: 'device_did_not_detach' } });
  await alone.agent.daemon.kill();
  await alone.world.node.virsh('resume', borrower.name);
  await alone.up();
  await waitFor('the end of the loan', async () => !(await borrower.xml()).includes('ua-virtkeep-'), 120_000);
  await waitFor('the end of the state', async () => (await owner.snapshots()).length === 0, 120_000);
  expect(await lending.lentNow()).toBe(false);
  await lending.expectWhole();
});
