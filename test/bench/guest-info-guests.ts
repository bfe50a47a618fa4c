/** Many guests of one node that run, do nothing, and have agents that are scripts. */
import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { mapLimited } from '@virtkeep/shared/limit';
import { defineIdleGuest, haltingRom } from '../lab/idle-guest.ts';
import type { World } from '../lab/world.ts';

/** What the thread of the agents is given. */
export interface ScriptedGuests {
  sockets: string[];
  /** One of so many agents hangs, the first one too. */
  hungEvery: number;
}

/** QEMU processes that start at a time. */
const WIDTH = 2;

export class IdleGuests {
  readonly #world: World;
  readonly #agents: Worker;
  readonly #sockets: string[];

  private constructor(world: World, agents: Worker, sockets: string[]) {
    this.#world = world;
    this.#agents = agents;
    this.#sockets = sockets;
  }

  /** Starts the agents; the guests come with `start`. */
  static async make(world: World, count: number, hungEvery: number): Promise<IdleGuests> {
    const sockets = Array.from({ length: count }, (_, index) => join(world.dir, `agent-${index}.sock`));
    const workerData: ScriptedGuests = { sockets, hungEvery };
    const agents = new Worker(new URL('guest-info-agents.worker.ts', import.meta.url), { workerData });
    await once(agents, 'message');
    return new IdleGuests(world, agents, sockets);
  }

  /** Starts all guests. */
  async start(): Promise<void> {
    const rom = haltingRom(this.#world.dir);
    await mapLimited([...this.#sockets.entries()], WIDTH, async ([index, agent]) => {
      const guest = await defineIdleGuest(this.#world.node, { name: `idle${index}`, rom, agent });
      await guest.start();
    });
  }

  /** Commands answered so far. */
  async answers(): Promise<number> {
    this.#agents.postMessage('answers');
    const [answers] = (await once(this.#agents, 'message')) as [number];
    return answers;
  }

  /** Ends the agents; the guests end with their node. */
  async stop(): Promise<void> {
    await this.#agents.terminate();
  }
}
