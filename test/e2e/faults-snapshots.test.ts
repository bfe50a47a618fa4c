// kill -9 and cancel at each step of making, deleting and reverting to a saved state: the disks read what they should, and
// nothing is left over.
import { copyFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { CREATE_SNAPSHOT_STEPS } from '../../agent/src/workflows/snapshot/create.ts';
import { REVERT_SNAPSHOT_STEPS } from '../../agent/src/workflows/snapshot/revert.ts';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { AgentAlone, lostAnswer, momentsOf } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let domainId: string;

beforeAll(async () => {
  alone = await AgentAlone.start();
  guest = await alone.world.defineTiny({ dataDisks: [{ sizeMiB: 64 }, { sizeMiB: 32, format: 'raw' }] });
  domainId = await guest.uuid();
  await (await guest.start()).waitForAgent();
});
afterAll(() => alone?.stop());

async function create(name: string, request: object = {}): Promise<string> {
  const operationId = newId();
  await alone.snapshots.create({ operationId, domainId, name, ...request }).catch(lostAnswer);
  return operationId;
}

async function idOf(name: string): Promise<string> {
  const { snapshots } = await alone.snapshots.list({ domainId });
  return snapshots.find(snapshot => snapshot.name === name)!.id;
}

async function remove(name: string, request: object = {}): Promise<string> {
  const [operationId, snapshotId] = [newId(), await idOf(name)];
  await alone.snapshots.remove({ operationId, domainId, snapshotId, ...request }).catch(lostAnswer);
  return operationId;
}

async function revert(name: string): Promise<string> {
  const [operationId, snapshotId] = [newId(), await idOf(name)];
  await alone.snapshots.revert({ operationId, domainId, snapshotId }).catch(lostAnswer);
  return operationId;
}

async function succeeds(id: Promise<string>): Promise<void> {
  expect(await alone.ended(await id)).toMatchObject({ state: OperationState.SUCCEEDED, error: undefined });
}

const files = () => readdirSync(alone.world.node.pool(0).path).sort();
const write = (text: string) => guest.sh(`echo ${text} > /mnt/vda/mark; sync`);
const read = () => guest.sh('cat /mnt/vda/mark').then(text => text.trim());

interface Before {
  files: string[];
  disks: Record<string, string>;
  states: string[];
}
const look = async (): Promise<Before> => ({
  files: files(),
  disks: await guest.disks(),
  states: await guest.snapshots(),
});

describe('making a state', () => {
  const moments = momentsOf(CREATE_SNAPSHOT_STEPS);

  test.each(moments)('killed at %s: it is there as a whole or not at all', async moment => {
    const before = await look();
    const pid = guest.qemuPid();
    const operation = await alone.killedAt(`create_snapshot.${moment}`, () => create('s1'));
    if (moment === 'create.after') {
      expect(operation.state).toBe(OperationState.SUCCEEDED);
      expect(await guest.snapshots()).toEqual(['s1']);
      await succeeds(remove('s1'));
    } else expect(operation).toMatchObject({ error: { msgKey: 'interrupted' } });
    expect(await look()).toEqual(before);
    expect(guest.qemuPid()).toBe(pid);
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
  });

  test.each(['check.before', 'check.after', 'create.before'])(
    'cancelled at %s leaves nothing',
    async moment => {
      const before = await look();
      const operation = await alone.canceledAt(`create_snapshot.${moment}`, () => create('s1'));
      expect(operation.state).toBe(OperationState.CANCELED);
      expect(await look()).toEqual(before);
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

  /** Nothing of it is left, the guest runs on, and the next one works. */
  async function expectNothingOf(before: Before, pid: number | undefined): Promise<void> {
    expect(await look()).toEqual(before);
    expect(guest.qemuPid()).toBe(pid);
    expect(await guest.state()).toBe('running');
    expect(await guest.agent('guest-ping')).toEqual({});
    await succeeds(create('m2', { memory: true }));
    await succeeds(remove('m2'));
    expect(await look()).toEqual(before);
  }

  test('killed in the middle of the memory: libvirt does not go on with it', async () => {
    const [before, pid] = [await look(), guest.qemuPid()];
    writeFileSync(hold, '');
    await alone.arm('create_snapshot.create.mid=kill');
    const id = await create('m1', { memory: true });
    await alone.died();
    await alone.up();
    await waitFor('the abort', () => alone.agent.daemon.log().includes('abort_save'), 120_000, 20);
    rmSync(hold);
    expect(await alone.ended(id)).toMatchObject({ error: { msgKey: 'interrupted' } });
    await expectNothingOf(before, pid);
  });

  test('cancelled in the middle of the memory', async () => {
    const [before, pid] = [await look(), guest.qemuPid()];
    writeFileSync(hold, '');
    const id = await create('m1', { memory: true });
    const moves = async () => Number((await alone.operations.get({ id })).progress?.bytesDone ?? 0) > 0;
    await waitFor('the memory', moves, 120_000, 20);
    await alone.operations.cancel({ id });
    rmSync(hold);
    expect((await alone.ended(id)).state).toBe(OperationState.CANCELED);
    await expectNothingOf(before, pid);
  });
});

describe('deleting a state', () => {
  const whole = async () => ({ files: files(), disks: await guest.disks() });

  test.each(['check.before', 'check.after', 'merge.before', 'merge.mid', 'merge.after'])(
    'killed at %s',
    async moment => {
      const before = await whole();
      await write('early');
      await alone.arm('');
      await succeeds(create('s1'));
      await write('between');
      await guest.sh('dd if=/dev/urandom of=/mnt/vda/big bs=64k count=48; sync');
      await succeeds(create('s2'));
      await write(`late${moment}`);
      const bandwidth = moment === 'merge.mid' ? 262_144n : 0n;
      const operation = await alone.killedAt(`remove_snapshot.${moment}`, () => remove('s1', { bandwidth }));
      const isGone = moment.startsWith('merge.mid') || moment === 'merge.after';
      expect(await guest.snapshots()).toEqual(isGone ? ['s2'] : ['s1', 's2']);
      expect(operation.state === OperationState.SUCCEEDED).toBe(moment === 'merge.after');
      if (!isGone) await succeeds(remove('s1'));
      await succeeds(remove('s2'));
      expect(await read()).toBe(`late${moment}`);
      expect(await whole()).toEqual(before);
    },
  );

  test('cancelled in the middle: the state is gone, the guest sound, and the next backup goes on', async () => {
    const before = await whole();
    await alone.arm('');
    await succeeds(create('s1'));
    await guest.sh('dd if=/dev/urandom of=/mnt/vda/big bs=64k count=64; sync');
    await succeeds(create('s2'));
    await write('cancelled');
    const id = await remove('s1', { bandwidth: 65_536n });
    const moves = async () => Number((await alone.operations.get({ id })).progress?.bytesDone ?? 0) > 0;
    await waitFor('the merge', moves, 120_000, 20);
    await alone.operations.cancel({ id });
    expect(await alone.ended(id)).toMatchObject({
      state: OperationState.CANCELED,
      warnings: [expect.stringMatching(/deleted already.*goes on with the next backup/)],
    });
    expect(await guest.snapshots()).toEqual(['s2']);
    expect(await alone.world.node.virsh('blockjob', guest.name, 'vda')).not.toContain('Commit');
    expect(files().length).toBeGreaterThan(2 * before.files.length);
    await succeeds(alone.startBackup(guest));
    expect(files()).toHaveLength(2 * before.files.length);
    await succeeds(remove('s2'));
    expect(await read()).toBe('cancelled');
    expect(await whole()).toEqual(before);
  });
});

describe('reverting', () => {
  const moments = momentsOf(REVERT_SNAPSHOT_STEPS);
  const isDone = (moment: string) => moment === 'start.after' || moment.startsWith('clean');

  async function prepared(moment: string): Promise<Before> {
    if ((await guest.state()) !== 'running') await guest.start();
    await guest.waitForAgent();
    await alone.arm('');
    await write('then');
    await succeeds(create('s1'));
    await write(`now${moment}`);
    return look();
  }

  async function cleaned(): Promise<void> {
    await succeeds(remove('s1'));
    expect(files()).toHaveLength(2);
  }

  test.each(moments)('killed at %s: the world of before, or of the state', async moment => {
    const before = await prepared(moment);
    const operation = await alone.killedAt(`revert_snapshot.${moment}`, () => revert('s1'));
    expect(operation.state === OperationState.SUCCEEDED).toBe(isDone(moment));
    expect(await guest.state()).toBe('running');
    await guest.waitForAgent();
    expect(await read()).toBe(isDone(moment) ? 'then' : `now${moment}`);
    expect(await guest.snapshots()).toEqual(['s1']);
    expect(files()).toHaveLength(before.files.length);
    if (!isDone(moment)) expect(await look()).toEqual(before);
    await cleaned();
  });

  test.each(moments.filter(moment => !isDone(moment)))('cancelled at %s', async moment => {
    const before = await prepared(moment);
    const operation = await alone.canceledAt(`revert_snapshot.${moment}`, () => revert('s1'));
    expect(operation.state).toBe(OperationState.CANCELED);
    await guest.waitForAgent();
    expect(await read()).toBe(`now${moment}`);
    expect(await look()).toEqual(before);
    await cleaned();
  });
});
