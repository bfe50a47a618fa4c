/** Saved states, increments, conversion and download through the command, the controller and a real agent. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Guest } from '../../lab/guest.ts';
import { programFile } from '../../lab/paths.ts';
import type { Rest } from '../../lab/rest.ts';
import { waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';

const MAIN = programFile('virtkeep');

interface FileRecord {
  id: string;
  filename: string;
  path: string;
  size: number;
  status: string;
  compressed: boolean;
  can_be_incremental: boolean;
  not_incremental_reason: string;
  fallback_reason: string;
  states: { number: number; name: string }[];
}

let world: World;
let rest: Rest;
let guest: Guest;
let domainId: string;
let bulk: string;

beforeAll(async () => {
  world = await startWorld({ controller: true });
  rest = world.rest;
  guest = await world.defineTiny({ name: 'tiny' });
  domainId = await world.known(guest);
  bulk = world.node.pool(1).uuid;
});
afterAll(() => world?.stop());

/** Runs the command and answers what it printed. @throws Error with its code and words when it fails */
function virtkeep(...args: string[]): Promise<string> {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd: world.dir,
    env: {
      PATH: process.env.PATH,
      HOME: world.dir,
      VIRTKEEP_URL: rest.url,
      VIRTKEEP_TOKEN: rest.token,
      VIRTKEEP_CA: world.controller.caFile,
    },
  });
  const out: Buffer[] = [];
  let errors = '';
  child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr.on('data', chunk => {
    errors += chunk;
  });
  return new Promise((resolve, reject) => {
    child.on('close', code => {
      if (code === 0) resolve(Buffer.concat(out).toString());
      else reject(new Error(`virtkeep ${args.join(' ')}: exit ${code}: ${errors}`));
    });
  });
}

const json = async <T>(...args: string[]) => JSON.parse(await virtkeep('--json', ...args)) as T;
const record = (id: string) => rest.get<FileRecord>(`/api/library/${id}/`);
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

test('a file is compressed, unpacked and downloaded, whole and in parts', async () => {
  const made = await json<FileRecord>('backup', 'tiny', '--pool', bulk, '--hash');
  await virtkeep('backups', 'compress', made.id);
  const packed = await record(made.id);
  expect(packed).toMatchObject({ compressed: true, status: 'ACTIVE' });
  expect(packed.filename).toMatch(/\.tar\.zst$/);
  await virtkeep('backups', 'verify', made.id);
  await virtkeep('backups', 'unpack', made.id);
  const plain = await record(made.id);
  expect(plain).toMatchObject({ compressed: false, status: 'ACTIVE' });

  const target = join(world.dir, 'copy.tar');
  await virtkeep('backups', 'download', made.id, '-o', target);
  const whole = readFileSync(plain.path);
  expect(sha256(readFileSync(target))).toBe(sha256(whole));
  const range = { range: 'bytes=-512' };
  const tail = await rest.send('GET', `/api/library/${made.id}/download/`, undefined, range);
  expect([tail.status, tail.headers['content-range']]).toEqual([
    206,
    `bytes ${whole.length - 512}-${whole.length - 1}/${whole.length}`,
  ]);
  const partial = join(world.dir, 'resumed.tar');
  const { headers } = await rest.send('HEAD', `/api/library/${made.id}/download/`);
  expect(headers['content-length']).toBe(String(whole.length));
  writeFileSync(`${partial}.part`, whole.subarray(0, 100_000));
  writeFileSync(`${partial}.part.tag`, String(headers.etag));
  await virtkeep('backups', 'download', made.id, '-o', partial, '--resume');
  expect(sha256(readFileSync(partial))).toBe(sha256(whole));

  await virtkeep('backups', 'compress', made.id);
  const members = await virtkeep('backups', 'show', made.id, '--members');
  const [name] = members
    .split('\n')
    .find(line => line.includes('\tdomain_xml\t'))!
    .split('\t');
  const xml = await virtkeep('backups', 'download', made.id, '--member', name!, '-o', '-');
  expect(xml).toContain(domainId);
  await virtkeep('backups', 'remove', made.id);
});

