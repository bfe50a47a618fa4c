/** Real nodes of several controllers: each a libvirtd with running guests, and the agent that is shipped. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import Database from 'better-sqlite3';
import { type LabAgent, makeAgent } from '../lab/agent.ts';
import type { Guest } from '../lab/guest.ts';
import type { Rest } from '../lab/rest.ts';
import { waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';
import type { StartedOperation } from './world.ts';

const COUNT = 2;
const GUESTS_EACH = 2;
/** Above those of the simulated agents, within what a cut of nodes drops. */
const FIRST_PORT = 29_000;
const WAIT_MS = 240_000;

export class RealNodes {
  readonly #world: World;
  readonly #agents: LabAgent[];
  /** Each guest, and its disks as they were before the first backup. */
  readonly #guests: Map<Guest, Record<string, string>>;

  private constructor(world: World, agents: LabAgent[], guests: Map<Guest, Record<string, string>>) {
    this.#world = world;
    this.#agents = agents;
    this.#guests = guests;
  }

  /** @param host where the controllers reach their agents */
  static async start(admin: Rest, host: string): Promise<RealNodes> {
    const world = await startWorld({ nodes: COUNT, sharedPool: false });
    const agents: LabAgent[] = [];
    const guests = new Map<Guest, Record<string, string>>();
    const nodes = new RealNodes(world, agents, guests);
    try {
      for (const node of world.nodes) {
        for (let number = 0; number < GUESTS_EACH; number += 1) {
          const guest = await world.defineTiny({ node, idle: true, dataDisks: [{ sizeMiB: 32 }] });
          await guest.start();
          guests.set(guest, await guest.disks());
        }
        const agent = await makeAgent({
          node,
          dir: join(world.dir, `agent-${node.name}`),
          port: FIRST_PORT + agents.length,
          settings: {
            listen: { address: host, port: FIRST_PORT + agents.length },
            advertise: { address: host },
          },
        });
        agents.push(agent);
        await agent.enrol(admin.url, admin);
        await agent.daemon.start();
      }
      for (const { nodeId } of agents)
        await waitFor(`the node ${nodeId}`, () => isKnown(admin, nodeId), WAIT_MS);
    } catch (error) {
      await nodes.end();
      throw error;
    }
    return nodes;
  }

  /** Ids of their VMs. */
  domains(): Promise<string[]> {
    return Promise.all([...this.#guests.keys()].map(guest => guest.uuid()));
  }

  /** What their agents have written down of what they were asked to begin. */
  startedOperations(): StartedOperation[] {
    return this.#agents.flatMap(({ stateDir }) => {
      const journal = new Database(join(stateDir, 'journal.db'), { readonly: true });
      try {
        const rows = journal.prepare<[], { message: string }>('select message from operations').all();
        return rows.map(({ message }) => {
          const { id, kind, entities } = Operation.fromJSON(JSON.parse(message));
          const domain = entities.find(({ entityClass }) => entityClass === EntityClass.DOMAIN);
          return { id, kind, domain: domain?.id ?? '' };
        });
      } finally {
        journal.close();
      }
    });
  }

  /**
   * What is wrong on the nodes when all backups have ended.
   * @param written how many of the backups of their VMs succeeded
   */
  async faults(written: number): Promise<string[]> {
    const faults: string[] = [];
    const files = this.#world.nodes.flatMap(({ pools }) => pools.flatMap(({ path }) => filesIn(path)));
    const archives = files.filter(name => name.endsWith('.tar')).length;
    if (archives !== written) faults.push(`${archives} archives of ${written} backups`);
    for (const [guest, disks] of this.#guests) {
      const now = JSON.stringify(await guest.disks());
      if (now !== JSON.stringify(disks)) faults.push(`${guest.name} was left on other disks: ${now}`);
      const snapshots = await guest.snapshots();
      if (snapshots.length > 0) faults.push(`${guest.name} was left with snapshots: ${snapshots.join(', ')}`);
      if ((await guest.state()) !== 'running') faults.push(`${guest.name} does not run any more`);
    }
    return faults;
  }

  async end(): Promise<void> {
    await this.#world.stop();
  }
}

const filesIn = (path: string): string[] => readdirSync(path, { recursive: true, encoding: 'utf8' });

async function isKnown(admin: Rest, nodeId: string): Promise<boolean> {
  const { body } = await admin.send<{ status?: string; base_datapool?: string | null }>(
    'GET',
    `/api/nodes/${nodeId}/`,
  );
  if (body.status !== 'ACTIVE' || !body.base_datapool) return false;
  const vms = await admin.list<{ id: string }>(`/api/domains/?node=${nodeId}`);
  return vms.length === GUESTS_EACH;
}
