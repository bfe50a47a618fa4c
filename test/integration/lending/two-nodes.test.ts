/** A disk of a VM on one node, attached to a VM on another one that shares its data pool: real controller and agents. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Guest } from '../../lab/guest.ts';
import type { LabNode } from '../../lab/node.ts';
import type { Rest } from '../../lab/rest.ts';
import { waitFor } from '../../lab/run.ts';
import type { World } from '../../lab/world.ts';
import { deviceOf } from './lab.ts';
import { type Json, PATIENCE_MS, STATE, TwoNodesLab } from './two-nodes-lab.ts';

let lab: TwoNodesLab;
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
  lab = await TwoNodesLab.start();
  ({ world, rest, home, afar, owner, reader, ownerId, readerId, disk } = lab);
});
afterAll(() => lab?.stop());

test('is read there as it was at one instant, is never written to, and leaves nothing', async () => {
  const before = lab.sharedFiles();
  await lab.write('one');
  const body = await rest.ok<Json>('POST', lab.attachPath, { vdisk: disk });
  expect(body).toMatchObject({
    vdisk: disk,
    attached: { target_dev: 'vda', target_bus: 'virtio', driver_cache: 'none', readonly: true },
    snapshot: { verbose_name: STATE },
  });
  expect(await owner.snapshots()).toEqual([STATE]);
  await lab.write('two');
  expect(await lab.read()).toBe('one');
  await expect(reader.sh(`dd if=/dev/zero of=/dev/${deviceOf(disk)} count=1 conv=fsync`)).rejects.toThrow();
  expect(await lab.listed()).toEqual([disk]);
  const refused = await rest.send<Json>('POST', '/api/domains/backup/', { domain: ownerId });
  expect([refused.status, refused.body.errors[0].msg_key]).toEqual([409, 'vdisk_attached_elsewhere']);

  const end = await rest.ok<Json>('POST', lab.detachPath, { vdisk: disk });
  expect(end).toEqual({ vdisk: disk, domain: readerId, snapshot: null });
  expect([await owner.snapshots(), await lab.listed()]).toEqual([[], []]);
  expect(lab.sharedFiles()).toEqual(before);
  expect(await owner.sh('cat /mnt/vda/mark')).toBe('two\n');
  await lab.sound();
});

test('is refused with the reason when the other node cannot reach its file', async () => {
  const hidden = await world.defineTiny({ name: 'hidden', node: home });
  const id = await world.known(hidden);
  const [own] = (await rest.get<Json>(`/api/domains/${id}/`)).vdisks;
  const { status, body } = await rest.send<Json>('POST', lab.attachPath, { vdisk: own.id });
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
  await lab.freed();
  await lab.sound();
});

test('goes back although its node was away when it was detached', async () => {
  await rest.ok('POST', lab.attachPath, { vdisk: disk });
  await world.agent.daemon.kill();
  const away = async () => (await rest.get<Json>(`/api/nodes/${world.agent.nodeId}/`)).status === 'FAILED';
  await waitFor('the loss of the node', away, PATIENCE_MS);
  const { taskId } = await rest.begin(lab.detachPath, { vdisk: disk });
  expect(await rest.waitTask(taskId)).toMatchObject({
    status: 'SUCCESS',
    detail: { message: expect.stringContaining('asked again later') },
  });
  expect(await lab.listed()).toEqual([]);
  expect(await owner.snapshots()).toEqual([STATE]);
  await world.agent.daemon.start();
  await world.connected();
  await lab.freed();
  await lab.sound();
});
