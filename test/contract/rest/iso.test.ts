/** ISO images over REST, with the agent's own service for them behind the server: on real directories, without a hypervisor. */
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { imageService } from '../../../agent/src/grpc/image-service.ts';
import { Faults } from '../../../agent/src/operations/faults.ts';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { OperationRunner } from '../../../agent/src/operations/runner.ts';
import type { PoolRecord } from '../../../agent/src/pools/index.ts';
import { undoEffects } from '../../../agent/src/workflows/undo/recover.ts';
import { SmallDisk } from '../../lab/small-disk.ts';
import { silent, World } from '../../model/world.ts';
import { makeRestApp, type RestApp } from './app.ts';
import { enrolled, stopAll, until } from './nodes-world.ts';
import { FakeAgent } from './scripted-node.ts';

const MiB = 1024 * 1024;
const BYTES = Buffer.alloc(3 * MiB + 17, 'image');

let rest: RestApp;
let agent: FakeAgent;
let world: World;
let journal: Journal;
let runner: OperationRunner;
let small: SmallDisk;
let url: string;
let port: number;
const pools: PoolRecord[] = [];

beforeAll(async () => {
  world = new World();
  small = await SmallDisk.mount(2);
  journal = new Journal(join(world.root, 'journal.db'));
  runner = new OperationRunner({
    journal,
    log: silent,
    undoEffect: undoEffects(world.dependencies),
    refuseCopies: async () => {},
    faults: Faults.parse(''),
    concurrentOperations: 2,
    locksChanged: () => {},
  });
  const dependencies = { ...world.dependencies, pools: async () => pools };
  rest = await makeRestApp();
  agent = new FakeAgent();
  agent.images = imageService(runner, dependencies);
  await enrolled(rest, 'n1', agent);
  await rest.app.listen({ host: '127.0.0.1', port: 0 });
  ({ port } = rest.app.server.address() as AddressInfo);
  url = `http://127.0.0.1:${port}`;
});
afterAll(async () => {
  await stopAll(rest);
  runner.close();
  journal.close();
  await small.unmount();
  world.remove();
});

let pool: PoolRecord;
let directory: string;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-iso-'));
  pool = await addPool(directory);
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

async function addPool(path: string, given: Partial<PoolRecord> = {}): Promise<PoolRecord> {
  const made = { ...world.poolRecord, id: newId(), name: 'isos', path, ...given };
  pools.push(made);
  agent.setPool({ id: made.id, name: made.name, path, readonly: made.readonly });
  await until(async () => (await rest.call('GET', `/api/data-pools/${made.id}/`)).status === 200);
  return made;
}

const put = (name: string, bytes: Buffer | string = 'x') => writeFileSync(join(directory, name), bytes);
const list = async (query = '') =>
  (await rest.call('GET', `/api/iso/?datapool=${pool.id}&async=1${query}`)).body.results;
const headers = () => ({ authorization: `jwt ${rest.tokens.administrator}` });

function upload(filename: string, body: Buffer, poolId = pool.id): Promise<Response> {
  const query = new URLSearchParams({ datapool: poolId, filename, async: '1' });
  return fetch(`${url}/api/iso/upload/?${query}`, {
    method: 'POST',
    headers: { ...headers(), 'content-type': 'application/octet-stream' },
    body,
  });
}

const keyOf = async (answer: Response) => {
  const body = (await answer.json()) as { errors: { msg_key: string }[] };
  return [answer.status, body.errors[0]!.msg_key];
};

/** Nothing of an upload is left, and nobody is busy with one. */
async function nothingLeft(names: string[] = []): Promise<void> {
  await until(() => runner.activeCount === 0);
  expect(readdirSync(directory).sort()).toEqual(names);
}

describe('the list', () => {
  test('has the images of a pool, and nothing else of it', async () => {
    put('one.iso', BYTES);
    put('notes.txt');
    put('.hidden.iso');
    mkdirSync(join(directory, 'linux/deep/deeper'), { recursive: true });
    put('linux/two.ISO');
    put('linux/deep/deeper/far.iso');
    mkdirSync(join(directory, 'backups'));
    put('backups/not.iso');
    symlinkSync('/etc/passwd', join(directory, 'link.iso'));
    const domain = agent.setDomain({
      cdroms: [{ targetDev: 'sda', path: join(directory, 'one.iso'), poolId: pool.id }],
    });
    await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 200);
    const [first, second, ...others] = await list('&ordering=filename');
    expect(others).toEqual([]);
    expect(second).toMatchObject({ filename: 'one.iso', status: 'ACTIVE', size: BYTES.length });
    expect(first).toMatchObject({ filename: 'linux/two.ISO', domains: [] });
    const one = (await rest.call('GET', `/api/iso/${second.id}/`)).body;
    expect(one).toEqual({ ...second, permissions: ['download'] });
    expect(one).toMatchObject({
      verbose_name: 'one.iso',
      entity_type: 'iso',
      datapool: { id: pool.id, verbose_name: 'isos', type: 'local' },
      domains: [{ id: domain.id, verbose_name: domain.name }],
    });
    expect(await list(`&domain=${domain.id}`)).toHaveLength(1);
    expect((await rest.call('GET', `/api/iso/${newId()}/`)).body.errors[0].msg_key).toBe('iso_not_found');
    expect((await rest.call('GET', `/api/iso/?datapool=${newId()}`)).status).toBe(404);
  });

  test('leaves out what cannot be read, unless it was asked for', async () => {
    const gone = await addPool(join(directory, 'gone'));
    expect((await rest.call('GET', '/api/iso/')).status).toBe(200);
    const asked = await rest.call('GET', `/api/iso/?datapool=${gone.id}`);
    expect([asked.status, asked.body.errors[0].msg_key]).toEqual([502, 'io_failed']);
  });

  test('asks an agent of the version before for nothing', async () => {
    const before = new FakeAgent();
    const old = before.setPool({ name: 'old' });
    await enrolled(rest, 'old', before);
    await until(async () => (await rest.call('GET', `/api/data-pools/${old.id}/`)).status === 200);
    expect((await rest.call('GET', '/api/iso/')).status).toBe(200);
    const asked = await rest.call('GET', `/api/iso/?datapool=${old.id}`);
    expect(asked.body.errors[0].msg_key).toBe('node_outdated');
  });
});

