/**
 * The lending endpoints driven with requests word for word as the specification (4.1 to 4.3, 5) has them, sent as they
 * stand over a TLS socket, to a real controller, agent and libvirtd. Answers are held against 2.5 field by field.
 */
import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Guest } from '../../lab/guest.ts';
import { waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';

const STATE = 'vdisks_attached_to_another_domains';

/** As recorded from a client; `<…>` is filled in. */
const ATTACH = `POST /api/domains/<vm_id>/attach-vdisk/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"vdisk": "<vdisk>"}`;

const ATTACH_WITH_MORE = `POST /api/domains/<vm_id>/attach-vdisk/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"vdisk": "<vdisk>", "target_bus": "scsi", "driver_cache": "writeback", "readonly": false, "shareable": 1, "hints": null}`;

const ATTACH_THIN_CLONE = `POST /api/domains/<vm_id>/attach-vdisk/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"vdisk": "<vdisk>", "thin_clone": "<thin_clone>"}`;

const DETACH = `POST /api/domains/<vm_id>/detach-vdisk/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"vdisk": "<vdisk>"}`;

const DETACH_THIN_CLONE = `POST /api/domains/<vm_id>/detach-vdisk/ HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>
Content-Type: application/json

{"vdisk": "<vdisk>", "thin_clone": "<thin_clone>"}`;

const LIST = `GET /api/vdisks/?another_domain=<vm_id> HTTP/1.1
Authorization: jwt <ACCESS_TOKEN>

`;

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

let world: World;
let owner: Guest;
let reader: Guest;
let ownerId: string;
let readerId: string;
let token: string;
let disks: { id: string; verbose_name: string; size: number }[];

beforeAll(async () => {
  world = await startWorld({ controller: true });
  const { rest } = world;
  owner = await world.defineTiny({ name: 'first', dataDisks: [{ sizeMiB: 64 }, { sizeMiB: 32 }] });
  reader = await world.defineTiny({ name: 'second' });
  for (const guest of [owner, reader]) await guest.start();
  for (const guest of [owner, reader]) await guest.waitForAgent();
  ownerId = await world.known(owner);
  readerId = await world.known(reader);
  const ready = async () => {
    const records = await Promise.all([ownerId, readerId].map(id => rest.get<Json>(`/api/domains/${id}/`)));
    return records.every(record => record.guest_utils.qemu_state === true);
  };
  await waitFor('the controller to know that both guests answer', ready, 120_000);
  disks = (await rest.get<Json>(`/api/domains/${ownerId}/`)).vdisks;
  const user = { username: 'external-backup', password: 'a long password', role: 'backup_service' };
  await rest.ok('POST', '/api/users/', user);
  const client = await world.controller.anonymous().login(user.username, user.password);
  token = client.token!;
});
afterAll(() => world?.stop());

/** Sends a recorded request and reads the whole answer. */
async function send(
  recorded: string,
  values: Record<string, string>,
): Promise<{ status: number; body: Json }> {
  const filled = Object.entries({ ACCESS_TOKEN: token, vm_id: readerId, ...values }).reduce(
    (request, [name, value]) => request.replaceAll(`<${name}>`, value),
    recorded,
  );
  const [head, body = ''] = filled.split('\n\n', 2) as [string, string?];
  const { hostname, port, host } = new URL(world.controller.url);
  const length = body === '' ? [] : [`Content-Length: ${Buffer.byteLength(body)}`];
  const lines = [...head.split('\n'), `Host: ${host}`, 'Connection: close', ...length, '', body];
  const ca = readFileSync(world.controller.caFile);
  const socket = connect({ host: hostname, port: Number(port), ca });
  socket.write(lines.join('\r\n'));
  const answer = await text(socket);
  const at = answer.indexOf('\r\n\r\n');
  return { status: Number(answer.split(' ', 2)[1]), body: JSON.parse(answer.slice(at + 4)) };
}

const listed = async () => (await send(LIST, {})).body;
const states = () => owner.snapshots();
const diskRecord = (id: string) => world.rest.get<Json>(`/api/vdisks/${id}/`);

test('attach: the disk of the first VM, as of one state, read-only, whatever else was asked', async () => {
  const { status, body } = await send(ATTACH_WITH_MORE, { vdisk: disks[0]!.id });
  expect([status, body]).toEqual([
    200,
    {
      vdisk: disks[0]!.id,
      attached: {
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        target_dev: 'vdb',
        target_bus: 'virtio',
        driver_cache: 'none',
        readonly: true,
      },
      snapshot: {
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        verbose_name: STATE,
        description: expect.any(String),
        parent: null,
        created: expect.stringMatching(/Z$/),
        current: true,
        memory: false,
        backup: null,
        disks: ['vda', 'vdb'],
      },
    },
  ]);
  expect(body.attached.id).not.toBe(disks[0]!.id);
  expect(await states()).toEqual([STATE]);
  const second = await send(ATTACH, { vdisk: disks[1]!.id });
  expect(second).toMatchObject({
    status: 200,
    body: { vdisk: disks[1]!.id, attached: { target_dev: 'vdc' } },
  });
  expect(second.body.snapshot).toEqual(body.snapshot);
  const own = (await world.rest.get<Json>(`/api/domains/${readerId}/`)).vdisks;
  expect(own.map((disk: Json) => disk.target_dev)).toEqual(['vda']);
});

test('list: the originals, with exactly the fields of a virtual disk', async () => {
  const body = await listed();
  expect({ ...body, results: null }).toEqual({ count: 2, next: null, previous: null, results: null });
  const pool = world.node.pool(0);
  for (const [index, disk] of disks.entries()) {
    expect(body.results.find((one: Json) => one.id === disk.id)).toEqual({
      id: disk.id,
      status: 'ACTIVE',
      verbose_name: disk.verbose_name,
      size: [64, 32][index]! * 1024 * 1024,
      used: expect.any(Number),
      datapool: { id: pool.uuid, verbose_name: pool.name, type: 'local' },
      domain: { id: ownerId, verbose_name: 'first' },
      hints: 0,
      shareable: false,
    });
  }
  // not of the fresh layers alone, which the lending's state made
  for (const one of body.results) expect(one.used).toBeGreaterThan(256 * 1024);
  const page = await send(LIST.replace('<vm_id>', '<vm_id>&limit=1'), {});
  expect(page.body).toMatchObject({ count: 2, previous: null, results: [expect.anything()] });
  expect(page.body.next).toContain(`another_domain=${readerId}`);
  const none = await send(LIST, { vm_id: ownerId });
  expect(none).toEqual({ status: 200, body: { count: 0, next: null, previous: null, results: [] } });
});

test('one disk has its devices and saved states too', async () => {
  const shown = await diskRecord(disks[0]!.id);
  const inList = (await listed()).results.find((one: Json) => one.id === disks[0]!.id);
  expect(shown).toEqual({
    ...inList,
    virtual_size: 64 * 1024 * 1024,
    target_bus: 'virtio',
    target_dev: 'vda',
    driver_type: 'qcow2',
    driver_cache: '',
    readonly: false,
    snapshots: [{ id: expect.any(String), verbose_name: STATE }],
    permissions: ['attach'],
  });
});

test('while disks are attached elsewhere the first VM refuses what needs a state, by name', async () => {
  const { rest } = world;
  const path = `/api/domains/${ownerId}/snapshots/`;
  const refusals = [
    await rest.send<Json>('POST', path, { verbose_name: 'mine' }),
    await rest.send<Json>('POST', '/api/domains/backup/', { domain: ownerId }),
    await rest.send<Json>('POST', `/api/domains/${ownerId}/remove/`, { force: true }),
  ];
  const [state] = await rest.list<Json>(path);
  refusals.push(await rest.send<Json>('POST', `${path}${state.id}/remove/`, {}));
  for (const { status, body } of refusals) {
    expect([status, body.errors[0].code, body.errors[0].msg_key]).toEqual([
      409,
      '40901',
      'vdisk_attached_elsewhere',
    ]);
    expect(body.detail).toContain('second');
  }
});

test('detach: by the original only; the state goes with the last disk', async () => {
  const attached = await send(ATTACH, { vdisk: disks[0]!.id });
  expect(attached).toMatchObject({ status: 409, body: { errors: [{ msg_key: 'vdisk_attached_already' }] } });
  const xml = await reader.xml();
  expect(xml).toContain(disks[0]!.id.replaceAll('-', ''));
  const { rest } = world;
  const [task] = (await rest.get<Json>(`/api/tasks/?entity=${disks[0]!.id}&status=SUCCESS`)).results;
  const { response } = await rest.get<Json>(`/api/tasks/${task.id}/response/`);
  const wrong = await send(DETACH, { vdisk: response.attached.id });
  expect(wrong).toMatchObject({ status: 400, body: { errors: [{ msg_key: 'attached_object_given' }] } });
  expect(wrong.body.detail).toContain(disks[0]!.id);

  const first = await send(DETACH, { vdisk: disks[0]!.id });
  expect(first.body).toEqual({
    vdisk: disks[0]!.id,
    domain: readerId,
    snapshot: expect.objectContaining({ verbose_name: STATE }),
  });
  expect((await listed()).count).toBe(1);
  const last = await send(DETACH, { vdisk: disks[1]!.id });
  expect(last).toEqual({ status: 200, body: { vdisk: disks[1]!.id, domain: readerId, snapshot: null } });
  expect([await listed(), await states()]).toEqual([
    { count: 0, next: null, previous: null, results: [] },
    [],
  ]);
  const nothing = await send(DETACH, { vdisk: disks[0]!.id });
  expect(nothing).toMatchObject({ status: 409, body: { errors: [{ msg_key: 'vdisk_not_attached' }] } });
});

test('a guest that does not let go: the error of the specification, nothing lost, and it goes by itself', async () => {
  await send(ATTACH, { vdisk: disks[0]!.id });
  await world.rest.ok('POST', `/api/domains/${readerId}/suspend/`, {});
  const { status, body } = await send(DETACH, { vdisk: disks[0]!.id });
  expect([status, body.errors[0].msg_key]).toEqual([502, 'device_did_not_detach']);
  expect(body.detail).toContain(`Domain ${readerId} device did not detach`);
  expect((await listed()).count).toBe(1);
  expect(await states()).toEqual([STATE]);
  await world.rest.ok('POST', `/api/domains/${readerId}/resume/`, {});
  const gone = async () => {
    if ((await listed()).count === 0) return true;
    await send(DETACH, { vdisk: disks[0]!.id });
    return undefined;
  };
  await waitFor('the guest to let the disk go', gone, 180_000);
  await waitFor('the end of the state', async () => (await states()).length === 0, 180_000);
});

test('a thin clone: its own state with thin_clone, its template without', async () => {
  const { rest } = world;
  const base = await world.defineTiny({ name: 'base', dataDisks: [{ sizeMiB: 32 }] });
  const baseId = await world.known(base);
  await rest.ok('PUT', `/api/domains/${baseId}/template/`, { template: true });
  const clone = await rest.ok<Json>('POST', `/api/domains/${baseId}/clone/`, {
    verbose_name: 'clone',
    thin: true,
  });
  expect(clone).toMatchObject({ thin: true, parent: { id: baseId, verbose_name: 'base' }, vdisks_count: 1 });
  const [own] = clone.vdisks;
  const values = { vdisk: own.id, thin_clone: clone.id };
  const attached = await send(ATTACH_THIN_CLONE, values);
  expect(attached).toMatchObject({ status: 200, body: { vdisk: own.id, snapshot: { verbose_name: STATE } } });
  expect((await listed()).results).toMatchObject([
    { id: own.id, domain: { id: clone.id, verbose_name: 'clone' } },
  ]);
  const back = await send(DETACH_THIN_CLONE, values);
  expect(back.body).toEqual({ vdisk: own.id, domain: readerId, snapshot: null });

  const [templates] = (await rest.get<Json>(`/api/domains/${baseId}/`)).vdisks;
  const whole = await send(ATTACH, { vdisk: templates.id });
  expect(whole).toMatchObject({ status: 200, body: { vdisk: templates.id, snapshot: null } });
  expect((await listed()).results).toMatchObject([{ id: templates.id, domain: { id: baseId } }]);
  expect((await send(DETACH, { vdisk: templates.id })).status).toBe(200);
  const warned = await send(ATTACH, { vdisk: own.id });
  expect(warned).toMatchObject({
    status: 200,
    body: { vdisk: templates.id, warnings: [expect.any(String)] },
  });
  expect((await send(DETACH, { vdisk: own.id })).status).toBe(200);
  expect((await listed()).count).toBe(0);
  const wrong = await send(ATTACH_THIN_CLONE, { vdisk: disks[0]!.id, thin_clone: ownerId });
  expect(wrong).toMatchObject({ status: 400, body: { errors: [{ msg_key: 'invalid_thin_clone' }] } });
});

test('the deletion of the second VM ends all that it has', async () => {
  for (const { id } of disks) expect((await send(ATTACH, { vdisk: id })).status).toBe(200);
  await world.rest.action(`/api/domains/${readerId}/remove/`, { full: true, force: true });
  await waitFor('the end of the state', async () => (await states()).length === 0, 180_000);
  const free = async () =>
    (await world.rest.get<Json>(`/api/domains/${ownerId}/`)).permissions.includes('snapshot');
  await waitFor('the first VM to be free', free, 120_000);
});
