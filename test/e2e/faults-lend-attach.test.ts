// kill -9 of the agent and a cancel at each step of attaching a disk of another VM: afterwards it is attached or it is not, both
// domains say the same, the state is there exactly when something is lent, and nothing is left over.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { ATTACH_DISK_STEPS } from '../../agent/src/workflows/lend/attach.ts';
import type { Guest } from '../lab/guest.ts';
import { type AgentAlone, momentsOf } from './agent-alone.ts';
import { LendAlone } from './faults-lend-lab.ts';

let lending: LendAlone;
let alone: AgentAlone;
let owner: Guest;
let [ownerId, domainId] = ['', ''];

beforeAll(async () => {
  lending = await LendAlone.start();
  ({ alone, owner, ownerId, domainId } = lending);
});
afterAll(() => lending?.stop());

describe('attaching', () => {
  test.each(momentsOf(ATTACH_DISK_STEPS, 'freeze.after'))('killed at %s', async moment => {
    const operation = await lending.killedAt(`attach_disk.${moment}`, lending.attach);
    if (operation.state === OperationState.SUCCEEDED) {
      expect(await lending.lentNow()).toBe(true);
      await lending.succeeds(lending.detach);
    } else expect(operation).toMatchObject({ error: { msgKey: 'interrupted' } });
    expect(await lending.lentNow()).toBe(false);
    await lending.expectWhole();
  });

  test('a further disk: the instant of the others stays', async () => {
    const second = (await alone.domains.get({ id: ownerId })).disks[1]!.id;
    await lending.succeeds(lending.attach);
    const { states } = { states: await owner.snapshots() };
    await lending.killedAt('attach_disk.note.after', operationId =>
      alone.disks.attach({ operationId, domainId, diskId: second }),
    );
    expect(await owner.snapshots()).toEqual(states);
    expect(await lending.lentNow()).toBe(true);
    await lending.succeeds(lending.detach);
    expect(await lending.lentNow()).toBe(false);
  });

  test.each(['check.after', 'freeze.after', 'note.after'])('cancelled at %s', async moment => {
    const file = alone.pauseFile(moment);
    await alone.arm(`attach_disk.${moment}=pause:${file}`);
    const id = newId();
    await lending.attach(id);
    await alone.whilePaused(file, async () => {
      await alone.operations.cancel({ id });
    });
    expect((await alone.ended(id)).state).toBe(OperationState.CANCELED);
    expect(await lending.lentNow()).toBe(false);
    await alone.arm('');
  });
});
