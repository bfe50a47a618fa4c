/** How well VMs are protected, over REST and as the command tells it, with a scripted agent. */
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { BackupFile, Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { makeRestApp, type RestApp } from './app.ts';
import { virtkeep } from './command.ts';
import { type Enrolled, ended, enrolled, stopAll, until } from './nodes-world.ts';

const DAY_MS = 86_400_000;

let rest: RestApp;
let node: Enrolled;
let pool: Pool;
let domain: Domain;
let url: string;

beforeAll(async () => {
  rest = await makeRestApp({ tls: { mode: 'off' } });
  node = await enrolled(rest, 'n1');
  pool = node.agent.setPool({});
  await rest.app.listen({ host: '127.0.0.1', port: 0 });
  url = `http://127.0.0.1:${(rest.app.server.address() as AddressInfo).port}`;
});
beforeEach(async () => {
  for (const id of node.agent.domains.keys()) node.agent.removeDomain(id);
  await until(async () => (await rest.call('GET', '/api/domains/')).body.count === 0);
  domain = await newDomain('web');
});
afterAll(() => stopAll(rest));

async function newDomain(name: string): Promise<Domain> {
  const disk = { id: randomUUID(), name: 'a', poolId: pool.id, targetDev: 'vda', targetBus: 'virtio' };
  const made = node.agent.setDomain({ name, disks: [disk as never] });
  await until(async () => (await rest.call('GET', `/api/domains/${made.id}/`)).status === 200);
  return made;
}

const recordOf = async (id = domain.id) => (await rest.call('GET', `/api/domains/${id}/`)).body;
const stateOf = async (id?: string) => (await recordOf(id)).protection.state;
const list = async (query = '') => (await rest.call('GET', `/api/protection/${query}`)).body;
const change = (body: object, as: 'administrator' | 'operator' = 'administrator') =>
  rest.call('PUT', `/api/domains/${domain.id}/`, { as, body });

async function started(options: object = {}): Promise<{ fileId: string; taskId: string }> {
  const { body } = await rest.call('POST', '/api/domains/backup/?async=1', {
    body: { domain: domain.id, datapool: pool.id, ...options },
  });
  return { fileId: body.entity, taskId: body._task.id };
}

async function backedUp(created = new Date(), file: Partial<BackupFile> = {}): Promise<string> {
  const { fileId, taskId } = await started();
  const state = { name: '1', created, memory: false, consistency: 'quiesced' } as never;
  const about = { domainId: domain.id, domainName: domain.name, poolId: pool.id, states: [state], ...file };
  node.agent.succeed(taskId, { file: node.agent.setFile({ id: fileId, ...about }) });
  await ended(rest, taskId);
  return fileId;
}

async function failed(): Promise<void> {
  const { taskId } = await started();
  node.agent.fail(taskId, new VirtkeepError('disk_full', { path: '/x' }));
  await ended(rest, taskId, 'FAILED');
}

const run = (...args: string[]) => virtkeep({ url, token: rest.tokens.administrator }, args);

test('a VM goes from never over failing to protected, as its record and the list tell', async () => {
  expect((await recordOf()).protection).toEqual({ state: 'never', last_good: null, age: null });
  await failed();
  expect(await stateOf()).toBe('never');
  const when = new Date(Date.now() - 60_000);
  await backedUp(when);
  const { protection } = await recordOf();
  expect(protection).toMatchObject({ state: 'protected', last_good: when.toISOString() });
  expect(protection.age).toBeGreaterThanOrEqual(60);
  await failed();
  const { results, counts } = await list();
  expect(counts).toEqual({ protected: 0, late: 0, failing: 1, never: 0, excluded: 0 });
  expect(results).toEqual([
    expect.objectContaining({
      domain: { id: domain.id, verbose_name: 'web' },
      node: { id: node.agent.id, verbose_name: 'n1' },
      state: 'failing',
      reason: expect.stringContaining('The last attempt failed'),
      tasks: [],
    }),
  ]);
  await backedUp();
  expect(await stateOf()).toBe('protected');
});

test('a file that is damaged, missing or removed protects nothing; one that is extended does', async () => {
  const id = await backedUp();
  const fileStatus = async () => (await rest.call('GET', `/api/library/${id}/`)).body.status;
  const scan = () => rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
  const scanned = async (files: BackupFile[], status: string) => {
    const { body } = await scan();
    node.agent.succeed(body._task.id, { files });
    await ended(rest, body._task.id);
    expect(await fileStatus()).toBe(status);
  };
  const file = node.agent.files.get(id)!;
  await scanned([{ ...file, damage: 'cut off' }], 'DAMAGED');
  expect(await stateOf()).toBe('never');
  await scanned([file], 'ACTIVE');
  expect(await stateOf()).toBe('protected');
  const { body: converting } = await rest.call('POST', `/api/library/${id}/compress/?async=1`, { body: {} });
  expect([await fileStatus(), await stateOf()]).toEqual(['UPDATING', 'protected']);
  node.agent.fail(converting._task.id, new VirtkeepError('disk_full', { path: '/x' }));
  await ended(rest, converting._task.id, 'FAILED');
  await scanned([], 'MISSING');
  expect(await stateOf()).toBe('never');
  await scanned([file], 'ACTIVE');
  const { body } = await rest.call('POST', `/api/library/${id}/remove/?async=1`, { body: {} });
  expect(await stateOf()).toBe('never');
  node.agent.succeed(body._task.id);
  await ended(rest, body._task.id);
  expect(await stateOf()).toBe('never');
});

test('a backup that leaves out disks protects nothing, clears no failure, and is told as the reason', async () => {
  const disk = domain.disks[0]!.id;
  const partly = async (created: Date) => {
    const { fileId, taskId } = await started({ exclude_vdisks: [disk] });
    const state = { name: '1', created, memory: false, consistency: 'quiesced', excludedDisks: ['vda'] };
    const about = { domainId: domain.id, domainName: domain.name, poolId: pool.id, states: [state] as never };
    node.agent.succeed(taskId, { file: node.agent.setFile({ id: fileId, ...about }) });
    await ended(rest, taskId);
    return fileId;
  };
  const only = await partly(new Date());
  const [never] = (await list()).results;
  expect(never).toMatchObject({ state: 'never', last_good: null, age: null });
  expect(never.reason).toContain('leaves out disks');
  const { body: file } = await rest.call('GET', `/api/library/${only}/`);
  expect(file.states).toMatchObject([{ excluded_disks: ['vda'] }]);
  const whole = new Date(Date.now() - 60_000);
  await backedUp(whole);
  expect((await recordOf()).protection).toMatchObject({ state: 'protected', last_good: whole.toISOString() });
  await failed();
  await partly(new Date());
  const [failing] = (await list()).results;
  expect(failing).toMatchObject({ state: 'failing', last_good: whole.toISOString() });
  expect(failing.reason).toContain('leaves out disks');
  await backedUp();
  expect(await stateOf()).toBe('protected');
});

test('without a task it is late by age, and by what a task had promised', async () => {
  await backedUp(new Date(Date.now() - 8 * DAY_MS));
  expect(await stateOf()).toBe('late');
  const promise = (latestDue: number | null, intervalMs = DAY_MS) => {
    const nightly = { id: pool.id, verbose_name: 'nightly', latestDue, intervalMs };
    const expectationsOf = (id: string) => (id === domain.id ? [nightly] : []);
    rest.services.protection.setCoverage({ expectationsOf, version: nightly });
  };
  promise(null);
  expect(await stateOf()).toBe('late');
  promise(null, 30 * DAY_MS);
  expect(await stateOf()).toBe('protected');
  promise(Date.now() - DAY_MS);
  const [late] = (await list('?state=late')).results;
  expect(late).toMatchObject({ state: 'late', tasks: [{ id: pool.id, verbose_name: 'nightly' }] });
  expect(late.reason).toContain('nightly');
  rest.services.protection.setCoverage({ expectationsOf: () => [], version: 0 });
});

test('an administrator excludes a VM, which holds while it is gone', async () => {
  expect((await change({ protection_excluded: true }, 'operator')).status).toBe(403);
  expect((await change({ protection_excluded: true })).body.protection.state).toBe('excluded');
  node.agent.removeDomain(domain.id);
  await until(async () => (await list()).count === 0);
  node.agent.setDomain({ id: domain.id, name: 'web' });
  await until(async () => (await list()).count === 1);
  expect(await stateOf()).toBe('excluded');
  expect((await change({ protection_excluded: false })).body.protection.state).toBe('never');
});

test('lists are filtered by state, node, tag and name, the most urgent first', async () => {
  await backedUp();
  const other = await newDomain('db');
  await rest.call('PUT', `/api/domains/${other.id}/`, { body: { tags: ['important'] } });
  const { body: tags } = await rest.call('GET', '/api/tags/?name=important');
  const names = async (query: string) =>
    (await list(query)).results.map((one: { domain: { verbose_name: string } }) => one.domain.verbose_name);
  expect(await names('')).toEqual(['db', 'web']);
  expect(await names('?ordering=-severity')).toEqual(['web', 'db']);
  expect(await names('?state=protected')).toEqual(['web']);
  expect(await names(`?tag=${tags.results[0].id}`)).toEqual(['db']);
  expect(await names(`?node=${node.agent.id}&name=we`)).toEqual(['web']);
  expect(await names(`?node=${randomUUID()}`)).toEqual([]);
  expect((await list('?state=never')).counts).toMatchObject({ protected: 1, never: 1 });
  const page = await list('?limit=1&fields=state');
  expect(page).toMatchObject({ count: 2, results: [{ state: 'never' }] });
  const domains = async (query: string) => (await rest.call('GET', `/api/domains/?${query}`)).body.results;
  expect(await domains('protection=never')).toEqual([
    expect.objectContaining({ id: other.id, protection: { state: 'never', last_good: null, age: null } }),
  ]);
  expect(await domains('protection=late')).toEqual([]);
  expect((await rest.call('GET', '/api/protection/?state=fine')).status).toBe(400);
});

test('the command lists the most urgent first, and its exit code tells whether one must be looked at', async () => {
  await backedUp();
  expect(await run('protection')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^web\tprotected\t/),
  });
  await newDomain('new');
  const { code, stdout } = await run('protection');
  expect(code).toBe(1);
  expect(stdout.split('\n').map(line => line.split('\t').slice(0, 2))).toEqual([
    ['new', 'never'],
    ['web', 'protected'],
    [''],
  ]);
  expect((await run('protection', '--state', 'protected')).code).toBe(0);
  const json = await run('protection', '--state', 'never', '-o', 'json');
  expect(json.code).toBe(1);
  expect(JSON.parse(json.stdout)).toMatchObject([{ state: 'never' }]);
  expect((await run('protection', '--state', 'fine')).code).toBe(2);
  expect(await run('protection', 'exclude', 'new')).toMatchObject({ code: 0, stdout: 'new: excluded\n' });
  expect((await run('protection')).code).toBe(0);
  expect(await run('protection', 'include', 'new')).toMatchObject({ code: 0, stdout: 'new: never\n' });
});

