import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { DetachDiskRequest, LendDiskRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { AgentState, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { InventoryEvent } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { diskService } from '../../../agent/src/grpc/disk-service.ts';
import { poolService } from '../../../agent/src/grpc/pool-service.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import { waitFor } from '../../lab/run.ts';
import { CALL, InventoryLab } from './lab.ts';

let lab: InventoryLab;
beforeAll(async () => {
  lab = await InventoryLab.start();
});
afterAll(() => lab?.stop());

const lending = (diskId: string) => ({
  ...LendDiskRequest.fromPartial({ operationId: newId(), diskId }),
  ...{ borrowerId: randomUUID(), borrowerNodeId: randomUUID() },
});

/** Collects the events of a watch from now on. */
function follow(): { events: InventoryEvent[]; stop(): void } {
  const stopper = new AbortController();
  const events: InventoryEvent[] = [];
  void (async () => {
    for await (const event of lab.inventory.watch(stopper.signal)) events.push(event);
  })().catch(() => {});
  return { events, stop: () => stopper.abort() };
}

describe('a domain', () => {
  test('appears, runs, is suspended and goes, each within a moment', async () => {
    const { events, stop } = follow();
    const guest = await lab.world.defineTiny({ name: 'alive' });
    const id = await guest.uuid();
    const off = await lab.domain(id, domain => domain.disks[0]!.virtualSize > 0n);
    expect(off).toMatchObject({
      name: 'alive',
      powerState: PowerState.OFF,
      agentState: AgentState.DISCONNECTED,
      persistent: true,
      memoryCount: 128n,
    });
    const pool = lab.world.node.pool(0);
    expect(off.disks).toMatchObject([
      {
        poolId: pool.uuid,
        driverType: 'qcow2',
        virtualSize: BigInt(64 * MiB),
        targetDev: 'vda',
        targetBus: 'virtio',
        backingChain: [],
      },
    ]);
    expect(off.disks[0]!.path).toContain(off.disks[0]!.id);
    await guest.start();
    await lab.domain(id, domain => domain.powerState === PowerState.RUNNING);
    await lab.domain(id, domain => domain.agentState === AgentState.CONNECTED, 120_000);
    await lab.world.node.virsh('suspend', 'alive');
    await lab.domain(id, domain => domain.powerState === PowerState.SUSPENDED);
    await lab.world.node.virsh('resume', 'alive');
    await lab.domain(id, domain => domain.powerState === PowerState.RUNNING);
    await guest.destroy();
    await lab.domain(id, domain => domain.powerState === PowerState.OFF);
    await lab.world.node.virsh('undefine', 'alive');
    await waitFor('its end', () => !lab.inventory.domains().some(domain => domain.id === id), 180_000, 20);
    await waitFor(
      'the event',
      () => events.some(({ event }) => event?.$case === 'domainRemoved' && event.value === id),
      180_000,
    );
    stop();
    expect(events[0]?.event?.$case).toBe('full');
    const kinds = events.map(({ event }) => event?.$case);
    expect(kinds).toContain('domainChanged');
  });

  test('has its saved states and its chain, and keeps its disk id', async () => {
    const guest = await lab.world.defineTiny({ name: 'states' });
    const id = await guest.uuid();
    const before = await lab.domain(id, domain => domain.disks[0]!.virtualSize > 0n);
    await lab.world.node.virsh('snapshot-create-as', 'states', 'first', '--disk-only');
    await lab.inventory.refreshDomain(id);
    await lab.world.node.virsh('snapshot-create-as', 'states', 'second', '--disk-only');
    await lab.inventory.refreshDomain(id);
    const after = lab.inventory.domain(id);
    expect(after.snapshots).toEqual(['first', 'second']);
    expect(after.disks[0]!.id).toBe(before.disks[0]!.id);
    expect(after.disks[0]!.backingChain).toHaveLength(2);
    expect(after.disks[0]!.backingChain[1]).toBe(before.disks[0]!.path);
  });

  test('outside of every pool makes an outside pool', async () => {
    const path = await makePlainDisk(join(lab.world.dir, 'elsewhere', 'd.raw'), {
      sizeBytes: 3 * MiB + 512,
      format: 'raw',
    });
    const guest = await lab.world.defineTiny({ name: 'outside', disks: [{ path, format: 'raw' }] });
    const { disks } = await lab.domain(await guest.uuid(), domain => domain.disks[0]!.virtualSize > 0n);
    expect(disks[0]).toMatchObject({ virtualSize: BigInt(3 * MiB + 512), driverType: 'raw', name: 'd' });
    const { pools } = (await lab.pools.list({}, CALL)) as { pools: { id: string; type: string }[] };
    expect(pools.find(pool => pool.id === disks[0]!.poolId)).toMatchObject({
      type: 'outside', outside: true, readonly: true, backupTarget: false, diskCount: 1,
    }); // biome-ignore format: one record
  });

  test('that is locked says by what, and is refused to others', async () => {
    const guest = await lab.world.defineTiny({ name: 'locked', dataDisks: [] });
    const id = await guest.uuid();
    await lab.domain(id);
    const gate = Promise.withResolvers<void>();
    const operation = lab.runner.start({
      id: newId(), kind: 'backup', request: {}, entities: [], cancellable: true, heavy: false,
      locks: [{ kind: 'domain', id, mode: 'exclusive' }],
      workflow: async context => { await gate.promise; context.commit(); },
    }); // biome-ignore format: one call
    expect(lab.inventory.domain(id).lockedBy).toBe(operation.id);
    const busy = expect.objectContaining({ msgKey: 'domain_busy' });
    await expect(lab.domains.update({ domainId: id, template: true }, CALL)).rejects.toEqual(busy);
    gate.resolve();
    await lab.domain(id, domain => domain.lockedBy === '');
  });

  test('keeps description and template mark in its own definition', async () => {
    const guest = await lab.world.defineTiny({ name: 'template', dataDisks: [] });
    const id = await guest.uuid();
    const marked = await lab.domains.update(
      { domainId: id, description: 'käse & <brot>', template: true },
      CALL,
    );
    expect(marked).toMatchObject({ template: true, description: 'käse & <brot>' });
    const xml = await guest.xml(true);
    expect(xml).toContain('urn:virtkeep:domain:1');
    expect(xml).toContain('version="1"');
    const plain = await lab.domains.update({ domainId: id, description: '', template: false }, CALL);
    expect(plain).toMatchObject({ template: false, description: '' });
    expect(await guest.xml(true)).not.toContain('template="yes"');
    const { xml: told } = (await lab.domains.getXml({ id, inactive: true }, CALL)) as { xml: string };
    expect(told).toContain(`<uuid>${id}</uuid>`);
  });

  test('that is unknown is not found', async () => {
    const missing = expect.objectContaining({ msgKey: 'domain_not_found' });
    await expect(lab.domains.get({ id: randomUUID() }, CALL)).rejects.toEqual(missing);
    await expect(lab.domains.getXml({ id: randomUUID(), inactive: false }, CALL)).rejects.toEqual(missing);
    await expect(lab.domains.get({ id: 'x' }, CALL)).rejects.toEqual(
      expect.objectContaining({ msgKey: 'invalid_uuid' }),
    );
  });
});

describe('just after a start', () => {
  test('nothing counts as absent: who asks waits for the first look, or hears that libvirt is not there', async () => {
    const guest = await lab.world.defineTiny({ name: 'known' });
    const { id: domainId, disks } = await lab.domain(await guest.uuid(), domain => domain.disks.length > 0);
    const { runner, workflows, backupFiles } = lab;
    const link = lab.newLink();
    const inventory = lab.newInventory(link);
    const services = {
      disks: diskService({ inventory, runner, workflows }),
      pools: poolService({ inventory, backupFiles, runner, settings: lab.journal.settings, workflows }),
    };
    const [pool] = lab.inventory.poolMessages();
    const ask = () => [
      services.disks.lend(lending(disks[0]!.id), CALL),
      services.disks.detach(DetachDiskRequest.fromPartial({ ...lending(disks[0]!.id), domainId }), CALL),
      services.pools.get({ id: pool!.id }, CALL),
      services.pools.scan(
        { operationId: newId(), poolId: pool!.id, thorough: false, filesApart: false },
        CALL,
      ),
      services.pools.listFiles({ poolId: pool!.id }, CALL),
    ];
    for (const one of await Promise.allSettled(ask()))
      expect(one).toMatchObject({ reason: { msgKey: 'libvirt_unreachable' } });

    await link.open();
    const asked = Promise.allSettled(ask());
    inventory.start();
    const [lent, detached, ...told] = await asked;
    expect(detached).toMatchObject({ reason: { msgKey: 'vdisk_not_attached' } });
    for (const one of [lent, ...told]) expect(one).toMatchObject({ status: 'fulfilled' });
    await lab.ended(Promise.resolve((lent as PromiseFulfilledResult<unknown>).value));
    await inventory.stop();
    await link.close();
  });
});

describe('without libvirt', () => {
  test('lists go on at once, and what happened meanwhile is seen after the reconnection', async () => {
    const { node } = lab.world;
    const before = lab.inventory.domains().length;
    await node.killLibvirtd();
    await waitFor('the loss', () => !lab.link.connected, 120_000);
    // what is answered without a turn of the event loop waits for nothing
    expect(lab.inventory.domains()).toHaveLength(before);
    await node.startLibvirtd();
    const guest = await lab.world.defineTiny({ name: 'meanwhile', dataDisks: [] });
    await lab.domain(await guest.uuid(), () => true, 180_000);
    expect(lab.inventory.domains()).toHaveLength(before + 1);
  });
});
