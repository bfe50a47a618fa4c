/** A controller in this process with simulated agents, and what is waited for of them: events, never time. */
import { makeTestDatabase, type TestDatabase } from '../../../controller/src/store/test-database.ts';
import { freePort } from '../../lab/free-port.ts';
import { FILES } from '../../scale/seeded.ts';
import { type InstallationSize, SimulatedAgent } from '../../scale/simulated-agent.ts';
import { makeRestApp, type RestApp, type RestAppOptions } from '../rest/app.ts';
import { nodeRequest, redeem } from '../rest/nodes-world.ts';

export class World {
  readonly size: InstallationSize;
  readonly agents: SimulatedAgent[] = [];
  readonly rest: RestApp;
  readonly database: TestDatabase;

  private constructor(size: InstallationSize, rest: RestApp, database: TestDatabase) {
    this.size = size;
    this.rest = rest;
    this.database = database;
  }

  /** All nodes are connected, and all that they have is known. */
  static async make(
    size: InstallationSize,
    config: object = {},
    options: Pick<RestAppOptions, 'isSecure'> = {},
  ): Promise<World> {
    const database = await makeTestDatabase();
    const rest = await makeRestApp(config, async () => {}, { ...options, database: database.target });
    const world = new World(size, rest, database);
    for (let number = 0; number < size.nodes; number += 1)
      await world.#enrol(new SimulatedAgent(number, size));
    await world.complete();
    return world;
  }

  async #enrol(agent: SimulatedAgent): Promise<void> {
    const port = await freePort();
    const { csrPem, privateKeyPem } = await nodeRequest(agent.id);
    const name = `node-${agent.number}`;
    const ticket = await this.rest.call('POST', '/api/nodes/', { body: { verbose_name: name } });
    const answer = await redeem(this.rest, { token: ticket.body.token, nodeId: agent.id, port, csrPem });
    if (answer.status !== 200) throw new Error(answer.text);
    const { certificate_pem: own, ca_pem: caPem } = answer.body;
    await agent.start({ caPem, certificatePem: own + caPem, privateKeyPem }, port);
    this.agents.push(agent);
  }

  async complete(): Promise<void> {
    const { nodes, vms } = this.size;
    await this.when(async () => {
      const { results } = (await this.rest.call('GET', '/api/nodes/?limit=1000')).body;
      const active = results.filter((node: { status: string }) => node.status === 'ACTIVE').length;
      if (active < nodes) return false;
      const count = async (path: string) => (await this.rest.call('GET', `${path}?limit=1`)).body.count;
      return (
        (await count('/api/domains/')) === nodes * vms &&
        (await count('/api/library/')) >= nodes * vms * FILES
      );
    });
  }

  /** Looks at each change that is told until it is so. */
  async when(isSo: () => Promise<boolean> | boolean): Promise<void> {
    for (;;) {
      const told = Promise.withResolvers<void>();
      const unsubscribe = this.rest.services.changes.subscribe(() => told.resolve());
      try {
        if (await isSo()) return;
        await told.promise;
      } finally {
        unsubscribe();
      }
    }
  }

  async end(): Promise<void> {
    for (const agent of this.agents) agent.stop();
    await this.rest.close();
    await this.database.release();
  }
}
