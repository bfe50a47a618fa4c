/** Scheduled tasks as a user makes them by the command line, and by a file. */
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { makeRestApp, PASSWORD, type RestApp } from './app.ts';
import { type CommandResult, virtkeep } from './command.ts';
import { LivingNode } from './living-node.ts';
import { enrolled, stopAll, until } from './nodes-world.ts';

let rest: RestApp;
let url: string;

beforeAll(async () => {
  rest = await makeRestApp({ tls: { mode: 'off' } });
  const { agent } = await enrolled(rest, 'n1');
  new LivingNode(agent, () => new Date());
  agent.setPool({ name: 'bulk', isBase: true });
  for (const name of ['web', 'db']) agent.setDomain({ name });
  await until(async () => (await rest.call('GET', '/api/domains/')).body.count === 2);
  await until(async () => (await rest.call('GET', '/api/data-pools/')).body.count === 1);
  await rest.app.listen({ host: '127.0.0.1', port: 0 });
  url = `http://127.0.0.1:${(rest.app.server.address() as AddressInfo).port}`;
});
afterAll(() => stopAll(rest));

async function schedule(argv: string[], input?: string): Promise<CommandResult> {
  const result = await virtkeep({ url, token: rest.tokens.operator }, ['schedule', ...argv], { input });
  if (result.code !== 0) throw new Error(`${argv.join(' ')}: ${result.code} ${result.stderr}`);
  return result;
}

/** A day of the week on which the next run is not: a full backup that is to come would take the place of the newest good one. */
const DAY_BEFORE_YESTERDAY = ['fri', 'sat', 'sun', 'mon', 'tue', 'wed', 'thu'][new Date().getUTCDay()]!;

test('one line makes a daily task, which is looked at and run', async () => {
  const made = await schedule([
    ...'create nightly --all --daily 02:00 --zone Europe/Berlin --increment'.split(' '),
    ...`--full-on ${DAY_BEFORE_YESTERDAY} --increment-limit 7 --keep-days 30`.split(' '),
  ]);
  expect(made.stdout).toMatch(/^nightly: next run \d{4}-\d\d-\d\dT0[01]:00:00.000Z /);
  expect(made.stderr).toContain('warning: After 7 increments all saved states of a VM are deleted');
  const listed = await schedule(['list']);
  expect(listed.stdout).toMatch(/^nightly\tbackup\tdaily\t/);
  const preview = await schedule(['preview', 'nightly']);
  expect(preview.stdout.split('\n').filter(line => /\t(full|increment)\t/.test(line))).toHaveLength(20);
  expect(preview.stdout).toContain('web\t');
  const ran = await schedule(['run', 'nightly']);
  expect(ran.stdout).toBe('nightly: done\n');
  expect((await schedule(['runs', 'nightly'])).stdout).toContain('\tSUCCESS\t2 SUCCESS\t');
  expect((await schedule(['retention', 'nightly'])).stdout.match(/\tkeep\tnewest_good/g)).toHaveLength(2);
  const stricter = await schedule(['retention', 'nightly', '--keep', '1', '--keep-days', '1']);
  expect(stricter.stdout.match(/\tkeep\tnewest_good/g)).toHaveLength(2);
  // from a time of day at which no clock is changed, so that each of seven days has one
  const noon = `${new Date(Date.now() + 86_400_000).toISOString().slice(0, 10)}T12:00:00Z`;
  const week = (await schedule(['calendar', '--from', noon, '--days', '7'])).stdout.trim().split('\n');
  expect(week).toHaveLength(7);
  expect(week.every(line => /\tnightly\t(full|increment)\tdue$/.test(line))).toBe(true);
  const dry = await schedule(['create', 'weekly', '--vm', 'web', '--weekly', 'sun@02:00', '--dry-run']);
  expect(dry.stdout.split('\n').filter(line => line.includes('\tfull\t'))).toHaveLength(20);
  expect((await schedule(['list', '-o', 'name'])).stdout).toBe('nightly\n');
  const yaml = (await schedule(['list', '-o', 'yaml'])).stdout;
  expect([yaml.startsWith('- id: '), yaml.includes('\n  verbose_name: nightly\n')]).toEqual([true, true]);
});

