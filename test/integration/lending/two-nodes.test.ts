/** A disk of a VM on one node, attached to a VM on another one that shares its data pool: real controller and agents. */
import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Daemon } from '../../lab/daemon.ts';
import { makeDataDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import type { LabNode } from '../../lab/node.ts';
import type { Rest } from '../../lab/rest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';
import { deviceOf, onLent } from './lab.ts';

const STATE = 'vdisks_attached_to_another_domains';
const PATIENCE_MS = 300_000;

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

let world: World;
let rest: Rest;
let home: LabNode;
let afar: LabNode;
let owner: Guest;
let reader: Guest;
let ownerId: string;
let readerId: string;
let disk: string;

beforeAll(async () => {
  world = await startWorld({
    controller: true,
    nodes: 2,
    controllerSettings: { agents: { lost_after_s: 600 } },
  });
  rest = world.rest;
  [home, afar] = world.nodes as [LabNode, LabNode];
  const path = await makeDataDisk(join(home.pool('shared').path, `${randomUUID()}.qcow2`));
  owner = await world.defineTiny({ name: 'owner', node: home, disks: [{ path }] });
  reader = await world.defineTiny({ name: 'reader', node: afar, dataDisks: [] });
  for (const guest of [owner, reader]) await guest.start();
  for (const guest of [owner, reader]) await guest.waitForAgent();
  ownerId = await world.known(owner);
  readerId = await world.known(reader);
  disk = (await rest.get<Json>(`/api/domains/${ownerId}/`)).vdisks[0].id;
});
afterAll(() => world?.stop());

const attachPath = () => `/api/domains/${readerId}/attach-vdisk/`;
const detachPath = () => `/api/domains/${readerId}/detach-vdisk/`;
const write = (mark: string) => owner.sh(`echo ${mark} > /mnt/vda/mark; sync`);
const read = async () => (await reader.sh(onLent(disk, 'cat $M/mark'))).trim();
const listed = async () =>
  (await rest.list<Json>(`/api/vdisks/?another_domain=${readerId}`)).map((one: Json) => one.id);
const sharedFiles = () => readdirSync(home.pool('shared').path).sort();

/** The loan has ended, and so has the operation that ended it. */
async function freed(): Promise<void> {
  await waitFor('the end of the loan', async () => (await owner.snapshots()).length === 0, PATIENCE_MS, 500);
  const free = async () =>
    (await rest.get<Json>(`/api/domains/${ownerId}/`)).permissions.includes('snapshot');
  await waitFor('the owner to be free', free, PATIENCE_MS, 500);
}

async function sound(): Promise<void> {
  for (const path of Object.values(await owner.disks()))
    if (path.startsWith('/')) await run(['qemu-img', 'check', '-q', '-U', '-f', 'qcow2', path]);
}

test('is read there as it was at one instant, is never written to, and leaves nothing', async () => {
  const before = sharedFiles();
  await write('one');
  const body = await rest.ok<Json>('POST', attachPath(), { vdisk: disk });
  expect(body).toMatchObject({
    vdisk: disk,
    attached: { target_dev: 'vda', target_bus: 'virtio', driver_cache: 'none', readonly: true },
    snapshot: { verbose_name: STATE },
  });
  expect(await owner.snapshots()).toEqual([STATE]);
  await write('two');
  expect(await read()).toBe('one');
  await expect(reader.sh(`dd if=/dev/zero of=/dev/${deviceOf(disk)} count=1 conv=fsync`)).rejects.toThrow();
  expect(await listed()).toEqual([disk]);
  const refused = await rest.send<Json>('POST', '/api/domains/backup/', { domain: ownerId });
  expect([refused.status, refused.body.errors[0].msg_key]).toEqual([409, 'vdisk_attached_elsewhere']);

  const end = await rest.ok<Json>('POST', detachPath(), { vdisk: disk });
  expect(end).toEqual({ vdisk: disk, domain: readerId, snapshot: null });
  expect([await owner.snapshots(), await listed()]).toEqual([[], []]);
  expect(sharedFiles()).toEqual(before);
  expect(await owner.sh('cat /mnt/vda/mark')).toBe('two\n');
  await sound();
});

test('is refused with the reason when the other node cannot reach its file', async () => {
  const hidden = await world.defineTiny({ name: 'hidden', node: home });
  const id = await world.known(hidden);
  const [own] = (await rest.get<Json>(`/api/domains/${id}/`)).vdisks;
  const { status, body } = await rest.send<Json>('POST', attachPath(), { vdisk: own.id });
  expect([status, body.errors[0].msg_key]).toEqual([409, 'vdisk_unreachable']);
  expect(body.detail).toContain(home.pool(0).name);
  expect(await hidden.snapshots()).toEqual([]);
});

test('goes back when the VM that had it is deleted behind our back', async () => {
  const short = await world.defineTiny({ name: 'short-lived', node: afar, dataDisks: [] });
  const id = await world.known(short);
  await rest.ok('POST', `/api/domains/${id}/attach-vdisk/`, { vdisk: disk });
  expect(await owner.snapshots()).toEqual([STATE]);
  await afar.virsh('undefine', 'short-lived');
  await freed();
  await sound();
});

test('goes back although its node was away when it was detached', async () => {
  await rest.ok('POST', attachPath(), { vdisk: disk });
  await world.agent.daemon.kill();
  const away = async () => (await rest.get<Json>(`/api/nodes/${world.agent.nodeId}/`)).status === 'FAILED';
  await waitFor('the loss of the node', away, PATIENCE_MS);
  const { taskId } = await rest.begin(detachPath(), { vdisk: disk });
  expect(await rest.waitTask(taskId)).toMatchObject({
    status: 'SUCCESS',
    detail: { message: expect.stringContaining('asked again later') },
  });
  expect(await listed()).toEqual([]);
  expect(await owner.snapshots()).toEqual([STATE]);
  await world.agent.daemon.start();
  await world.connected();
  await freed();
  await sound();
});

/** A node that has just been started may not be heard of yet, and is at work on what was cut off before. */
const NOT_YET = ['domain_busy', 'node_unreachable'];

/** Starts a task as soon as what was cut off before is cleaned up; undefined when that did it all. */
async function begun(path: string): Promise<string | undefined> {
  let answer = await rest.send<Json>('POST', `${path}?async=1`, { vdisk: disk });
  const keyOf = () => answer.body.errors?.[0]?.msg_key;
  await waitFor(
    'the end of other work on the VMs',
    async () => {
      if (!NOT_YET.includes(keyOf())) return true;
      answer = await rest.send<Json>('POST', `${path}?async=1`, { vdisk: disk });
      return false;
    },
    PATIENCE_MS,
    500,
  );
  if (answer.status === 202) return answer.body._task.id;
  expect(keyOf()).toBe('vdisk_not_attached');
  return undefined;
}

/** Ends a process without a word at some moment of a task, and starts it again. @returns the task's outcome */
async function killed(daemon: Daemon, path: string, delayMs: number): Promise<string> {
  const taskId = await begun(path);
  if (taskId === undefined) return 'NOTHING TO DO';
  await new Promise(resolve => setTimeout(resolve, delayMs));
  await daemon.kill();
  await daemon.start();
  for (const agent of world.agents) await world.connected(agent);
  return (await rest.waitTask(taskId, PATIENCE_MS)).status;
}

/** Whatever became of it: the disk is there and the loan too, or none of both. */
async function settled(): Promise<boolean> {
  const [there, states] = [(await listed()).length > 0, await owner.snapshots()];
  return there === states.length > 0;
}

const VICTIMS = ['the controller', 'the agent of its VM', 'the agent of the other VM'] as const;

test.each(VICTIMS)('is attached or not, never half, when %s is killed at any moment', async victim => {
  const [own, others] = world.agents.map(agent => agent.daemon) as [Daemon, Daemon];
  const daemon = { [VICTIMS[0]]: world.controller.daemon, [VICTIMS[1]]: own, [VICTIMS[2]]: others }[victim]!;
  for (const delayMs of [0, 150, 400]) {
    const attached = await killed(daemon, attachPath(), delayMs);
    await waitFor('an end of both sides', settled, PATIENCE_MS, 500);
    if (attached === 'SUCCESS') expect(await listed()).toEqual([disk]);
    if ((await listed()).length > 0) await killed(daemon, detachPath(), delayMs);
    // undisturbed: one that is killed at the same moment each time may never end
    while ((await listed()).length > 0) {
      const taskId = await begun(detachPath());
      if (taskId !== undefined) await rest.waitTask(taskId, PATIENCE_MS);
    }
    await freed();
    expect(await listed()).toEqual([]);
  }
  await sound();
});