test('a client of the API family announces one, sends it as a form, and reads it by an address without a login', async () => {
  const announced = await rest.call('PUT', '/api/iso/?async=1', {
    body: { datapool: pool.id, filename: 'new.iso' },
  });
  expect(announced.body).toMatchObject({ status: 'CREATING', permissions: ['upload'], size: 0 });
  expect((await rest.call('GET', `/api/iso/${announced.body.id}/`)).body.status).toBe('CREATING');
  const form = new FormData();
  form.append('file', new Blob([BYTES]), 'new.iso');
  const sent = await fetch(url + announced.body.upload_url, {
    method: 'POST',
    headers: headers(),
    body: form,
  });
  expect(await sent.json()).toMatchObject({ id: announced.body.id, status: 'ACTIVE', size: BYTES.length });
  expect(BYTES.equals(readFileSync(join(directory, 'new.iso')))).toBe(true);
  await nothingLeft(['new.iso']);
  const asked = await rest.call('PUT', `/api/iso/${announced.body.id}/download/?async=1`, { body: {} });
  const whole = await fetch(url + asked.body.download_url);
  expect(BYTES.equals(Buffer.from(await whole.arrayBuffer()))).toBe(true);
  expect(whole.headers.get('content-disposition')).toContain('filename="new.iso"');
  const range = { headers: { range: 'bytes=5-9' } };
  const part = await fetch(url + asked.body.download_url, range);
  expect([part.status, await part.text()]).toEqual([206, BYTES.subarray(5, 10).toString()]);
  const guessed = await fetch(`${url}/api/iso/download/guessed/`);
  expect(await keyOf(guessed)).toEqual([404, 'not_found']);
  const direct = await fetch(`${url}/api/iso/${announced.body.id}/download/`, { headers: headers() });
  expect(BYTES.equals(Buffer.from(await direct.arrayBuffer()))).toBe(true);
  const [audit] = (await rest.call('GET', '/api/audit/?limit=100')).body.results.filter(
    ({ path }: { path: string }) => path === announced.body.upload_url,
  );
  expect(audit).toMatchObject({ status: 200, user: { username: 'the-administrator' } });
});

test('an idempotency key gives no announcement and no address that is good no longer', async () => {
  put('old.iso');
  const [{ id }] = await list();
  const asked = { datapool: pool.id, filename: 'new.iso', idempotency_key: newId() };
  const { upload_url } = (await rest.call('PUT', '/api/iso/', { body: asked })).body;
  const ticket = { idempotency_key: newId() };
  const first = (await rest.call('PUT', `/api/iso/${id}/download/`, { body: ticket })).body.download_url;
  const later = performance.now() + 3_700_000;
  const spy = jest.spyOn(performance, 'now').mockReturnValue(later);
  try {
    const again = await rest.call('PUT', '/api/iso/', { body: asked });
    expect([again.status, again.body.upload_url]).toEqual([200, upload_url]);
    expect((await rest.call('GET', upload_url.replace('upload/', ''))).body.status).toBe('CREATING');
    const second = (await rest.call('PUT', `/api/iso/${id}/download/`, { body: ticket })).body.download_url;
    expect(second).not.toBe(first);
    expect((await fetch(url + second)).status).toBe(200);
  } finally {
    spy.mockRestore();
  }
});

