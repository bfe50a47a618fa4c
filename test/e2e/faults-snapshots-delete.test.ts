// kill -9 and cancel at each step of deleting a saved state, and in the middle of its merge: the disks read what they should, and
// nothing is left over.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import type { AgentAlone } from './agent-alone.ts';
import { StatesAlone } from './faults-snapshots-lab.ts';

let states: StatesAlone;
let alone: AgentAlone;
let guest: Guest;

beforeAll(async () => {
  states = await StatesAlone.start();
  ({ alone, guest } = states);
});
afterAll(() => states?.stop());

describe('deleting a state', () => {
  const whole = async () => ({ files: states.files(), disks: await guest.disks() });

  /** A merge that was slow enough to be met need not be so to its end; one that has ended by now is no job any more. */
  const goOnAtFullSpeed = () =>
    alone.world.node.virsh('blockjob', guest.name, 'vda', '--bandwidth', '0').catch(() => {});

  test.each(['check.before', 'check.after', 'merge.before', 'merge.mid', 'merge.after'])(
    'killed at %s',
    async moment => {
      const before = await whole();
      await states.write('early');
      await alone.arm('');
      await states.succeeds(states.create('s1'));
      await states.write('between');
      await guest.sh('dd if=/dev/urandom of=/mnt/vda/big bs=64k count=48; sync');
      await states.succeeds(states.create('s2'));
      await states.write(`late${moment}`);
      const isSlow = moment === 'merge.mid';
      const bandwidth = isSlow ? 262_144n : 0n;
      await alone.arm(`remove_snapshot.${moment}=kill`);
      const id = await states.remove('s1', { bandwidth });
      await alone.died();
      await alone.up();
      if (isSlow) await goOnAtFullSpeed();
      const operation = await alone.ended(id);
      const isGone = isSlow || moment === 'merge.after';
      expect(await guest.snapshots()).toEqual(isGone ? ['s2'] : ['s1', 's2']);
      expect(operation.state === OperationState.SUCCEEDED).toBe(moment === 'merge.after');
      if (!isGone) await states.succeeds(states.remove('s1'));
      await states.succeeds(states.remove('s2'));
      expect(await states.read()).toBe(`late${moment}`);
      expect(await whole()).toEqual(before);
    },
  );

  test('cancelled in the middle: the state is gone, the guest sound, and the next backup goes on', async () => {
    const before = await whole();
    await alone.arm('');
    await states.succeeds(states.create('s1'));
    await guest.sh('dd if=/dev/urandom of=/mnt/vda/big bs=64k count=64; sync');
    await states.succeeds(states.create('s2'));
    await states.write('cancelled');
    const id = await states.remove('s1', { bandwidth: 65_536n });
    const moves = async () => Number((await alone.operations.get({ id })).progress?.bytesDone ?? 0) > 0;
    await waitFor('the merge', moves, 240_000);
    await alone.operations.cancel({ id });
    expect(await alone.ended(id)).toMatchObject({
      state: OperationState.CANCELED,
      warnings: [expect.stringMatching(/deleted already.*goes on with the next backup/)],
    });
    expect(await guest.snapshots()).toEqual(['s2']);
    expect(await alone.world.node.virsh('blockjob', guest.name, 'vda')).not.toContain('Commit');
    expect(states.files().length).toBeGreaterThan(2 * before.files.length);
    await states.succeeds(alone.startBackup(guest));
    expect(states.files()).toHaveLength(2 * before.files.length);
    await states.succeeds(states.remove('s2'));
    expect(await states.read()).toBe('cancelled');
    expect(await whole()).toEqual(before);
  });
});
