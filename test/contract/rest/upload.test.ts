/** Uploads of backup files over REST, with the agent's own service for them behind the server: on real directories, without a hypervisor. */
import { createHash, randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { PoolRecord } from '../../../agent/src/pools/index.ts';
import { SmallDisk } from '../../lab/small-disk.ts';
import type { RestApp } from './app.ts';
import { until } from './nodes-world.ts';
import { HOUR_MS, UploadNode } from './upload-node.ts';

const MiB = 1024 * 1024;
const BYTES = randomBytes(3 * MiB + 17);
const SHA256 = createHash('sha256').update(BYTES).digest('hex');

let node: UploadNode;
let rest: RestApp;
let small: SmallDisk;
let url: string;

beforeAll(async () => {
  small = await SmallDisk.mount(2);
  node = await UploadNode.start();
  ({ rest, url } = node);
});
afterAll(async () => {
  await node.stop();
  await small.unmount();
});

let pool: PoolRecord;
let directory: string;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-upload-'));
  pool = await node.addPool(directory);
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const headers = () => ({ authorization: `jwt ${rest.tokens.administrator}` });
const TUS = { 'tus-resumable': '1.0.0' };
const base64 = (text: string | Buffer) => Buffer.from(text).toString('base64');
const backups = (path = directory) => join(path, 'backups');
const names = (path = directory) => (existsSync(backups(path)) ? readdirSync(backups(path)).sort() : []);

function whole(filename: string, body: Buffer, more: Record<string, string> = {}): Promise<Response> {
  const query = new URLSearchParams({ datapool: pool.id, filename, ...more });
  return fetch(`${url}/api/library/upload/?${query}`, {
    method: 'POST',
    headers: { ...headers(), 'content-type': 'application/octet-stream' },
    body,
  });
}

function create(filename: string, length: number, more: Record<string, string> = {}): Promise<Response> {
  const metadata = Object.entries({ datapool: pool.id, filename, ...more });
  return fetch(`${url}/api/library/upload/`, {
    method: 'POST',
    headers: {
      ...headers(),
      ...TUS,
      'upload-length': String(length),
      'upload-metadata': metadata.map(([name, value]) => `${name} ${base64(value)}`).join(','),
    },
  });
}

async function begun(filename: string, length: number, more: Record<string, string> = {}): Promise<string> {
  const answer = await create(filename, length, more);
  expect([answer.status, answer.headers.get('tus-resumable')]).toEqual([201, '1.0.0']);
  expect(Date.parse(answer.headers.get('upload-expires')!)).toBeGreaterThan(Date.now());
  return answer.headers.get('location')!;
}

function patch(
  at: string,
  offset: number,
  body: Buffer,
  more: Record<string, string> = {},
): Promise<Response> {
  return fetch(url + at, {
    method: 'PATCH',
    headers: {
      ...headers(),
      ...TUS,
      'content-type': 'application/offset+octet-stream',
      'upload-offset': String(offset),
      ...more,
    },
    body,
  });
}

async function offsetOf(at: string): Promise<number> {
  const answer = await fetch(url + at, { method: 'HEAD', headers: { ...headers(), ...TUS } });
  expect(answer.status).toBe(200);
  return Number(answer.headers.get('upload-offset'));
}

/** Begins to send, and keeps the connection open. @returns what cuts it */
function sendSome(at: string, offset: number, body: Buffer, length: number): () => void {
  const request = httpRequest(url + at, {
    method: 'PATCH',
    headers: {
      ...headers(),
      ...TUS,
      'content-type': 'application/offset+octet-stream',
      'upload-offset': String(offset),
      'content-length': String(length),
    },
  });
  request.on('error', () => {});
  request.write(body);
  return () => request.destroy();
}

const keyOf = async (answer: Response) => {
  const body = (await answer.json()) as { errors: { msg_key: string }[] };
  return [answer.status, body.errors[0]!.msg_key];
};

const remove = (at: string) => fetch(url + at, { method: 'DELETE', headers: { ...headers(), ...TUS } });
const taskOf = async (at: string) => ((await rest.call('GET', at)).body as { task: string }).task;
const idOf = (at: string) => at.split('/').at(-2)!;

/** Nothing of an upload is left, and nobody is busy with one. */
async function left(expected: string[] = [], path = directory): Promise<void> {
  await until(() => node.runner.activeCount === 0);
  expect(names(path)).toEqual(expected);
}

describe('in one request', () => {
  test('a file gets its name, its hash and its record', async () => {
    const answer = await whole('vm.xml', BYTES, { sha256: SHA256.toUpperCase() });
    const body = (await answer.json()) as Record<string, never>;
    expect(answer.status).toBe(200);
    expect(body).toMatchObject({ status: 'DONE', size: BYTES.length, offset: BYTES.length, sha256: SHA256 });
    expect(body).toMatchObject({ file: { filename: 'vm.xml', datapool: { id: pool.id } } });
    expect(readFileSync(join(backups(), 'vm.xml')).equals(BYTES)).toBe(true);
    await left(['vm.xml']);
  });

  test('a form with one file', async () => {
    const form = new FormData();
    form.set('file', new Blob([BYTES]), 'other.ova');
    const query = new URLSearchParams({ datapool: pool.id, filename: 'shop/shop.vmdk' });
    const answer = await fetch(`${url}/api/library/upload/?${query}`, {
      method: 'POST',
      headers: headers(),
      body: form,
    });
    const { file } = (await answer.json()) as { file: { type: string } };
    expect([answer.status, file.type]).toEqual([200, 'disk']);
    expect(readFileSync(join(backups(), 'shop/shop.vmdk')).equals(BYTES)).toBe(true);
  });

  test('with another hash nothing is kept', async () => {
    expect(await keyOf(await whole('vm.xml', BYTES, { sha256: '0'.repeat(64) }))).toEqual([
      400,
      'upload_hash',
    ]);
    expect(await keyOf(await whole('dir/x.vmdk', BYTES, { sha256: '0'.repeat(64) }))).toEqual([
      400,
      'upload_hash',
    ]);
    await left();
  });

  test('a name that is taken, or none, is refused', async () => {
    mkdirSync(backups());
    writeFileSync(join(backups(), 'vm.xml'), 'old');
    expect(await keyOf(await whole('vm.xml', BYTES))).toEqual([409, 'file_exists']);
    for (const name of ['../x.tar', '/x.tar', '.x.tar', 'x.mf', 'x.sh', 'a/b/x.tar'])
      expect(await keyOf(await whole(name, BYTES))).toEqual([400, 'invalid_name']);
    expect(readFileSync(join(backups(), 'vm.xml'), 'utf8')).toBe('old');
    await left(['vm.xml']);
  });

  test('that breaks off leaves nothing', async () => {
    const query = new URLSearchParams({ datapool: pool.id, filename: 'dir/x.ova' });
    const request = httpRequest(`${url}/api/library/upload/?${query}`, {
      method: 'POST',
      headers: { ...headers(), 'content-type': 'application/octet-stream', 'content-length': '9000000' },
    });
    request.on('error', () => {});
    request.write(BYTES);
    await until(() => node.runner.activeCount === 1);
    request.destroy();
    await left();
  });

  test.each([
    ['pool_read_only', { readonly: true }],
    ['pool_outside', { outside: true }],
    ['pool_not_mounted', { mounted: false }],
  ])('into no pool that refuses: %s', async (key, given) => {
    const isKnown = await node.addPool(directory, given);
    // the controller has not heard of it yet: the node refuses by itself
    const isUnknown = await node.addPool(directory, given, {});
    for (const { id: datapool } of [isKnown, isUnknown]) {
      const [status, found] = await keyOf(await whole('x.tar', BYTES, { datapool }));
      expect([status, key]).toEqual([
        409,
        found === 'pool_not_active' && datapool === isKnown.id ? key : found,
      ]);
      expect((await keyOf(await create('x.tar', 4, { datapool })))[0]).toBe(409);
    }
    expect(existsSync(backups())).toBe(false);
  });

  test('into no pool without room', async () => {
    const at = (datapool: string) => whole('x.tar', BYTES, { datapool });
    const tight = await node.addPool(small.path);
    expect((await keyOf(await at(tight.id)))[1]).toBe('pool_no_space');
    // of a form the size is not known before
    const form = new FormData();
    form.set('file', new Blob([BYTES]), 'x.tar');
    const query = new URLSearchParams({ datapool: tight.id, filename: 'x.tar' });
    const full = await fetch(`${url}/api/library/upload/?${query}`, {
      method: 'POST',
      headers: headers(),
      body: form,
    });
    expect((await keyOf(full))[1]).toBe('disk_full');
    await left([], small.path);
  });
});

describe('in parts (tus)', () => {
  test('what is spoken', async () => {
    const answer = await fetch(`${url}/api/library/upload/`, { method: 'OPTIONS' });
    expect(answer.status).toBe(204);
    expect(answer.headers.get('tus-extension')).toBe('creation,expiration,termination,checksum');
    const other = await fetch(`${url}/api/library/upload/`, {
      method: 'POST',
      headers: { ...headers(), 'tus-resumable': '0.2.2' },
    });
    expect(await keyOf(other)).toEqual([412, 'tus_version']);
  });

  test('parts make the file, and it is shown as a task with progress', async () => {
    const at = await begun('shop.ova', BYTES.length, { sha256: SHA256 });
    const task = await taskOf(at);
    expect(task).toBe(idOf(at));
    expect(await offsetOf(at)).toBe(0);
    expect(names()).toEqual([expect.stringMatching(/^\.virtkeep-.*\.upload$/)]);
    const first = await patch(at, 0, BYTES.subarray(0, 2 * MiB));
    expect([first.status, first.headers.get('upload-offset')]).toEqual([204, String(2 * MiB)]);
    await until(
      async () => ((await rest.call('GET', `/api/tasks/${task}/`)).body as { progress: number }).progress > 0,
    );
    expect(statSync(join(backups(), names()[0]!)).size).toBe(2 * MiB);
    const last = await patch(at, 2 * MiB, BYTES.subarray(2 * MiB));
    expect([last.status, last.headers.get('upload-offset')]).toEqual([204, String(BYTES.length)]);
    expect(readFileSync(join(backups(), 'shop.ova')).equals(BYTES)).toBe(true);
    // whoever lost the answer hears it again
    expect(await offsetOf(at)).toBe(BYTES.length);
    const { body } = await rest.call('GET', at);
    expect(body).toMatchObject({
      status: 'DONE',
      sha256: SHA256,
      task: null,
      file: { filename: 'shop.ova' },
    });
    const ended = (await rest.call('GET', `/api/tasks/${task}/`)).body as { status: string };
    expect(ended.status).toBe('SUCCESS');
    expect((await remove(at)).status).toBe(204);
    await left(['shop.ova']);
  });

  test('an empty file', async () => {
    await begun('empty.xml', 0);
    await left(['empty.xml']);
  });

  test('a cut connection: what came stays, and it goes on', async () => {
    const at = await begun('a.tar', BYTES.length);
    const cut = sendSome(at, 0, BYTES.subarray(0, MiB), BYTES.length);
    await until(async () => statSync(join(backups(), names()[0]!)).size >= MiB);
    // a second writer at once
    expect(await keyOf(await patch(at, 0, BYTES))).toEqual([409, 'upload_busy']);
    cut();
    await until(async () => (await offsetOf(at)) > 0);
    await until(async () => {
      const offset = await offsetOf(at);
      return (await patch(at, offset, BYTES.subarray(offset))).status === 204;
    });
    expect(readFileSync(join(backups(), 'a.tar')).equals(BYTES)).toBe(true);
    await left(['a.tar']);
  });

  test('another offset, too much, and a checksum of a part', async () => {
    const at = await begun('a.tar', 4);
    expect(await keyOf(await patch(at, 1, Buffer.from('b')))).toEqual([409, 'upload_offset']);
    expect((await keyOf(await patch(at, 0, Buffer.from('abcde'))))[0]).toBe(400);
    expect(await offsetOf(at)).toBe(0);
    const digest = (text: string) => base64(createHash('sha1').update(text).digest());
    const bad = await patch(at, 0, Buffer.from('ab'), { 'upload-checksum': `sha1 ${digest('xx')}` });
    expect(await keyOf(bad)).toEqual([460, 'upload_checksum']);
    expect(await offsetOf(at)).toBe(0);
    expect(
      (await patch(at, 0, Buffer.from('ab'), { 'upload-checksum': `sha1 ${digest('ab')}` })).status,
    ).toBe(204);
    expect((await patch(at, 2, Buffer.from('cd'))).status).toBe(204);
    const { body } = await rest.call('GET', at);
    expect(body).toMatchObject({ sha256: createHash('sha256').update('abcd').digest('hex') });
    expect(readFileSync(join(backups(), 'a.tar'), 'utf8')).toBe('abcd');
  });

  test('another hash of the whole: nothing is kept', async () => {
    const at = await begun('a.tar', 4, { sha256: '0'.repeat(64) });
    expect(await keyOf(await patch(at, 0, Buffer.from('abcd')))).toEqual([400, 'upload_hash']);
    expect((await patch(at, 4, Buffer.from(''))).status).toBe(404);
    await left();
  });

  test('of two uploads of one name one begins, and a file that came meanwhile stays', async () => {
    const at = await begun('dir/a.vmdk', 4);
    expect(await keyOf(await create('dir/a.vmdk', 4))).toEqual([409, 'upload_under_way']);
    writeFileSync(join(backups(), 'dir/a.vmdk'), 'mine');
    expect(await keyOf(await patch(at, 0, Buffer.from('abcd')))).toEqual([409, 'file_exists']);
    await until(() => node.runner.activeCount === 0);
    expect(readdirSync(join(backups(), 'dir'))).toEqual(['a.vmdk']);
    expect(readFileSync(join(backups(), 'dir/a.vmdk'), 'utf8')).toBe('mine');
  });

  test('ended by DELETE, and by a cancel of its task', async () => {
    const one = await begun('dir/a.vmdk', 4);
    await patch(one, 0, Buffer.from('ab'));
    expect((await remove(one)).status).toBe(204);
    await left();
    expect(await keyOf(await patch(one, 2, Buffer.from('cd')))).toEqual([404, 'upload_not_found']);
    const two = await begun('a.tar', 4);
    await rest.call('PUT', `/api/tasks/${await taskOf(two)}/cancel/`, { body: {} });
    await left();
    await until(async () => (await rest.call('GET', `/api/tasks/${idOf(two)}/`)).body.status === 'CANCELED');
  });

  test('no byte for too long', async () => {
    const at = await begun('a.tar', 4);
    node.clock.atMs += HOUR_MS / 2;
    await patch(at, 0, Buffer.from('ab'));
    node.clock.atMs += HOUR_MS - 1;
    await node.uploads.sweep(new AbortController().signal);
    expect(await offsetOf(at)).toBe(2);
    node.clock.atMs += 1;
    await node.uploads.sweep(new AbortController().signal);
    await left();
    expect(await keyOf(await patch(at, 2, Buffer.from('cd')))).toEqual([404, 'upload_not_found']);
  });

  test('no byte for too long, with stops of the agent and of the node in between', async () => {
    const at = await begun('dir/a.vmdk', 4);
    await patch(at, 0, Buffer.from('ab'));
    node.clock.atMs += HOUR_MS / 2;
    node.uploads.pause();
    await until(() => node.runner.activeCount === 0);
    const { signal } = new AbortController();
    const stopped = node.uploadsAnew();
    await stopped.sweep(signal);
    // the node was off for days: its clock begins anew, and half an hour is left
    Object.assign(node.clock, { bootId: 'another', atMs: 1 });
    const later = node.uploadsAnew();
    expect(later.expiresInMs(later.get(idOf(at)))).toBe(HOUR_MS / 2);
    await later.sweep(signal);
    expect(names()).toEqual(['dir']);
    node.clock.atMs += HOUR_MS / 2;
    await later.sweep(signal);
    expect(() => later.get(idOf(at))).toThrow(expect.objectContaining({ msgKey: 'upload_not_found' }));
    expect(names()).toEqual([]);
  });

  test('a stop of the agent ends its task, and another goes on with it', async () => {
    const at = await begun('a.tar', 4, { sha256: createHash('sha256').update('abcd').digest('hex') });
    await patch(at, 0, Buffer.from('ab'));
    node.uploads.pause();
    await until(() => node.runner.activeCount === 0);
    expect(names()).toHaveLength(1);
    expect(await offsetOf(at)).toBe(2);
    expect((await patch(at, 2, Buffer.from('cd'))).status).toBe(204);
    expect(readFileSync(join(backups(), 'a.tar'), 'utf8')).toBe('abcd');
    await left(['a.tar']);
  });

  test('a full disk: what came stays, and it goes on when there is room', async () => {
    const tight = await node.addPool(small.path);
    const file = join(small.path, 'filler');
    const at = await begun('a.tar', MiB, { datapool: tight.id });
    writeFileSync(file, Buffer.alloc(1.5 * MiB));
    const body = randomBytes(MiB);
    expect((await keyOf(await patch(at, 0, body)))[1]).toBe('disk_full');
    rmSync(file);
    const offset = await offsetOf(at);
    expect((await patch(at, offset, body.subarray(offset))).status).toBe(204);
    expect(readFileSync(join(backups(small.path), 'a.tar')).equals(body)).toBe(true);
    rmSync(join(backups(small.path), 'a.tar'));
  });
});
