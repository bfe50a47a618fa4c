/**
 * A disk of a VM on one node is being attached to a VM on another one, or detached, when the controller or an agent is killed:
 * afterwards both sides have the loan or none of them has, and nothing is left over.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import type { LabAgent } from '../../lab/agent.ts';
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

/** @returns the task's outcome */
async function endOf(lab: TwoNodesLab, taskId: string): Promise<string> {
  for (const agent of lab.world.agents) await lab.world.connected(agent);
  return (await lab.rest.waitTask(taskId, PATIENCE_MS)).status;
}

/** Whatever became of it: the disk is there and the loan too, or none of both. */
async function settled(lab: TwoNodesLab): Promise<boolean> {
  const [there, states] = [(await lab.listed()).length > 0, await lab.owner.snapshots()];
  return there === states.length > 0;
}

/** Undisturbed: one that is killed at the same moment each time may never end. */
async function takenBack(lab: TwoNodesLab): Promise<void> {
  while ((await lab.listed()).length > 0) {
    const taskId = await begun(lab, lab.detachPath);
    if (taskId !== undefined) await lab.rest.waitTask(taskId, PATIENCE_MS);
  }
  await lab.freed();
  expect(await lab.listed()).toEqual([]);
}

async function hasBothOrNone(lab: TwoNodesLab): Promise<void> {
  await waitFor('an end of both sides', () => settled(lab), PATIENCE_MS, 500);
}

/** Ends a process without a word at some moment of a task, and starts it again. @returns the task's outcome */
async function killedAfter(lab: TwoNodesLab, daemon: Daemon, path: string, delayMs: number): Promise<string> {
  const taskId = await begun(lab, path);
  if (taskId === undefined) return 'NOTHING TO DO';
  await new Promise(resolve => setTimeout(resolve, delayMs));
  await daemon.kill();
  await daemon.start();
  return endOf(lab, taskId);
}

export async function isNeverHalf(lab: TwoNodesLab, daemon: Daemon): Promise<void> {
  const { disk, attachPath, detachPath } = lab;
  for (const delayMs of [0, 150, 400]) {
    const attached = await killedAfter(lab, daemon, attachPath, delayMs);
    await hasBothOrNone(lab);
    if (attached === 'SUCCESS') expect(await lab.listed()).toEqual([disk]);
    if ((await lab.listed()).length > 0) await killedAfter(lab, daemon, detachPath, delayMs);
    await takenBack(lab);
  }
  await lab.sound();
}

/** An agent that dies when it is told to. */
export class MortalAgent {
  readonly #lab: TwoNodesLab;
  readonly #agent: LabAgent;
  readonly #faults: string;

  private constructor(lab: TwoNodesLab, agent: LabAgent) {
    this.#lab = lab;
    this.#agent = agent;
    this.#faults = join(agent.dir, 'faults');
  }

  static async of(lab: TwoNodesLab, agent: LabAgent): Promise<MortalAgent> {
    const mortal = new MortalAgent(lab, agent);
    await agent.daemon.kill();
    await mortal.#start();
    await lab.world.connected(agent);
    return mortal;
  }

  /** Dies at the end of a step of an attaching. */
  async attachesUntil(point: string): Promise<void> {
    await this.#dies(point, this.#lab.attachPath);
    await hasBothOrNone(this.#lab);
    await takenBack(this.#lab);
  }

  /** Dies at the end of a step of a detaching. */
  async detachesUntil(point: string): Promise<void> {
    const lab = this.#lab;
    const attaching = await begun(lab, lab.attachPath);
    expect(await endOf(lab, attaching!)).toBe('SUCCESS');
    await this.#dies(point, lab.detachPath);
    await hasBothOrNone(lab);
    await takenBack(lab);
  }

  async #dies(point: string, path: string): Promise<void> {
    writeFileSync(this.#faults, `${point}.after=kill`);
    const taskId = await begun(this.#lab, path);
    await this.#agent.daemon.ended;
    await this.#start();
    await endOf(this.#lab, taskId!);
  }

  async #start(): Promise<void> {
    writeFileSync(this.#faults, '');
    await this.#agent.daemon.start({ VIRTKEEP_FAULTS: `@${this.#faults}` });
  }
}
