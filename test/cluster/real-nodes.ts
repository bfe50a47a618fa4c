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
  #world: World | undefined;
  readonly #agents: LabAgent[] = [];
  /** Each guest, and its disks as they were before the first backup. */
  readonly #guests = new Map<Guest, Record<string, string>>();

  /** @param host where the controllers reach their agents */
  async start(admin: Rest, host: string): Promise<void> {
    const world = await startWorld({ nodes: COUNT, sharedPool: false });
    this.#world = world;
    for (const node of world.nodes) {
      for (let number = 0; number < GUESTS_EACH; number += 1) {
        const guest = await world.defineTiny({ node, idle: true, dataDisks: [{ sizeMiB: 32 }] });
        await guest.start();
        this.#guests.set(guest, await guest.disks());
      }
      const port = FIRST_PORT + this.#agents.length;
      const dir = join(world.dir, `agent-${node.name}`);
      const agent = await makeAgent({ node, dir, host, port });
      this.#agents.push(agent);
      await agent.enrol(admin.url, admin);
      await agent.daemon.start();
    }
    for (const { nodeId } of this.#agents)
      await waitFor(`the node ${nodeId}`, () => isKnown(admin, nodeId), WAIT_MS);
  }

  /** Ids of their VMs. */
  domains(): Promise<string[]> {
    return Promise.all([...this.#guests.keys()].map(guest => guest.uuid()));
  }

  /** Ends their agents, and reads what they have written down of what they were asked to begin: nobody else can while they run. */
  async endAgents(): Promise<StartedOperation[]> {
    for (const { daemon } of this.#agents) await daemon.stop();
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
    const files = this.#world!.nodes.flatMap(({ pools }) => pools.flatMap(({ path }) => filesIn(path)));
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

  /** When nothing else of this process is left. @throws Error when anything is */
  async end(): Promise<void> {
    await this.#world?.stop();
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
