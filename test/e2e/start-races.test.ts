// The agent takes up what a crash cut off while the rest of the node is still starting: libvirtd comes a little later, its
// guests start by themselves, a pool is mounted long after. Nothing is undone before what it needs is there.
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { Guest } from '../lab/guest.ts';
import { signalProcess } from '../lab/processes.ts';
import { run, succeeds, waitFor } from '../lab/run.ts';
import { AgentAlone, INTERRUPTED, type Picture } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let before: Picture;

beforeAll(async () => {
  alone = await AgentAlone.start();
  guest = await alone.world.defineTiny({ cmdline: 'writer=/mnt/vda/w' });
  await alone.world.node.virsh('autostart', guest.name);
  await (await guest.start()).waitForAgent();
  before = await alone.picture(guest);
});
afterAll(() => alone?.stop());

/** A backup whose agent is killed while it copies; libvirtd is killed too. */
async function crashed(): Promise<string> {
  await alone.arm('backup.copy.mid=kill');
  const id = await alone.startBackup(guest);
  await alone.died();
  await alone.world.node.killLibvirtd();
  return id;
}

async function expectUndone(id: string): Promise<void> {
  expect(await alone.ended(id)).toMatchObject({ ...INTERRUPTED, warnings: [] });
  expect(await alone.picture(guest)).toEqual(before);
}

describe('the agent is there before libvirtd', () => {
  test.each([0, 200, 500])('by %i ms', async lateMs => {
    const pid = guest.qemuPid();
    const id = await crashed();
    const seen = alone.agent.daemon.log().length;
    await alone.up('', async () => {
      const serves = () => alone.agent.daemon.log().slice(seen).includes('agent is serving');
      if (lateMs > 0) await waitFor('the agent', serves, 120_000, 20);
      await delay(lateMs);
      await alone.world.node.startLibvirtd();
    });
    await expectUndone(id);
    expect(guest.qemuPid()).toBe(pid);
  });
});

test('agent, libvirtd and a guest that starts by itself come together after kill -9 of all', async () => {
  const id = await crashed();
  const pid = guest.qemuPid()!;
  signalProcess(pid, 'SIGKILL');
  await waitFor('the end of the guest', () => guest.qemuPid() === undefined, 120_000, 20);
  // as after a start of the machine: libvirtd knows of no guest that runs, and starts those that start by themselves
  rmSync(join(alone.world.node.dir, 'run', 'qemu'), { recursive: true });
  await alone.up('', () => alone.world.node.startLibvirtd());
  await expectUndone(id);
  expect(await guest.state()).toBe('running');
  await guest.waitForAgent();
  await guest.sh('test -s /mnt/vda/w');
});

describe('the file system of a pool', () => {
  const node = () => alone.world.node;
  const image = () => join(alone.world.dir, 'pool.img');
  const pool = () => node().pool(1).path;
  const mount = () => node().runInside(['mount', '-o', 'loop', image(), pool()]);
  /** A process that has just died may hold it for a moment. */
  const unmount = () =>
    waitFor('the end of the mount', () => succeeds(node().insideArgv(['umount', pool()])), 60_000, 50);
  const left = async () => (await node().runInside(['find', pool(), '-name', '.*.partial*'])).stdout.trim();
  const operation = (id: string) => alone.operations.get({ id });

  beforeAll(async () => {
    await run(['truncate', '-s', '256M', image()]);
    await run(['mkfs.ext4', '-q', image()]);
    rmSync(join(pool(), 'backups'), { recursive: true });
    await mount();
    await alone.restart();
  });

  test('is mounted after the agent has started: what lies in it is undone then, and nothing is written before', async () => {
    await alone.arm('backup.copy.mid=kill');
    const id = await alone.startBackup(guest);
    await alone.died();
    expect(await left()).not.toBe('');
    await unmount();

    await alone.up();
    const waits = async () => (await operation(id)).progress?.message.includes('is not there') ?? false;
    await waitFor('the operation to wait for the pool', waits, 120_000, 50);
    expect((await operation(id)).state).toBe(OperationState.RUNNING);
    const second = await alone.startBackup(guest).catch((error: Error) => error.message);
    expect(second).toMatch(/pool bulk is not mounted|domain .* is used by/);
    expect(existsSync(join(pool(), 'backups'))).toBe(false);

    await mount();
    expect(await alone.ended(id)).toMatchObject(INTERRUPTED);
    expect(await left()).toBe('');
    expect(await alone.picture(guest)).toEqual(before);
  });
});