test('a file makes them, and makes nothing when it is applied again', async () => {
  const file = `schedules:
  - verbose_name: weekly
    periodicity: weekly
    weekdays: [sun]
    start_date: 2030-01-06T02:00:00Z
    time_zone: UTC
    entities: [web]
    options: {datapool: bulk, compress: true}
    keep: {weekly: 4}
`;
  const first = await schedule(['apply', '-f', '-'], file);
  expect(first.stdout).toMatch(/^\+ weekly\n/);
  expect((await schedule(['apply', '-f', '-'], file)).stdout).toBe('= weekly\n');
  const changed = file.replace('weekly: 4', 'weekly: 8').replace('[web]', '[web, db]');
  const dry = await schedule(['apply', '-f', '-', '--dry-run'], changed);
  expect(dry.stdout).toBe(
    '~ weekly\n    entities: ["web"] -> ["web","db"]\n    keep: {"last":0,"hourly":0,"daily":0,"weekly":4,"monthly":0,"yearly":0} -> {"weekly":8}\n',
  );
  expect((await schedule(['apply', '-f', '-', '--dry-run'], changed)).stdout).toBe(dry.stdout);
  await schedule(['apply', '-f', '-'], changed);
  const exported = await schedule(['export']);
  expect(exported.stdout).toContain('verbose_name: weekly');
  expect(exported.stdout).toContain('datapool: bulk');
  expect((await schedule(['apply', '-f', '-'], exported.stdout)).stdout).toBe('= nightly\n= weekly\n');
});

test('an export names what there is not; an application tells what it has done before it is refused', async () => {
  const run = (argv: string[], input?: string) =>
    virtkeep({ url, token: rest.tokens.operator }, ['schedule', ...argv], { input });
  expect(await run(['export', 'nigthly'])).toMatchObject({
    code: 4,
    stdout: '',
    stderr: expect.stringContaining('There is no scheduled task "nigthly".'),
  });
  const [{ id }] = JSON.parse((await schedule(['list', '--json'])).stdout) as [{ id: string }];
  expect((await schedule(['export', id])).stdout).toContain('verbose_name: nightly');
  const files = ['good', 'bad', 'never'].map(
    name => `  - {verbose_name: ${name}, all: true, periodicity: ${name === 'bad' ? 'never' : 'daily'}}\n`,
  );
  const applied = await run(['apply', '-f', '-'], `schedules:\n${files.join('')}`);
  expect(applied).toMatchObject({ code: 2, stderr: expect.stringMatching(/^virtkeep: bad: .*periodicity/m) });
  expect(applied.stdout).toMatch(/^\+ good\n/);
  expect(applied.stdout).not.toMatch(/^. (bad|never)/m);
  await schedule(['remove', 'good']);
});

test('everybody sets their own password, who knows the present one', async () => {
  const login = async (username: string, password: string) =>
    (await rest.call('POST', '/auth/', { as: null, body: { username, password } })).body.token;
  const set = async (who: string, present: string, input: string) => {
    const session = { url, token: await login(who, present) };
    return virtkeep(session, ['users', 'set', who, '--password'], { input });
  };
  await rest.services.users.create({ username: 'dave', role: 'operator', password: PASSWORD });
  const changed = await set('dave', PASSWORD, `${PASSWORD}\nanother long password\n`);
  expect(changed).toEqual({ code: 0, stdout: 'dave: changed\n', stderr: '' });
  expect(await login('dave', 'another long password')).toEqual(expect.any(String));
  expect(await set('dave', 'another long password', 'not this one\na third long password\n')).toMatchObject({
    code: expect.not.stringMatching('^0$'),
    stderr: expect.stringContaining('password'),
  });
  const alone = await set('dave', 'another long password', 'a third long password\n');
  expect(alone).toMatchObject({ code: 2, stderr: expect.stringContaining('each on a line of stdin') });
  // the administrator, whose own name is found in the list, too
  const administrator = 'the-administrator';
  expect(await set(administrator, PASSWORD, `${PASSWORD}\nanother long password\n`)).toMatchObject({
    code: 0,
  });
  expect(
    await set(administrator, 'another long password', `another long password\n${PASSWORD}\n`),
  ).toMatchObject({
    code: 0,
  });
});