test('a backup grows; each state is listed and restored; a deleted saved state ends it', async () => {
  const first = await json<FileRecord>('backup', 'tiny', '--pool', bulk, '--incremental');
  expect(first).toMatchObject({ can_be_incremental: true, not_incremental_reason: '' });
  const grown = await json<FileRecord>('backup', 'tiny', '--increment');
  expect(grown).toMatchObject({ id: first.id, status: 'ACTIVE', fallback_reason: '' });
  expect(grown.states.map(state => state.number)).toEqual([1, 2]);
  const chosen = await json<FileRecord>('backup', 'tiny', '--extend', grown.filename, '--hold');
  expect(chosen.states).toHaveLength(3);
  expect(await virtkeep('backups', 'list', '--extendable')).toContain(first.id);

  for (const state of ['1', '3']) {
    const args = [
      'restore',
      first.id,
      '--state',
      state,
      '--flatten',
      '--pool',
      bulk,
      '--name',
      `old-${state}`,
    ];
    const restored = await json<{ id: string; vdisks_count: number }>(...args);
    expect(restored.vdisks_count).toBe(1);
    await rest.action(`/api/domains/${restored.id}/remove/`, { full: true });
  }

  const states = await json<{ id: string; backup: string; current: boolean; verbose_name: string }[]>(
    'snapshots',
    'list',
    'tiny',
  );
  expect(states.length).toBeGreaterThan(1);
  expect(states.every(state => state.backup === first.id)).toBe(true);
  await virtkeep('snapshots', 'create', 'tiny', 'by-hand', '--description', 'mine');
  await virtkeep('snapshots', 'remove', 'tiny', 'by-hand');
  const over = await record(first.id);
  expect(over).toMatchObject({ can_be_incremental: false, status: 'ACTIVE' });
  expect(over.not_incremental_reason).not.toBe('');
  await expect(virtkeep('backup', 'tiny', '--extend', first.id)).rejects.toThrow('exit 5');
  const anew = await json<FileRecord>('backup', 'tiny', '--pool', bulk, '--increment');
  expect(anew.id).not.toBe(first.id);
  expect(anew).toMatchObject({ can_be_incremental: true });
  expect(anew.fallback_reason).toContain(first.filename);
});

test('a VM is reverted; a state that virsh deletes is noticed', async () => {
  await virtkeep('snapshots', 'create', 'tiny', 'good');
  await virtkeep('snapshots', 'create', 'tiny', 'bad');
  await virtkeep('snapshots', 'revert', 'tiny', 'good');
  const extendable = () => rest.list<FileRecord>(`/api/library/?domain=${domainId}&can_be_incremental=1`);
  expect(await extendable()).toEqual([]);
  const made = await json<FileRecord>('backup', 'tiny', '--pool', bulk, '--incremental');
  expect(made.can_be_incremental).toBe(true);
  // the branch that was left stays on the VM; the backup is of what the VM stands on
  const shown = await json<{ configuration: { snapshots: string[] } }>('backups', 'show', made.id);
  expect(shown.configuration.snapshots).toContain('good');
  expect(shown.configuration.snapshots).not.toContain('bad');
  expect(await guest.snapshots()).toContain('bad');
  await world.node.virsh('snapshot-delete', guest.name, made.states[0]!.name, '--metadata');
  await waitFor('the loss of the state', async () => (await extendable()).length === 0, 180_000);
  expect((await record(made.id)).not_incremental_reason).not.toBe('');
});

test('a VM is started from its archive at once; a compressed one says what to do', async () => {
  const made = await json<FileRecord>('backup', 'tiny', '--pool', bulk);
  const args = ['--pool', bulk, '--name', 'at-once', '--instant', '--bandwidth', '100M'];
  const restored = await json<{ id: string; user_power_state: number }>('restore', made.id, ...args);
  expect(restored.user_power_state).toBe(3);
  await rest.action(`/api/domains/${restored.id}/remove/`, { full: true, force: true });
  await virtkeep('backups', 'compress', made.id, '--level', '1');
  await expect(virtkeep('restore', made.id, ...args)).rejects.toThrow('unpack it first');
});

test('the oldest restore points of a backup are dropped, and it goes on growing', async () => {
  const first = await json<FileRecord>(
    'backup',
    'tiny',
    '--pool',
    bulk,
    '--incremental',
    '--bandwidth',
    '50M',
  );
  for (const _ of [2, 3]) await virtkeep('backup', 'tiny', '--extend', first.id);
  await expect(virtkeep('backups', 'trim', first.id, '--keep', '3')).rejects.toThrow('restore points: 3');
  const before = await record(first.id);
  const left = await json<FileRecord & { removed_states: number[] }>(
    'backups',
    'trim',
    first.id,
    '--keep',
    '1',
  );
  expect(left).toMatchObject({ id: first.id, filename: before.filename, removed_states: [1, 2] });
  const trimmed = await record(first.id);
  expect(trimmed).toMatchObject({ status: 'ACTIVE', can_be_incremental: true, path: before.path });
  expect(trimmed.states.map(({ number }) => number)).toEqual([3]);
  await virtkeep('backups', 'verify', first.id);
  const grown = await json<FileRecord>('backup', 'tiny', '--extend', first.id);
  expect(grown.states.map(({ number }) => number)).toEqual([3, 4]);
  await expect(virtkeep('backups', 'show', first.id, '--state', '2')).rejects.toThrow();
  await virtkeep('backups', 'show', first.id, '--state', '3');
});
