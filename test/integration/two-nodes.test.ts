/**
 * Two real agents and one pool, the clock of one of them ten minutes off: what one node does with what the other one uses.
 * Each race is driven on purpose: one side is stopped where it is about to act.
 */
import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { PowerAction } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { type AgentChannel, openAgentChannel } from '../../controller/src/agents/clients.ts';
import { ensureCa, ensureControllerCertificate } from '../../controller/src/pki/index.ts';
import { makeDataDisk } from '../lab/disks.ts';
import type { Guest } from '../lab/guest.ts';
import type { LabNode } from '../lab/node.ts';
import { run, waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';

const PATIENCE_MS = 300_000;

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

let world: World;
let home: LabNode;
let afar: LabNode;
let far: AgentChannel;

/** Where a restore on the first node stops, when that file is there. */
const gate = () => join(world.dir, 'gate');

/** The first agent can be stopped in the middle of a restore; the second one's clock is off. */
async function startAgents(offset: string): Promise<void> {
  const { stdout } = await run(['dpkg-query', '-L', 'libfaketime']);
  const library = stdout.split('\n').find(path => path.endsWith('/libfaketime.so.1'))!;
  writeFileSync(gate(), '');
  const [one, two] = world.agents;
  await one!.daemon.restart({ VIRTKEEP_FAULTS: `restore.check.after=pause:${gate()}` });
  await two!.daemon.restart({ LD_PRELOAD: library, FAKETIME: offset, FAKETIME_DONT_FAKE_MONOTONIC: '1' });
  for (const agent of world.agents) await world.connected(agent);
}

beforeAll(async () => {
  world = await startWorld({ controller: true, nodes: 2 });
  [home, afar] = world.nodes as [LabNode, LabNode];
  const stateDir = join(world.controller.dir, 'state');
  const ca = await ensureCa(stateDir);
  const own = await ensureControllerCertificate(stateDir, ca);
  const { nodeId, port, node } = world.agents[1]!;
  far = openAgentChannel(
    { id: nodeId, name: node.name, address: `127.0.0.1:${port}` },
    { caPem: ca.certificatePem, chainPem: own.chainPem, privateKeyPem: own.privateKeyPem },
  );
});
afterAll(async () => {
  far?.close();
  await world?.stop();
});

const shared = (name = `${randomUUID()}.qcow2`) => join(home.pool('shared').path, name);
const recordOf = (id: string) => world.rest.get<Json>(`/api/domains/${id}/`);

/** A VM of the first node with one disk in the shared pool. */
async function onShared(
  name: string,
  devices = '',
  path = shared(),
): Promise<{ guest: Guest; id: string; path: string }> {
  await makeDataDisk(path);
  const guest = await world.defineTiny({ name, node: home, disks: [{ path }], devices });
  return { guest, id: await world.known(guest), path };
}

/** The same definition on the second node, as a migration leaves it behind. */
async function copyAfar(guest: Guest): Promise<void> {
  const file = join(world.dir, `${guest.name}.xml`);
  writeFileSync(file, await guest.xml(true));
  await afar.virsh('define', file);
}

async function powerIs(id: string, state: number, node: LabNode): Promise<void> {
  const reached = async () => {
    const { user_power_state, node: of } = await recordOf(id);
    return user_power_state === state && of.verbose_name === node.name;
  };
  await waitFor(`the power state ${state} on ${node.name}`, reached, PATIENCE_MS);
}

afterEach(async () => {
  for (const node of [home, afar])
    for (const name of (await node.virsh('list', '--all', '--name')).split('\n').filter(Boolean)) {
      await node.virsh('destroy', name).catch(() => {});
      await node.virsh('undefine', name, '--nvram', '--snapshots-metadata');
    }
  for (const name of readdirSync(home.pool('shared').path))
    if (name.endsWith('.qcow2')) rmSync(join(home.pool('shared').path, name));
});

describe.each(['+10m', '-10m'])('with the clock of the second node at %s', offset => {
  beforeAll(() => startAgents(offset));

  test('a removal leaves the files that the other node uses, by a copy of the VM or below another disk', async () => {
    const { guest, id, path } = await onShared('removed');
    await guest.start();
    await powerIs(id, 3, home);
    await copyAfar(guest);
    await home.virsh('destroy', guest.name);
    await powerIs(id, 1, home);
    const { task } = await world.rest.action(`/api/domains/${id}/remove/`, { full: true });
    expect(task.detail?.message).toMatch(new RegExp(`${path}.*${afar.name}`));
    expect(existsSync(path)).toBe(true);

    const below = await onShared('below');
    const top = shared();
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', below.path, '-F', 'qcow2', top]);
    await world.defineTiny({ name: 'above', node: afar, disks: [{ path: top }] });
    const { task: second } = await world.rest.action(`/api/domains/${below.id}/remove/`, { full: true });
    expect(second.detail?.message).toContain(below.path);
    expect(existsSync(below.path)).toBe(true);

    const free = await onShared('free');
    await world.rest.action(`/api/domains/${free.id}/remove/`, { full: true });
    expect(existsSync(free.path)).toBe(false);
  });

  test('the stale copy of a running VM is neither started, nor backed up, nor removed with its disks', async () => {
    const { guest, id } = await onShared('moved');
    await guest.start();
    await powerIs(id, 3, home);
    await copyAfar(guest);
    const outcome = async (operationId: string) => {
      const ended = async () =>
        (await far.clients.operations.get({ id: operationId })).state !== OperationState.RUNNING;
      await waitFor('the end of the operation', ended, PATIENCE_MS);
      return (await far.clients.operations.get({ id: operationId })).error?.msgKey;
    };
    const request = () => ({ operationId: newId(), domainId: id });
    const { domains, backups } = far.clients;
    const starts = [
      () => domains.setPower({ ...request(), action: PowerAction.START }),
      () => domains.remove({ ...request(), full: true }),
      () => backups.start({ ...request(), fileId: newId(), poolId: afar.pool(1).uuid }),
    ];
    for (const start of starts) expect(await outcome((await start()).id)).toBe('domain_elsewhere');
    await powerIs(id, 3, home);

    // it moves: the other one is the VM
    await home.virsh('destroy', guest.name);
    await afar.virsh('start', guest.name);
    await powerIs(id, 3, afar);
  });

  test('two restores at once do not both get one LUN', async () => {
    const lun = `<disk type='network' device='disk'><driver name='qemu' type='raw'/><source protocol='nbd' name='lun'><host name='127.0.0.1' port='9'/></source><target dev='sdz' bus='scsi'/></disk>`;
    const vms = [await onShared('first', lun), await onShared('second', lun)];
    const files: string[] = [];
    for (const { id } of vms) {
      const { entity } = await world.rest.action('/api/domains/backup/', {
        domain: id,
        datapool: home.pool('shared').uuid,
      });
      files.push(entity);
    }
    for (const { guest, id } of vms) {
      await home.virsh('undefine', guest.name);
      const gone = async () => (await world.rest.send('GET', `/api/domains/${id}/`)).status === 404;
      await waitFor('the end of a VM', gone, PATIENCE_MS);
    }
    const restore = (index: number, node: LabNode) => ({
      file: files[index],
      node: node.hostUuid,
      datapool: home.pool('shared').uuid,
      keep_identity: true,
    });
    rmSync(gate());
    const held = await world.rest.begin('/api/domains/automated-restore/', restore(0, home));
    await waitFor('the restore to look at its LUN', () => existsSync(`${gate()}.reached`), PATIENCE_MS);
    const { task: other } = await world.rest.action('/api/domains/automated-restore/', restore(1, afar));
    expect(other.detail?.message).toMatch(new RegExp(`nbd:lun.*first on the node ${home.name}`));
    writeFileSync(gate(), '');
    rmSync(`${gate()}.reached`);
    expect((await world.rest.waitTask(held.taskId, PATIENCE_MS)).status).toBe('SUCCESS');
    expect(await home.virsh('dumpxml', 'first')).toContain('nbd');
    expect(await afar.virsh('dumpxml', 'second')).not.toContain('nbd');
  });
});