test('tags, users, tokens, events and the audit are listed and changed by name; completion knows commands and names', async () => {
  // of a login, as of somebody who gave a password
  const { body } = await rest.call('POST', '/auth/', {
    as: null,
    body: { username: 'the-administrator', password: PASSWORD },
  });
  const run = async (argv: string[], input?: string) => {
    const result = await virtkeep({ url, token: body.token }, argv, { input });
    if (result.code !== 0) throw new Error(`${argv.join(' ')}: ${result.code} ${result.stderr}`);
    return result.stdout;
  };
  await run(['tags', 'create', 'important', '--description', 'never lost']);
  await run(['tags', 'add', 'important', 'web', 'db']);
  expect(await run(['tags'])).toMatch(/^important\t2\tnever lost\t/);
  await run(['tags', 'take', 'important', 'db']);
  expect(await run(['tags', '-o', 'name'])).toBe('important\n');
  await run(['users', 'add', 'carol', '--role', 'auditor'], 'correct horse battery\n');
  await run(['users', 'set', 'carol', '--disable', '--description', 'left']);
  expect(await run(['users'])).toContain('carol\tauditor\tno\tnever\tleft\t');
  const sessions = await run(['sessions']);
  expect(sessions).toContain('\tyes\t');
  const carols = await rest.services.users.findByName('carol');
  await run(['users', 'set', 'carol', '--enable']);
  await rest.services.tokens.login('carol', 'correct horse battery', '10.0.0.1', 'curl/8.14.1');
  const hers = JSON.parse(await run(['sessions', 'list', '--user', 'carol', '--json']));
  expect(hers).toMatchObject([{ client: 'curl/8.14.1', current: false, user: { id: carols?.number } }]);
  expect(await run(['sessions', 'end', hers[0].id, '--user', 'carol'])).toBe(`${hers[0].id}: ended\n`);
  expect(await run(['sessions', '--user', 'carol'])).toBe('');
  expect(await run(['users', 'remove', 'carol'])).toBe('carol: removed\n');
  expect(await run(['users'])).not.toContain('carol');
  const token = await run(['tokens', 'create', 'script', '--days', '3'], `${PASSWORD}\n`);
  expect(token.trim().split('.')).toHaveLength(3);
  expect(await run(['tokens'])).toContain('script\tthe-administrator\t');
  await run(['tokens', 'revoke', 'script']);
  const named = await run(['tokens', 'create', 'named', '-o', 'name'], `${PASSWORD}\n`);
  expect(named.trim().split('.')).toHaveLength(3);
  const done = await run(['audit', '--outcome', 'done', '--since', '2026-01-01']);
  expect(done).toContain('POST /api/tags/:id/add-entities/');
  expect(await run(['audit', '--until', '2026-01-01'])).toBe('');
  expect(JSON.parse(await run(['events', '-o', 'json']))).toBeInstanceOf(Array);
  // a completion that takes too long ends without a word
  await until(async () => (await run(['__complete', '--', 'vm', 'show', 'w'])) === 'web\n');
  expect(await run(['__complete', '--', 'tags', ''])).toBe('add\ncreate\nlist\nremove\nset\ntake\n');
  expect(await run(['completion', 'bash'])).toContain('complete -o default -F _virtkeep virtkeep');
  await run(['vms', 'set', 'db', '--description', 'orders', '--tag', 'important', 'new']);
  expect((await run(['tags', '-o', 'name'])).split('\n')).toEqual(['important', 'new', '']);
  await run(['nodes', 'set', 'n1', '--service', '--description', 'first']);
  expect(await run(['nodes'])).toMatch(/^n1\tSERVICE\t/);
  expect(await run(['nodes', 'show', 'n1'])).toContain('description  first');
  await run(['nodes', 'set', 'n1', '--no-service']);
  expect((await run(['nodes', 'enrol', 'n2'])).trim().length).toBeGreaterThan(40);
  const unknown = await virtkeep({ url, token: body.token }, ['vms', '-o', 'xml']);
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('no form of output')]);
  const changing = await virtkeep({ url, token: body.token }, ['tags', 'create', 'x', '--watch']);
  expect([changing.code, changing.stderr]).toEqual([2, expect.stringContaining('show something')]);
});

test('how fast backups of a data pool may be, and how long VMs may wait for it, is said on one line', async () => {
  const set = (...options: string[]) =>
    virtkeep({ url, token: rest.tokens.administrator }, ['pools', 'set', 'bulk', ...options], {});
  const changed = await set('--backup-bandwidth', '200M', '--latency-target', '20');
  expect([changed.code, changed.stdout]).toEqual([0, 'bulk: changed\n']);
  const [pool] = (await rest.call('GET', '/api/data-pools/')).body.results;
  const record = async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body;
  expect(await record()).toMatchObject({ backup_bandwidth: 200 * 1024 ** 2, latency_target: 20 });
  const refused = await set('--latency-target', '1.5');
  expect([refused.code !== 0, refused.stderr]).toEqual([
    true,
    expect.stringContaining('0 to 60000 milliseconds'),
  ]);
  expect((await set('--latency-target', '0')).code).toBe(0);
  expect((await record()).latency_target).toBe(0);
});
