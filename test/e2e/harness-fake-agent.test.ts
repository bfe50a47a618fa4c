// The scripted guest agent: faults of a guest without a guest.

import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { FakeAgent } from '../lab/fake-agent.ts';
import type { Guest } from '../lab/guest.ts';
import { startWorld, type World } from '../lab/world.ts';

describe('a scripted agent', () => {
  let world: World;
  let agent: FakeAgent;
  let guest: Guest;

  beforeAll(async () => {
    world = await startWorld();
    agent = await new FakeAgent(join(world.dir, 'agent.sock')).listen();
    guest = await world.defineTiny({ agent: agent.socketPath });
    await guest.start();
  });

  afterAll(async () => {
    await agent?.close();
    await world?.stop();
  });

  test('answers through libvirt', async () => {
    await guest.waitForAgent(240_000);
    expect(await guest.agent('guest-get-host-name')).toEqual({ 'host-name': 'SCRIPTED' });
  });

  test('refuses what it does not know as qemu-ga does', async () => {
    await expect(guest.agent('guest-nonsense')).rejects.toThrow(/has not been found/);
  });

  test('can be frozen through libvirt and die in it', async () => {
    await world.node.virsh('domfsfreeze', guest.name);
    expect(agent.frozen).toBe(true);
    agent.on('guest-fsfreeze-thaw', () => 'die');
    await expect(world.node.virsh('domfsthaw', guest.name)).rejects.toThrow();
    expect(agent.calls.map(({ execute }) => execute)).toContain('guest-fsfreeze-thaw');
  });
});
