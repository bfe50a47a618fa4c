/** Files that a user sends by the command, through a connection that is cut, to a node that really takes them. */
import type { ChildProcess } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { PoolRecord } from '../../../agent/src/pools/index.ts';
import { virtkeep } from './command.ts';
import { until } from './nodes-world.ts';
import { UploadNode } from './upload-node.ts';

const MiB = 1024 * 1024;
const BYTES = randomBytes(3 * MiB + 17);
const sha256 = (data: Buffer) => createHash('sha256').update(data).digest('hex');

let node: UploadNode;
/** Between the command and the controller. */
let between: Server;
/** Bytes after which a connection is cut, of each that is opened in turn; then none is. */
let cuts: number[] = [];
let cutCount = 0;
/** Bytes after which nothing is passed on, though the connection stays. */
let hangsAfter = Number.POSITIVE_INFINITY;

beforeAll(async () => {
  node = await UploadNode.start();
  between = createServer(client => pass(client, connect(node.port, '127.0.0.1')));
  await new Promise<void>(resolve => between.listen(0, '127.0.0.1', resolve));
});
afterAll(async () => {
  await new Promise(resolve => between.close(resolve));
  await node.stop();
});

function pass(client: Socket, controller: Socket): void {
  let passed = 0;
  const cut = () => {
    client.destroy();
    controller.destroy();
  };
  for (const socket of [client, controller]) socket.on('error', cut).on('close', cut);
  controller.pipe(client);
  client.on('data', data => {
    passed += data.length;
    if (passed < hangsAfter) controller.write(data);
    const [next] = cuts;
    if (next === undefined || passed < next) return;
    cuts.shift();
    cutCount += 1;
    cut();
  });
}

let pool: PoolRecord;
let directory: string;
/** What the user has. */
let home: string;
let pools = 0;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-upload-'));
  home = join(directory, 'home');
  mkdirSync(home);
  mkdirSync(join(directory, 'pool'));
  pools += 1;
  pool = await node.addPool(join(directory, 'pool'), { name: `bulk${pools}` });
});
afterEach(() => {
  [cuts, cutCount, hangsAfter] = [[], 0, Number.POSITIVE_INFINITY];
  rmSync(directory, { recursive: true, force: true });
});

const backups = () => join(directory, 'pool/backups');
const names = () =>
  existsSync(backups()) ? (readdirSync(backups(), { recursive: true }) as string[]).sort() : [];
const atHome = (name: string, data: Buffer | string = BYTES): string => {
  writeFileSync(join(home, name), data);
  return join(home, name);
};

/** The command, through what cuts connections. */
function command(...argv: string[]) {
  return started(() => {}, ...argv);
}

function started(ready: (child: ChildProcess) => void, ...argv: string[]) {
  const url = `http://127.0.0.1:${(between.address() as AddressInfo).port}`;
  return virtkeep({ url, token: node.rest.tokens.administrator }, argv, { started: ready });
}

const upload = (...argv: string[]) => command('library', 'upload', '--pool', pool.name, ...argv);

/** Nothing goes on, and this is there. */
async function left(expected: string[]): Promise<void> {
  await until(() => node.runner.activeCount === 0);
  expect(names()).toEqual(expected);
}

