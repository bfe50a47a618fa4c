// A world with agent and controller: enrolled, connected, and able to lose and find each other again.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { agentArgv } from '../lab/agent.ts';
import { controllerArgv } from '../lab/controller.ts';
import { Daemon } from '../lab/daemon.ts';
import { waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';

describe('a world with a controller', () => {
  let world: World;

  beforeAll(async () => {
    world = await startWorld({ controller: true });
  });

  afterAll(() => world?.stop());

  test('the node is enrolled and its pools are known', async () => {
    const pools = await world.rest.list<{ verbose_name: string; id: string }>('/api/data-pools/');
    expect(pools.map(({ verbose_name }) => verbose_name).sort()).toEqual(['bulk', 'fast']);
    expect(pools.map(({ id }) => id).sort()).toEqual(world.node.pools.map(({ uuid }) => uuid).sort());
  });

  test('a guest defined on the node becomes known', async () => {
    const guest = await world.defineTiny({ name: 'newcomer' });
    const uuid = await world.known(guest);
    const domain = await world.rest.get<{ verbose_name: string }>(`/api/domains/${uuid}/`);
    expect(domain.verbose_name).toBe('newcomer');
  });

  test('a later program finds the daemons of an earlier one', () => {
    const { controller, agent } = world;
    const logFile = join(world.dir, 'unused.log');
    const later = (argv: [string, ...string[]]) =>
      new Daemon({ name: 'daemon', argv, logFile, ready: async () => true });
    const [itsController, itsAgent] = [later(controllerArgv(controller.dir)), later(agentArgv(agent.dir))];
    expect([itsController.adopt(), itsController.pid]).toEqual([true, controller.daemon.pid]);
    expect([itsAgent.adopt(), itsAgent.pid]).toEqual([true, agent.daemon.pid]);
  });

  test('a killed agent is noticed, and found again', async () => {
    await world.agent.daemon.kill();
    const path = `/api/nodes/${world.agent.nodeId}/`;
    const lost = async () => (await world.rest.get<{ status: string }>(path)).status !== 'ACTIVE';
    await waitFor('the loss of the node', lost, 120_000);
    await world.agent.daemon.start();
    await world.connected();
  });

  test('a controller that was killed comes back with the node', async () => {
    await world.controller.daemon.kill();
    await world.controller.daemon.start();
    await world.connected();
    expect(await world.rest.list('/api/domains/')).toHaveLength(1);
  });
});
