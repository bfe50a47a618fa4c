/**
 * Two real agents and one pool, the clock of one of them ten minutes off: what one node does with what the other one uses.
 * Each race is driven on purpose: one side is stopped where it is about to act.
 */
import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { PowerAction } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { type AgentChannel, openAgentChannel } from '../../../controller/src/agents/clients.ts';
import { keyFiles } from '../../../controller/src/keys/keys.ts';
import { ensureCa, ensureControllerCertificate } from '../../../controller/src/pki/index.ts';
import { makeDataDisk } from '../../lab/disks.ts';
import { few } from '../../lab/few.ts';
import type { Guest } from '../../lab/guest.ts';
import type { LabNode } from '../../lab/node.ts';
import { run, waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';

const PATIENCE_MS = 300_000;

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

let world: World;
let home: LabNode;
let afar: LabNode;
let near: AgentChannel;
let far: AgentChannel;

/** Where an agent stops, until that file is there. */
const gate = () => join(world.dir, 'gate');
/** What each agent stops at; it is read at every step. */
const faultsOf = (node: LabNode) => join(world.dir, `${node.name}.faults`);

/** Makes an agent stop at a moment of its next operation, until `release`. */
function holdAt(node: LabNode, moment: string): void {
  rmSync(gate(), { force: true });
  writeFileSync(faultsOf(node), `${moment}=pause:${gate()}`);
}

const reached = () => waitFor('an agent to stop', () => existsSync(`${gate()}.reached`), PATIENCE_MS);

function release(): void {
  for (const node of [home, afar]) writeFileSync(faultsOf(node), '');
  rmSync(`${gate()}.reached`, { force: true });
  writeFileSync(gate(), '');
}

/** Both agents can be stopped in the middle of something; the second one's clock is off. */
async function startAgents(offset: string): Promise<void> {
  const { stdout } = await run(['dpkg-query', '-L', 'libfaketime']);
  const library = stdout.split('\n').find(path => path.endsWith('/libfaketime.so.1'))!;
  release();
  const clock = { LD_PRELOAD: library, FAKETIME: offset, FAKETIME_DONT_FAKE_MONOTONIC: '1' };
  const [one, two] = world.agents;
  await one!.daemon.restart({ VIRTKEEP_FAULTS: `@${faultsOf(home)}` });
  await two!.daemon.restart({ VIRTKEEP_FAULTS: `@${faultsOf(afar)}`, ...clock });
  for (const agent of world.agents) await world.connected(agent);
}

beforeAll(async () => {
  world = await startWorld({ controller: true, nodes: 2 });
  [home, afar] = world.nodes as [LabNode, LabNode];
  const stateDir = join(world.controller.dir, 'state');
  const ca = await ensureCa(keyFiles(stateDir));
  const own = await ensureControllerCertificate(keyFiles(stateDir), ca);
  const keys = { caPem: ca.certificatePem, chainPem: own.chainPem, privateKeyPem: own.privateKeyPem };
  [near, far] = world.agents.map(({ nodeId, port, node }) =>
    openAgentChannel(
      { id: nodeId, name: node.name, address: `127.0.0.1:${port}` },
      keys,
      new AbortController().signal,
    ),
  ) as [AgentChannel, AgentChannel];
});
afterAll(async () => {
  near?.close();
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
async function copyAfar(guest: Guest, xml?: string): Promise<void> {
  const file = join(world.dir, `${guest.name}.xml`);
  writeFileSync(file, xml ?? (await guest.xml(true)));
  await afar.virsh('define', file);
}

/** Id of the only disk of a VM, as a node tells it. */
async function diskIdOf({ clients }: AgentChannel, id: string): Promise<string> {
  return (await clients.domains.get({ id })).disks[0]!.id;
}

/** The key of the error that an operation ends with; '' when it succeeds. */
async function outcome({ clients }: AgentChannel, { id }: { id: string }): Promise<string> {
  const ended = async () => (await clients.operations.get({ id })).state !== OperationState.RUNNING;
  await waitFor('the end of the operation', ended, PATIENCE_MS);
  return (await clients.operations.get({ id })).error?.msgKey ?? '';
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

describe.each(few(['+10m', '-10m'], '+10m'))('with the clock of the second node at %s', offset => {
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

  test('nothing is done with the stale copy of a running VM', async () => {
    const { guest, id } = await onShared('moved');
    await guest.start();
    await powerIs(id, 3, home);
    await copyAfar(guest);
    const request = () => ({ operationId: newId(), domainId: id });
    const { domains, backups, snapshots, disks, templates, guests } = far.clients;
    const snapshotId = newId();
    const disk = await diskIdOf(far, id);
    const borrower = await world.defineTiny({ name: 'borrower', node: afar });
    const domainId = await world.known(borrower);
    const starts = [
      () => domains.setPower({ ...request(), action: PowerAction.START }),
      () => domains.remove({ ...request(), full: true }),
      () => backups.start({ ...request(), fileId: newId(), poolId: afar.pool(1).uuid }),
      () => snapshots.create({ ...request(), name: 's' }),
      () => snapshots.remove({ ...request(), snapshotId }),
      () => snapshots.revert({ ...request(), snapshotId }),
      () => templates.clone({ ...request(), newDomainId: newId(), name: 'clone' }),
      () => guests.prepare(request()),
      () => disks.attach({ operationId: newId(), domainId, diskId: disk }),
    ];
    for (const start of starts) expect(await outcome(far, await start())).toBe('domain_elsewhere');
    await powerIs(id, 3, home);

    // it moves: the other one is the VM
    await home.virsh('destroy', guest.name);
    await afar.virsh('start', guest.name);
    await powerIs(id, 3, afar);
  });

  test('a guest that the other node has started while its agent was away is not started a second time', async () => {
    const { guest, id, path } = await onShared('taken');
    // on another file: no image lock of QEMU's stands against a second start
    const other = shared();
    await makeDataDisk(other);
    const kept = (await guest.xml(true)).replaceAll(path, other);
    await guest.start();
    await powerIs(id, 3, home);
    const { snapshots, operations } = near.clients;
    const made = { operationId: newId(), domainId: id, name: 's' };
    expect(await outcome(near, await snapshots.create(made))).toBe('');
    const { snapshots: states } = await snapshots.list({ domainId: id });
    holdAt(home, 'revert_snapshot.stop.after');
    const revert = { operationId: newId(), domainId: id, snapshotId: states[0]!.id };
    await snapshots.revert(revert);
    await reached();
    for (const { daemon } of [world.agent, world.controller]) await daemon.kill();
    // as a cluster manager does with the definition that it keeps
    await copyAfar(guest, kept);
    await afar.virsh('start', guest.name);
    release();
    const seen = world.agent.daemon.log().length;
    await world.agent.daemon.start({ VIRTKEEP_FAULTS: `@${faultsOf(home)}` });
    const isUp = () => world.agent.daemon.log().slice(seen).includes('connected to libvirt');
    await waitFor('the agent to take up what was cut off', isUp, PATIENCE_MS);
    // no answer of the other node can be had so far, and it is waited for
    expect(await guest.state()).toBe('shut off');
    await world.controller.daemon.start();
    await world.connected(world.agent);
    const ended = async () => {
      const operation = await operations.get({ id: revert.operationId });
      return operation.state === OperationState.RUNNING ? undefined : operation;
    };
    const { warnings } = await waitFor('the end of the revert', ended, PATIENCE_MS);
    expect(warnings).toEqual([
      expect.stringMatching(new RegExp(`^The domain was not started again: .*${afar.name}`)),
    ]);
    expect(await guest.state()).toBe('shut off');
    await powerIs(id, 3, afar);
  });

  test('a VM that is off is not backed up as it lies while the other node runs it', async () => {
    const image = join(world.dir, 'lun.img');
    await run(['truncate', '-s', '16M', image]);
    const lun = (await run(['losetup', '--find', '--show', image])).stdout.trim();
    try {
      await run(['qemu-img', 'create', '-q', '-f', 'qcow2', lun, '8M']);
      const disks = [{ path: lun, type: 'block' as const, format: 'qcow2' as const }];
      const guest = await world.defineTiny({ name: 'on-lun', node: home, disks });
      const id = await world.known(guest);
      holdAt(home, 'backup.copy.before');
      const request = { operationId: newId(), domainId: id, fileId: newId(), poolId: home.pool(1).uuid };
      const operation = await near.clients.backups.start(request);
      await reached();
      await copyAfar(guest);
      await afar.virsh('start', guest.name);
      await powerIs(id, 3, afar);
      release();
      expect(await outcome(near, operation)).toBe('domain_elsewhere');
    } finally {
      await afar.virsh('destroy', 'on-lun').catch(() => {});
      await run(['losetup', '--detach', lun]);
    }
  });

  test('a template is neither changed nor unmarked while a thin clone of it is on the other node', async () => {
    const { id, path } = await onShared('golden');
    const mark = async (template: boolean) => {
      const { taskId } = await world.rest.begin(`/api/domains/${id}/template/`, { template }, 'PUT');
      return (await world.rest.waitTask(taskId, PATIENCE_MS)).error;
    };
    expect(await mark(true)).toBeNull();
    const { templates, guests } = near.clients;
    const clone = { operationId: newId(), domainId: id, newDomainId: newId(), name: 'thin', thin: true };
    expect(await outcome(near, await templates.clone(clone))).toBe('');
    const file = join(world.dir, 'thin.xml');
    writeFileSync(file, await home.virsh('dumpxml', '--inactive', clone.name));
    await home.virsh('undefine', clone.name);
    await afar.virsh('define', file);
    const cloneRecord = () => world.rest.send<Json>('GET', `/api/domains/${clone.newDomainId}/`);
    const moved = async () => (await cloneRecord()).body.node?.verbose_name === afar.name;
    await waitFor('the clone on the other node', moved, PATIENCE_MS);

    const before = readFileSync(path);
    expect(await outcome(near, await guests.prepare({ operationId: newId(), domainId: id }))).toBe(
      'template_has_clones',
    );
    expect(await mark(false)).toMatchObject({
      msg_key: 'template_has_clones',
      detail: expect.stringContaining(`thin on the node ${afar.name}`),
    });
    expect(readFileSync(path).equals(before)).toBe(true);
    expect((await recordOf(id)).template).toBe(true);

    await afar.virsh('undefine', clone.name);
    const gone = async () => (await cloneRecord()).status === 404;
    await waitFor('the end of the clone', gone, PATIENCE_MS);
    expect(await mark(false)).toBeNull();
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
    holdAt(home, 'restore.check.after');
    const held = await world.rest.begin('/api/domains/automated-restore/', restore(0, home));
    await reached();
    // what another node's VM had is attached to who names it
    const named = { ...restore(1, afar), luns: ['sdz'] };
    const other = await world.rest.begin('/api/domains/automated-restore/', named);
    const { error } = await world.rest.waitTask(other.taskId, PATIENCE_MS);
    expect(error).toMatchObject({
      msg_key: 'lun_unavailable',
      detail: expect.stringMatching(new RegExp(`nbd:lun.*first on the node ${home.name}`)),
    });
    release();
    expect((await world.rest.waitTask(held.taskId, PATIENCE_MS)).status).toBe('SUCCESS');
    expect(await home.virsh('dumpxml', 'first')).toContain('nbd');
    expect(await afar.virsh('list', '--all', '--name')).not.toContain('second');
  });

  test('what one agent does with an archive, another leaves alone until it is done, whatever the controller knows', async () => {
    const { id } = await onShared('archived');
    const pool = home.pool('shared').uuid;
    const inPool = (name: string) => join(home.pool('shared').path, 'backups', name);
    const ref = (filename: string) => ({
      operationId: newId(),
      fileId: newId(),
      file: { poolId: pool, filename },
    });
    const first = async (request = {}) => {
      const { entity } = await world.rest.action('/api/domains/backup/', {
        domain: id,
        datapool: pool,
        ...request,
      });
      return recordOfFile(entity);
    };
    const recordOfFile = async (file: string) =>
      (await world.rest.get<Json>(`/api/library/${file}/`)).filename as string;
    const acts = ({ clients }: AgentChannel, name: string) => ({
      delete: () => clients.backups.delete(ref(name)),
      verify: () => clients.backups.verify(ref(name)),
      recompress: () => clients.backups.recompress({ ...ref(name), compress: true }),
      restore: () =>
        clients.restores.start({ ...ref(name), domainId: newId(), name: `r${randomUUID()}`, poolId: pool }),
      instant: () =>
        clients.restores.start({
          ...ref(name),
          domainId: newId(),
          name: `i${randomUUID()}`,
          poolId: pool,
          instant: true,
        }),
      increment: () =>
        clients.backups.start({
          operationId: newId(),
          domainId: id,
          fileId: newId(),
          extend: ref(name).file,
        }),
    });
    type Act = keyof ReturnType<typeof acts>;

    const archive = await first({ can_be_incremental: true });
    const races: [LabNode, Act, string, Act[]][] = [
      [home, 'increment', 'backup.copy.after', ['delete', 'verify', 'recompress', 'restore', 'instant']],
      [home, 'restore', 'restore.extract.before', ['delete', 'recompress']],
      [afar, 'instant', 'restore.pull.before', ['delete', 'recompress', 'increment']],
      [afar, 'restore', 'restore.extract.before', ['increment']],
      [afar, 'recompress', 'recompress.copy.after', ['delete', 'verify', 'restore', 'increment']],
    ];
    for (const [node, held, moment, others] of races) {
      const [holder, other] = node === home ? [near, far] : [far, near];
      holdAt(node, moment);
      const operation = await acts(holder, archive)[held]();
      await reached();
      for (const act of others)
        expect([moment, act, await outcome(other, await acts(other, archive)[act]())]).toEqual([
          moment,
          act,
          'file_busy',
        ]);
      release();
      expect([moment, await outcome(holder, operation)]).toEqual([moment, '']);
    }
    const packed = `${archive}.zst`;
    expect([existsSync(inPool(archive)), existsSync(inPool(packed))]).toEqual([false, true]);
    expect(await outcome(near, await acts(near, packed).verify())).toBe('');
    expect(
      (await near.clients.backups.show({ file: ref(packed).file, state: '1' })).file?.states,
    ).toHaveLength(2);
    expect(await outcome(far, await acts(far, packed).delete())).toBe('');
    expect(readdirSync(inPool('.')).filter(name => name.includes('archived'))).toEqual([]);
  });
});
