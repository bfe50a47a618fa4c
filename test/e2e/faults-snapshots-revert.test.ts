// kill -9 and cancel at each step of reverting to a saved state: the guest runs in the world of before, or in that of the state.
// What its disks hold is read from outside; after each kind of end there is also a guest whose system comes up and reads it.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { REVERT_SNAPSHOT_STEPS } from '../../agent/src/workflows/snapshot/revert.ts';
import { type AgentAlone, momentsOf } from './agent-alone.ts';
import { type Before, StatesAlone } from './faults-snapshots-lab.ts';

let alone: AgentAlone;
let booted: StatesAlone;
let idle: StatesAlone;

beforeAll(async () => {
  booted = await StatesAlone.start();
  ({ alone } = booted);
  idle = await booted.idleOne();
});
afterAll(() => booted?.stop());

describe('reverting', () => {
  const moments = momentsOf(REVERT_SNAPSHOT_STEPS, 'define.after');
  const isDone = (moment: string) => moment === 'start.after' || moment.startsWith('clean');

  /** Where the guest is started with what was to be left, and with what was reverted to. */
  const isBooted = (moment: string) => moment === 'stop.after' || moment === 'clean.after';

  async function prepared(states: StatesAlone, moment: string): Promise<Before> {
    await alone.arm('');
    await states.write('then');
    await states.succeeds(states.create('s1'));
    await states.write(`now${moment}`);
    return states.look();
  }

  async function cleaned(states: StatesAlone): Promise<void> {
    await states.succeeds(states.remove('s1'));
    expect(states.files()).toHaveLength(4);
  }

  test.each(moments)('killed at %s: the world of before, or of the state', async moment => {
    const states = isBooted(moment) ? booted : idle;
    const { guest } = states;
    const before = await prepared(states, moment);
    const operation = await alone.killedAt(`revert_snapshot.${moment}`, () => states.revert('s1'));
    expect(operation.state === OperationState.SUCCEEDED).toBe(isDone(moment));
    expect(await guest.state()).toBe('running');
    await states.ready();
    expect(await states.read()).toBe(isDone(moment) ? 'then' : `now${moment}`);
    expect(await guest.snapshots()).toEqual(['s1']);
    expect(states.files()).toHaveLength(before.files.length);
    if (!isDone(moment)) expect(await states.look()).toEqual(before);
    await cleaned(states);
  });

  test.each(moments.filter(moment => !isDone(moment)))('cancelled at %s', async moment => {
    const before = await prepared(idle, moment);
    const operation = await alone.canceledAt(`revert_snapshot.${moment}`, () => idle.revert('s1'));
    expect(operation.state).toBe(OperationState.CANCELED);
    expect(await idle.guest.state()).toBe('running');
    expect(await idle.read()).toBe(`now${moment}`);
    expect(await idle.look()).toEqual(before);
    await cleaned(idle);
  });
});