describe('library upload', () => {
  test('a file, over a connection that is cut again and again', async () => {
    cuts = [MiB, MiB];
    const done = await upload(atHome('shop.vmdk'), '--sha256', sha256(BYTES));
    expect(done).toMatchObject({ code: 0, stdout: `shop.vmdk  3.00 MiB  ${sha256(BYTES)}\n` });
    expect(cutCount).toBe(2);
    expect(done.stderr).toMatch(/shop\.vmdk: the connection was cut; going on at /);
    await left(['shop.vmdk']);
    expect(readFileSync(join(backups(), 'shop.vmdk')).equals(BYTES)).toBe(true);
  });

  test('a descriptor with all that lies beside it, which comes last; --json tells the records', async () => {
    const files = { 'a.ovf': '<ovf/>', 'disk.vmdk': BYTES, 'a.mf': 'manifest', 'z.iso': 'image' };
    for (const [name, data] of Object.entries(files)) atHome(name, data);
    atHome('.hidden', 'mine');
    const done = await upload(join(home, 'a.ovf'), '--json');
    expect([done.code, done.stderr]).toEqual([0, '']);
    const records = JSON.parse(done.stdout) as { filename: string; status: string }[];
    expect(records.map(({ filename, status }) => [filename, status])).toEqual(
      ['a.mf', 'disk.vmdk', 'z.iso', 'a.ovf'].map(name => [`home/${name}`, 'DONE']),
    );
    await left(['home', ...Object.keys(files).map(name => `home/${name}`)].sort());
  });

  test('a directory, and an empty file', async () => {
    atHome('disk.vmdk', '');
    atHome('a.ovf', '<ovf/>');
    expect((await upload(home)).stdout.split('\n').map(line => line.split('  ')[0])).toEqual([
      'home/disk.vmdk',
      'home/a.ovf',
      '',
    ]);
    await left(['home', 'home/a.ovf', 'home/disk.vmdk']);
  });

  test('a name that is taken stays what it was', async () => {
    mkdirSync(backups());
    writeFileSync(join(backups(), 'shop.ova'), 'old');
    const refused = await upload(atHome('shop.ova'));
    expect(refused).toMatchObject({ code: 5, stdout: '' });
    expect(refused.stderr).toContain(join(backups(), 'shop.ova'));
    expect(readFileSync(join(backups(), 'shop.ova'), 'utf8')).toBe('old');
    await left(['shop.ova']);
  });

  test('with --skip-existing a directory that was sent in part goes on with what is missing', async () => {
    mkdirSync(join(backups(), 'home'), { recursive: true });
    writeFileSync(join(backups(), 'home/disk.vmdk'), 'old');
    atHome('disk.vmdk');
    atHome('a.ovf', '<ovf/>');
    expect(await upload(home)).toMatchObject({ code: 5, stdout: '' });
    const done = await upload(home, '--skip-existing');
    expect(done).toMatchObject({ code: 0, stderr: 'home/disk.vmdk: is there already\n' });
    expect(done.stdout).toMatch(/^home\/a\.ovf {2}.*\n$/);
    expect(readFileSync(join(backups(), 'home/disk.vmdk'), 'utf8')).toBe('old');
    await left(['home', 'home/a.ovf', 'home/disk.vmdk']);
  });

  test('after Ctrl-C nothing of it stays', async () => {
    hangsAfter = MiB;
    const stop = (child: ChildProcess) =>
      void until(() => names().some(name => name.endsWith('.upload')))
        .then(() => child.kill('SIGINT'))
        .catch(() => child.kill());
    const done = await started(stop, 'library', 'upload', '--pool', pool.name, atHome('shop.ova'));
    expect(done).toMatchObject({ code: 130, stdout: '', stderr: 'shop.ova: stopped; nothing of it stays\n' });
    await left([]);
  });

  test('one that its login did not outlast is gone on with, while it is the same file', async () => {
    const { users, tokens } = node.rest.services;
    const [username, password] = ['uploader', 'correct horse battery'];
    const { id } = await users.create({ username, password, role: 'administrator' });
    const path = atHome('shop.vmdk');
    // a time that can be set again exactly: fractions of a second are rounded on the way
    const changedAt = (time: string) => utimesSync(path, new Date(time), new Date(time));
    changedAt('2026-01-02T03:04:05Z');
    const send = async (ready: (child: ChildProcess) => void, ...more: string[]) => {
      const url = `http://127.0.0.1:${(between.address() as AddressInfo).port}`;
      const { token } = await tokens.login(username, password, '127.0.0.1');
      const argv = ['library', 'upload', '--pool', pool.name, path, ...more];
      return virtkeep({ url, token }, argv, { started: ready });
    };
    hangsAfter = MiB;
    const endLogin = () =>
      void until(() => names().some(name => name.endsWith('.upload'))).then(() =>
        users.change(id, { end_sessions: true }),
      );
    const broken = await send(endLogin);
    expect(broken).toMatchObject({ code: 3, stdout: '' });
    const [, mark] = /goes on with it by --skip-existing --resume (\S+)\n/.exec(broken.stderr)!;
    hangsAfter = Number.POSITIVE_INFINITY;
    expect(await send(() => {})).toMatchObject({ code: 5 });
    changedAt('2026-01-02T03:04:06Z');
    const refused = await send(() => {}, '--resume', mark!);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('has changed since') });
    changedAt('2026-01-02T03:04:05Z');
    expect(await send(() => {}, '--resume', mark!)).toMatchObject({ code: 0, stderr: '' });
    await left(['shop.vmdk']);
    expect(readFileSync(join(backups(), 'shop.vmdk')).equals(BYTES)).toBe(true);
  });

  test('with another hash nothing is kept, also after a cut', async () => {
    cuts = [MiB];
    const refused = await upload(atHome('shop.ova'), '--sha256', '0'.repeat(64));
    expect([refused.code, cutCount]).toEqual([2, 1]);
    expect(refused.stderr).toContain('(40030)');
    await left([]);
  });

  test('what is no file of ours, is not there, or is several with one hash', async () => {
    for (const wrong of [
      [atHome('x.sh')],
      [join(home, 'none')],
      [home, atHome('y.ova'), '--sha256', '0'.repeat(64)],
    ])
      expect(await upload(...wrong)).toMatchObject({ code: 2, stdout: '' });
    await left([]);
  });
});

