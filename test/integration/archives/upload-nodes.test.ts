/** Uploads through a real controller that is killed meanwhile, to two real nodes that share a pool. */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { virtkeep } from '../../contract/rest/command.ts';
import type { LabAgent } from '../../lab/agent.ts';
import { run, waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';

const BYTES = randomBytes(4 * MiB + 5);
const SHA256 = createHash('sha256').update(BYTES).digest('hex');
const TUS = { 'tus-resumable': '1.0.0' };
const PATH = '/api/library/upload/';
const PART = 'application/offset+octet-stream';

let world: World;
let shared: { uuid: string; path: string };

beforeAll(async () => {
  world = await startWorld({ controller: true, nodes: 2 });
  shared = world.node.pool('shared');
});
afterAll(() => world?.stop());

const backups = (...names: string[]) => join(shared.path, 'backups', ...names);
const base64 = (text: string) => Buffer.from(text).toString('base64');

/** Answer with the key of its error; '': it is none. */
async function call(method: string, path: string, headers: Record<string, string> = {}, body?: Buffer) {
  type Errors = { errors?: { msg_key: string; detail: string }[]; task?: string };
  const answer = await world.rest.send<Errors>(method, path, body, { ...TUS, ...headers });
  const [error] = answer.body.errors ?? [];
  return { ...answer, key: error?.msg_key ?? '', detail: error?.detail ?? '' };
}

const create = (filename: string) =>
  call('POST', PATH, {
    'upload-length': String(BYTES.length),
    'upload-metadata': `datapool ${base64(shared.uuid)},filename ${base64(filename)},sha256 ${base64(SHA256)}`,
  });

const patch = (at: string, offset: number, end = BYTES.length) =>
  call('PATCH', at, { 'content-type': PART, 'upload-offset': String(offset) }, BYTES.subarray(offset, end));

/** Where it is, and the id of its task. */
async function begun(filename: string): Promise<{ at: string; task: string }> {
  const { status, headers, body } = await create(filename);
  expect(status).toBe(201);
  return { at: String(headers.location), task: body.task! };
}

/** Begins to send, and leaves it at that. */
function sendSome(at: string, size: number, { method = 'PATCH', ...own }: Record<string, string> = {}): void {
  const request = httpsRequest(new URL(at, world.rest.url), {
    method,
    ca: readFileSync(world.controller.caFile),
    headers: {
      ...(method === 'PATCH' && { ...TUS, 'content-type': PART, 'upload-offset': '0' }),
      ...{ authorization: `jwt ${world.rest.token}`, 'content-length': String(BYTES.length) },
      ...own,
    },
  });
  request.on('error', () => {});
  request.write(BYTES.subarray(0, size));
}

const hiddenSize = (directory = '') => {
  const [hidden] = readdirSync(backups(directory)).filter(name => name.endsWith('.upload'));
  return hidden === undefined ? 0 : statSync(backups(directory, hidden)).size;
};

interface Told {
  verbose_name: string;
  status: string;
}

test('a controller that is killed while bytes come: the client goes on, and the task ends well', async () => {
  const { at, task } = await begun('killed.ova');
  sendSome(at, 2 * MiB);
  await waitFor('bytes on the disk', () => hiddenSize() >= 2 * MiB, 60_000);
  await world.controller.daemon.kill();
  await world.controller.daemon.start();
  for (const agent of world.agents) await world.connected(agent);
  expect((await world.rest.task(task)).status).toBe('IN_PROGRESS');
  // the node may be about to note that its sender has left
  const isAllNoted = async () => Number((await call('HEAD', at)).headers['upload-offset']) === 2 * MiB;
  await waitFor('the offset', isAllNoted, 60_000);
  expect((await patch(at, 2 * MiB)).status).toBe(204);
  expect(readFileSync(backups('killed.ova')).equals(BYTES)).toBe(true);
  expect(await world.rest.waitTask(task)).toMatchObject({ status: 'SUCCESS', progress: 100 });
  expect((await world.rest.get(at)) as object).toMatchObject({ status: 'DONE', sha256: SHA256 });
  expect(readdirSync(backups())).toEqual(['killed.ova']);
});

test('a controller that is killed while a file comes in one request: nothing is left', async () => {
  const query = new URLSearchParams({ datapool: shared.uuid, filename: 'whole/shop.vmdk' });
  sendSome(`${PATH}?${query}`, 2 * MiB, { method: 'POST', 'content-type': 'application/octet-stream' });
  const isThere = () => existsSync(backups('whole')) && hiddenSize('whole') >= MiB;
  await waitFor('bytes on the disk', isThere, 60_000);
  await world.controller.daemon.kill();
  await waitFor('its end', () => !existsSync(backups('whole')), 60_000);
  await world.controller.daemon.start();
  for (const agent of world.agents) await world.connected(agent);
  const ended = await waitFor(
    'the end of its task',
    async () => {
      const { results } = await world.rest.get<{ results: Told[] }>('/api/tasks/');
      return results.find(task => task.verbose_name.includes('whole/') && task.status !== 'IN_PROGRESS');
    },
    60_000,
  );
  // who sent it has left
  expect(ended.status).toBe('CANCELED');
  expect(readdirSync(backups())).toEqual(['killed.ova']);
});

test('a name on its way through a node that is gone: the other one says so, and takes it when its file was removed', async () => {
  const first = await begun('dir/shop.vmdk');
  await patch(first.at, 0, MiB);
  const [partial] = readdirSync(backups('dir'));
  const owner = await receiverOf(first.at);
  await owner.daemon.kill();
  await gone(owner);
  const refused = await create('dir/shop.vmdk');
  expect([refused.status, refused.key]).toEqual([409, 'upload_under_way']);
  // who reads it can set it right
  expect(refused.detail).toContain(backups('dir', partial!));
  expect(refused.detail).toContain('gone for good');
  expect((await call('DELETE', first.at)).key).toBe('node_unreachable');
  rmSync(backups('dir', partial!));
  const second = await begun('dir/shop.vmdk');
  await patch(second.at, 0, MiB);
  // should it come back all the same, it harms nothing of the other one
  await owner.daemon.start();
  await world.connected(owner);
  expect((await create('dir/shop.vmdk')).key).toBe('upload_under_way');
  expect((await patch(first.at, MiB)).status).toBeGreaterThanOrEqual(400);
  expect((await call('DELETE', first.at)).status).toBe(204);
  expect((await call('HEAD', first.at)).status).toBe(404);
  expect((await patch(second.at, MiB)).status).toBe(204);
  expect(readdirSync(backups('dir'))).toEqual(['shop.vmdk']);
  expect(readFileSync(backups('dir/shop.vmdk')).equals(BYTES)).toBe(true);
});

test('a disk image of the user becomes a VM by one command', async () => {
  const raw = join(world.dir, 'mine.raw');
  const image = join(world.dir, 'mine.vmdk');
  writeFileSync(raw, BYTES.subarray(0, 2 * MiB));
  await run([
    'qemu-img',
    'convert',
    '-f',
    'raw',
    '-O',
    'vmdk',
    '-o',
    'subformat=streamOptimized',
    raw,
    image,
  ]);
  const node = world.agent.node.name;
  const argv = [
    'import',
    'disk',
    image,
    '--name',
    'mine',
    '--memory',
    '64MiB',
    '--cpus',
    '1',
    '--node',
    node,
  ];
  process.env.VIRTKEEP_CA = world.controller.caFile;
  const done = await virtkeep({ url: world.rest.url, token: world.rest.token! }, argv);
  expect(done.stderr).toContain('Uploading mine.vmdk');
  expect([done.code, done.stdout]).toEqual([0, expect.stringMatching(/^mine {2}/)]);
  expect(await world.node.virsh('domblklist', 'mine')).toContain('vda');
  const base = world.node.pool(0).path;
  expect(readdirSync(join(base, 'backups'))).toEqual(['mine.vmdk']);
});

/** The agent whose log tells of the upload. */
async function receiverOf(at: string): Promise<LabAgent> {
  const id = at.split('/').at(-2)!;
  return waitFor('its node', () => world.agents.find(({ daemon }) => daemon.log().includes(id)), 60_000);
}

/** The controller knows that a node is away. */
async function gone({ nodeId }: LabAgent): Promise<void> {
  const status = async () => (await world.rest.get<{ status: string }>(`/api/nodes/${nodeId}/`)).status;
  await waitFor('the loss of the node', async () => (await status()) !== 'ACTIVE', 60_000);
}