test('the overview names the VM, its day, what runs, the fullest pool and who is away', async () => {
  await failed();
  await backedUp(new Date(Date.now() - 60_000));
  await failed();
  const other = await newDomain('other');
  const { taskId } = await started();
  const { status, body } = await rest.call('GET', '/api/overview/?time_zone=Europe/Berlin');
  expect(status).toBe(200);
  expect(body.domains.counts).toMatchObject({ failing: 1, never: 1, protected: 0 });
  expect(body.domains.urgent.map((row: { domain: { id: string } }) => row.domain.id)).toEqual([
    other.id,
    domain.id,
  ]);
  expect(body.history.days).toHaveLength(14);
  const [never, failing] = body.history.domains;
  expect(never).toMatchObject({ domain: { id: other.id }, state: 'never' });
  expect(new Set(never.results)).toEqual(new Set(['none']));
  expect(failing.domain.id).toBe(domain.id);
  expect(failing.results.at(-1)).toBe('mixed');
  expect(body.running.results.map(({ id }: { id: string }) => id)).toContain(taskId);
  expect(body.pools).toMatchObject({ count: 1, results: [{ id: pool.id, status: 'ACTIVE' }] });
  expect(body.nodes).toEqual({ count: 1, away_count: 0, away: [] });
  expect((await rest.call('GET', '/api/overview/?histories=1')).body.history.domains).toHaveLength(1);
  for (const query of ['time_zone=Nowhere/None', 'histories=51'])
    expect((await rest.call('GET', `/api/overview/?${query}`)).status).toBe(400);
  node.agent.succeed(taskId, { file: node.agent.setFile({ domainId: domain.id, poolId: pool.id }) });
  await ended(rest, taskId);
});