describe('a file here where one of the library is wanted', () => {
  const newVm = ['--name', 'shop', '--memory', '1GiB', '--cpus', '1', '--no-wait'];
  /** What the node was told to work on. */
  const askedFor = () =>
    node.agent.calls.map(({ kind, request }) => [kind, (request.file ?? request.source) as object]);
  beforeEach(() => {
    node.agent.calls.length = 0;
  });

  test.each([
    ['import disk', 'web.vmdk', newVm],
    ['restore', 'web.ova', ['--no-wait']],
  ])('%s uploads it to the data pool that is named, and takes it', async (words, name, more) => {
    const done = await command(...words.split(' '), atHome(name), '--pool', pool.name, ...more);
    expect(done.stderr).toContain(`Uploading ${name}, 3.00 MiB, to the data pool ${pool.name}`);
    expect(done.code).toBe(0);
    expect(readFileSync(join(backups(), name)).equals(BYTES)).toBe(true);
    expect(askedFor()).toEqual([
      [expect.anything(), expect.objectContaining({ poolId: pool.id, filename: name })],
    ]);
  });

  test('without a pool it goes to the base pool of the node; a descriptor brings its disks', async () => {
    atHome('disk.vmdk');
    node.agent.setPool({ ...node.agent.pools.get(pool.id)!, isBase: true });
    await until(
      async () =>
        (await node.rest.call('GET', `/api/nodes/${node.agent.id}/`)).body.base_datapool === pool.id,
    );
    const done = await command('restore', atHome('a.ovf', '<ovf/>'), '--no-wait');
    // what the descriptor lacks is said by who reads it: it was uploaded before
    expect(done.stderr).toContain('Uploading home/disk.vmdk');
    await left(['home', 'home/a.ovf', 'home/disk.vmdk']);
    node.agent.setPool({ ...node.agent.pools.get(pool.id)!, isBase: false });
  });

  test('one of the library of that name is taken, and nothing is uploaded', async () => {
    expect((await upload(atHome('own.vmdk'))).code).toBe(0);
    const done = await command('import', 'disk', 'own.vmdk', ...newVm);
    expect([done.code, done.stderr]).toEqual([0, '']);
    await left(['own.vmdk']);
  });

  test('a name of the pool that is taken, and what is nowhere', async () => {
    expect((await upload(atHome('web.vmdk'))).code).toBe(0);
    const path = atHome('web.vmdk', 'another');
    expect(await command('import', 'disk', path, '--pool', pool.name, ...newVm)).toMatchObject({ code: 5 });
    expect(await command('backups', 'convert', join(home, 'none.ova'))).toMatchObject({ code: 4 });
    atHome('second.vmdk');
    expect(await command('backups', 'convert', home, '--pool', pool.name)).toMatchObject({ code: 2 });
    expect(readFileSync(join(backups(), 'web.vmdk')).equals(BYTES)).toBe(true);
    expect(askedFor()).toEqual([]);
  });
});