describe('an upload', () => {
  test('leaves nothing when it is refused', async () => {
    put('taken.iso');
    expect(await keyOf(await upload('taken.iso', BYTES))).toEqual([409, 'file_exists']);
    for (const name of ['x.img', '../x.iso', '.x.iso', 'a/b.iso', '-x.iso'])
      expect(await keyOf(await upload(name, BYTES))).toEqual([400, 'invalid_field']);
    const fixed = await addPool(directory, { readonly: true });
    expect(await keyOf(await upload('new.iso', BYTES, fixed.id))).toEqual([409, 'pool_read_only']);
    const huge = await fetch(`${url}/api/iso/${newId()}/upload/`, {
      method: 'POST',
      headers: headers(),
      body: 'x',
    });
    expect(await keyOf(huge)).toEqual([404, 'iso_not_found']);
    const form = { ...headers(), 'content-type': 'multipart/form-data; boundary=b' };
    const query = new URLSearchParams({ datapool: pool.id, filename: 'cut.iso' });
    const cut = '--b\r\ncontent-disposition: form-data; name="file"; filename="x"\r\n\r\nhalf of it';
    const two = `${cut}\r\n${cut}\r\n--b--\r\n`;
    for (const body of [cut, two]) {
      const sent = { method: 'POST', headers: form, body };
      expect(await keyOf(await fetch(`${url}/api/iso/upload/?${query}`, sent))).toEqual([400, 'bad_request']);
    }
    await nothingLeft(['taken.iso']);
    expect(readFileSync(join(directory, 'taken.iso'), 'utf8')).toBe('x');
  });

  test('that its pool has no room for is refused, before or when it is full', async () => {
    const full = await addPool(small.path);
    expect(await keyOf(await upload('big.iso', BYTES, full.id))).toEqual([409, 'pool_no_space']);
    const unknown = new ReadableStream({
      start(controller) {
        controller.enqueue(BYTES);
        controller.close();
      },
    });
    const query = new URLSearchParams({ datapool: full.id, filename: 'big.iso' });
    const answer = await fetch(`${url}/api/iso/upload/?${query}`, {
      method: 'POST',
      headers: headers(),
      body: unknown,
      duplex: 'half',
    } as RequestInit);
    expect(await keyOf(answer)).toEqual([502, 'disk_full']);
    await until(() => runner.activeCount === 0);
    expect(readdirSync(small.path)).toEqual([]);
  });

  test('whose caller sends nothing is ended by the agent, and its name is free again', async () => {
    async function* silent(isAnnounced: boolean) {
      const image = { operationId: newId(), poolId: pool.id, filename: 'silent.iso', size: 0n };
      if (isAnnounced) yield { image, data: new Uint8Array() };
      await new Promise(() => {});
    }
    const late = expect.objectContaining({ msgKey: 'timed_out' });
    const impatient = imageService(runner, { ...world.dependencies, pools: async () => pools }, 20);
    const call = { signal: AbortSignal.timeout(60_000) } as never;
    for (const isAnnounced of [true, false])
      await expect(impatient.upload(silent(isAnnounced) as never, call)).rejects.toEqual(late);
    await nothingLeft();
    expect((await upload('silent.iso', BYTES)).status).toBe(200);
  });

  describe('by a slow client', () => {
    const dialed: Socket[] = [];
    afterAll(() => {
      for (const socket of dialed) socket.destroy();
    });

    function begin(text: string): Socket {
      const socket = connect({ port, host: '127.0.0.1' });
      dialed.push(socket);
      socket.on('error', () => {});
      socket.write(text);
      return socket;
    }
    const head = (name: string) =>
      `POST /api/iso/upload/?datapool=${pool.id}&filename=${name} HTTP/1.1\r\nhost: x\r\nauthorization: jwt ${rest.tokens.administrator}\r\ncontent-type: application/octet-stream\r\ncontent-length: ${BYTES.length}\r\n\r\n`;
    const partial = () => readdirSync(directory).filter(name => name.endsWith('.upload'));

    test('may take longer than other requests, and nobody sees half of it', async () => {
      const { limits } = rest.services.config;
      const before = limits.request_timeout_s;
      limits.request_timeout_s = 0.3;
      const socket = begin(head('slow.iso'));
      socket.write(BYTES.subarray(0, MiB));
      await until(() => partial().length === 1);
      expect(await list()).toEqual([]);
      const other = await upload('slow.iso', BYTES);
      expect(await keyOf(other)).toEqual([409, 'file_busy']);
      // another request that does not go on is let go meanwhile
      const late = begin(
        'POST /auth/ HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{',
      );
      late.resume();
      await once(late, 'close');
      limits.request_timeout_s = before;
      socket.write(BYTES.subarray(MiB));
      await until(() => existsSync(join(directory, 'slow.iso')));
      await nothingLeft(['slow.iso']);
      expect(BYTES.equals(readFileSync(join(directory, 'slow.iso')))).toBe(true);
    });

    test('that goes away leaves nothing, and its name is free again', async () => {
      const socket = begin(head('gone.iso'));
      socket.write(BYTES.subarray(0, MiB));
      await until(() => partial().length === 1);
      socket.destroy();
      await nothingLeft();
      expect((await upload('gone.iso', BYTES)).status).toBe(200);
    });

    test('is cut off when its operation is cancelled', async () => {
      const socket = begin(head('lost.iso'));
      socket.resume();
      socket.write(BYTES.subarray(0, MiB));
      await until(() => partial().length === 1);
      const closed = once(socket, 'close');
      runner.cancel(runner.list(true).operations[0]!.id);
      await closed;
      await nothingLeft();
    });
  });
});
