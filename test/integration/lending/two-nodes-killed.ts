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
const NOT_YET = ['domain_busy', 'node_unreachable', 'libvirt_unreachable'];

type Begun = { taskId: string } | { refused: string };

async function tried({ rest, disk }: TwoNodesLab, path: string): Promise<Begun> {
  const { status, body } = await rest.send<Json>('POST', `${path}?async=1`, { vdisk: disk });
  return status === 202 ? { taskId: body._task.id } : { refused: body.errors[0].msg_key };
}

/** Starts a task as soon as what was cut off before is cleaned up; undefined when that did it all. */
async function begun(lab: TwoNodesLab, path: string): Promise<string | undefined> {
  let found = await tried(lab, path);
  await waitFor(
    'the end of other work on the VMs',
    async () => {
      if ('taskId' in found || !NOT_YET.includes(found.refused)) return true;
      found = await tried(lab, path);
      return false;
    },
    PATIENCE_MS,
    500,
  );
  if ('taskId' in found) return found.taskId;
  expect(found.refused).toBe('vdisk_not_attached');
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

async function attached(lab: TwoNodesLab): Promise<void> {
  let key: string | undefined = NOT_YET[0];
  while (key !== undefined && NOT_YET.includes(key)) {
    const task = await lab.rest.waitTask((await begun(lab, lab.attachPath))!, PATIENCE_MS);
    key = task.error?.msg_key;
  }
  expect(key).toBe(undefined);
}

/** Undisturbed: one that is killed at the same moment each time may never end. */
async function takenBack(lab: TwoNodesLab): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  while ((await lab.listed()).length > 0) {
    const taskId = await begun(lab, lab.detachPath);
    if (taskId === undefined) continue;
    const task = await lab.rest.waitTask(taskId, PATIENCE_MS);
    if (Date.now() > deadline) throw new Error(`the disk is not taken back: ${JSON.stringify(task)}`);
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
    await attached(lab);
    await this.#dies(point, lab.detachPath);
    await hasBothOrNone(lab);
    await takenBack(lab);
  }

  async #dies(point: string, path: string): Promise<void> {
    writeFileSync(this.#faults, `${point}.after=kill`);
    const taskId = await this.#death(path);
    await this.#start();
    await endOf(this.#lab, taskId);
  }

  /**
   * Begins tasks until one kills the agent: one that was accepted may still find a node at other work, or not heard of yet.
   * @returns the last of them. @throws Error with a task that failed otherwise
   */
  async #death(path: string): Promise<string> {
    const lab = this.#lab;
    let taskId = (await begun(lab, path))!;
    const isDead = () => this.#agent.daemon.pid === undefined;
    await waitFor(
      `the end of the agent: ${path}`,
      async () => {
        if (isDead()) return true;
        const task = await lab.rest.task(taskId);
        if (isDead() || ['IN_PROGRESS', 'LOST'].includes(task.status)) return isDead();
        if (!NOT_YET.includes(task.error?.msg_key ?? ''))
          throw new Error(`the agent lives, and the task has ended: ${JSON.stringify(task)}`);
        const next = await tried(lab, path);
        if ('taskId' in next) taskId = next.taskId;
        return false;
      },
      PATIENCE_MS,
      200,
    );
    return taskId;
  }

  async #start(): Promise<void> {
    writeFileSync(this.#faults, '');
    await this.#agent.daemon.start({ VIRTKEEP_FAULTS: `@${this.#faults}` });
  }
}
