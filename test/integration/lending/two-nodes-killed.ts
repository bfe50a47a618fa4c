/**
 * A disk of a VM on one node is being attached to a VM on another one, or detached, when the controller or an agent is killed:
 * afterwards both sides have the loan or none of them has, and nothing is left over.
 */
import { expect } from '@jest/globals';
import type { Daemon } from '../../lab/daemon.ts';
import { waitFor } from '../../lab/run.ts';
import { type Json, PATIENCE_MS, type TwoNodesLab } from './two-nodes-lab.ts';

/** A node that has just been started may not be heard of yet, and is at work on what was cut off before. */
const NOT_YET = ['domain_busy', 'node_unreachable'];

/** Starts a task as soon as what was cut off before is cleaned up; undefined when that did it all. */
async function begun({ rest, disk }: TwoNodesLab, path: string): Promise<string | undefined> {
  let answer = await rest.send<Json>('POST', `${path}?async=1`, { vdisk: disk });
  const keyOf = () => answer.body.errors?.[0]?.msg_key;
  await waitFor(
    'the end of other work on the VMs',
    async () => {
      if (!NOT_YET.includes(keyOf())) return true;
      answer = await rest.send<Json>('POST', `${path}?async=1`, { vdisk: disk });
      return false;
    },
    PATIENCE_MS,
    500,
  );
  if (answer.status === 202) return answer.body._task.id;
  expect(keyOf()).toBe('vdisk_not_attached');
  return undefined;
}

interface Kill {
  daemon: Daemon;
  path: string;
  delayMs: number;
}

/** Ends a process without a word at some moment of a task, and starts it again. @returns the task's outcome */
async function killed(lab: TwoNodesLab, { daemon, path, delayMs }: Kill): Promise<string> {
  const { world, rest } = lab;
  const taskId = await begun(lab, path);
  if (taskId === undefined) return 'NOTHING TO DO';
  await new Promise(resolve => setTimeout(resolve, delayMs));
  await daemon.kill();
  await daemon.start();
  for (const agent of world.agents) await world.connected(agent);
  return (await rest.waitTask(taskId, PATIENCE_MS)).status;
}

/** Whatever became of it: the disk is there and the loan too, or none of both. */
async function settled(lab: TwoNodesLab): Promise<boolean> {
  const [there, states] = [(await lab.listed()).length > 0, await lab.owner.snapshots()];
  return there === states.length > 0;
}

export async function isNeverHalf(lab: TwoNodesLab, daemon: Daemon): Promise<void> {
  const { rest, disk, attachPath, detachPath } = lab;
  for (const delayMs of [0, 150, 400]) {
    const attached = await killed(lab, { daemon, path: attachPath, delayMs });
    await waitFor('an end of both sides', () => settled(lab), PATIENCE_MS, 500);
    if (attached === 'SUCCESS') expect(await lab.listed()).toEqual([disk]);
    if ((await lab.listed()).length > 0) await killed(lab, { daemon, path: detachPath, delayMs });
    // undisturbed: one that is killed at the same moment each time may never end
    while ((await lab.listed()).length > 0) {
      const taskId = await begun(lab, detachPath);
      if (taskId !== undefined) await rest.waitTask(taskId, PATIENCE_MS);
    }
    await lab.freed();
    expect(await lab.listed()).toEqual([]);
  }
  await lab.sound();
}
