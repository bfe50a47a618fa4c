// kill -9 and cancel at each step of making a saved state, and in the middle of its memory: it is there as a whole or not at all,
// and the guest runs on.
import { copyFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { CREATE_SNAPSHOT_STEPS } from '../../agent/src/workflows/snapshot/create.ts';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { type AgentAlone, momentsOf } from './agent-alone.ts';
import { type Before, StatesAlone } from './faults-snapshots-lab.ts';

let states: StatesAlone;
let alone: AgentAlone;
let guest: Guest;

beforeAll(async () => {
  states = await StatesAlone.start();
  ({ alone, guest } = states);
});
afterAll(() => states?.stop());

describe('making a state', () => {
  const moments = momentsOf(CREATE_SNAPSHOT_STEPS);

  test.each(moments)('killed at %s: it is there as a whole or not at all', async moment => {
    const before = await states.look();
    const pid = guest.qemuPid();
    const operation = await alone.killedAt(`create_snapshot.${moment}`, () => states.create('s1'));
    if (moment === 'create.after') {
      expect(operation.state).toBe(OperationState.SUCCEEDED);
      expect(await guest.snapshots()).toEqual(['s1']);
      await states.succeeds(states.remove('s1'));
    } else expect(operation).toMatchObject({ error: { msgKey: 'interrupted' } });
    expect(await states.look()).toEqual(before);
    expect(guest.qemuPid()).toBe(pid);
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
  });

  test.each(['check.before', 'check.after', 'create.before'])(
    'cancelled at %s leaves nothing',
    async moment => {
      const before = await states.look();
      const operation = await alone.canceledAt(`create_snapshot.${moment}`, () => states.create('s1'));
      expect(operation.state).toBe(OperationState.CANCELED);
      expect(await states.look()).toEqual(before);
    },
  );
});

describe('making a state with memory', () => {
  let hold: string;

  beforeAll(async () => {
    // libvirt's writer of memory files, made to wait before its first byte as long as a file exists
    const [writer, own] = ['/usr/lib/libvirt/libvirt_iohelper', join(alone.world.dir, 'iohelper')];
    hold = join(alone.world.dir, 'hold-memory');
    copyFileSync(writer, own);
    const script = `#!/bin/sh\nwhile [ -e ${hold} ]; do sleep 0.05; done\nexec ${own} "$@"\n`;
    writeFileSync(`${own}.sh`, script, { mode: 0o755 });
    await alone.world.node.runInside(['mount', '--bind', `${own}.sh`, writer]);
  });

  afterAll(() => rmSync(hold, { force: true })); // a save that is held would hold up the end, too

  /** Lets the writer go on when QEMU has been told to give up: otherwise it might be done before. */
  async function releaseWhenAborted(): Promise<void> {
    const query = ['qemu-monitor-command', guest.name, '{"execute":"query-migrate"}'];
    const aborted = async () => /"status":"cancel/.test(await alone.world.node.virsh(...query));
    await waitFor('the abort', aborted, 240_000);
    rmSync(hold);
  }

  /** Nothing of it is left, the guest runs on, and the next one works. */
  async function expectNothingOf(before: Before, pid: number | undefined): Promise<void> {
    expect(await states.look()).toEqual(before);
    expect(guest.qemuPid()).toBe(pid);
    expect(await guest.state()).toBe('running');
    expect(await guest.agent('guest-ping')).toEqual({});
    await states.succeeds(states.create('m2', { memory: true }));
    await states.succeeds(states.remove('m2'));
    expect(await states.look()).toEqual(before);
  }

  test('killed in the middle of the memory: libvirt does not go on with it', async () => {
    const [before, pid] = [await states.look(), guest.qemuPid()];
    writeFileSync(hold, '');
    await alone.arm('create_snapshot.create.mid=kill');
    const id = await states.create('m1', { memory: true });
    await alone.died();
    await alone.up();
    await releaseWhenAborted();
    expect(alone.agent.daemon.log()).toContain('abort_save');
    expect(await alone.ended(id)).toMatchObject({ error: { msgKey: 'interrupted' } });
    await expectNothingOf(before, pid);
  });

  test('cancelled in the middle of the memory', async () => {
    const [before, pid] = [await states.look(), guest.qemuPid()];
    writeFileSync(hold, '');
    const id = await states.create('m1', { memory: true });
    const moves = async () => Number((await alone.operations.get({ id })).progress?.bytesDone ?? 0) > 0;
    await waitFor('the memory', moves, 240_000);
    await alone.operations.cancel({ id });
    await releaseWhenAborted();
    expect((await alone.ended(id)).state).toBe(OperationState.CANCELED);
    await expectNothingOf(before, pid);
  });
});
