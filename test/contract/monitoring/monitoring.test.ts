/** Metrics as Prometheus reads them; the alerts and the dashboard that we offer go by metrics that are there. */
import { existsSync, readFileSync } from 'node:fs';
import { join, normalize } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { unpackedPackage } from '../../lab/apt-files.ts';
import { CommandFailed, run } from '../../lab/run.ts';
import { makeRestApp, type RestApp } from '../rest/app.ts';
import { type Enrolled, ended, enrolled, stopAll, until } from '../rest/nodes-world.ts';

const DOCS = normalize(join(import.meta.dirname, '../../../docs/monitoring'));
const DUE = Date.parse('2026-03-29T01:00:00.000Z');
const CREATED = new Date('2026-03-28T01:00:00.000Z');

let rest: RestApp;
let node: Enrolled;
let promtool: string;

beforeAll(async () => {
  rest = await makeRestApp();
  node = await enrolled(rest, 'n1');
  promtool = join(await unpackedPackage('prometheus'), 'usr/bin/promtool');
  // Debian 13 has it in a package of its own
  if (!existsSync(promtool)) promtool = join(await unpackedPackage('promtool'), 'usr/bin/promtool');
});
afterAll(() => stopAll(rest));

const read = (name: string) => readFileSync(join(DOCS, name), 'utf8');
const metrics = async () => (await rest.call('GET', '/metrics')).text;

/** The lines of one metric, without its name. */
const linesOf = (text: string, name: string) =>
  text
    .split('\n')
    .filter(line => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
    .map(line => line.slice(name.length).trim());

const namesOf = (text: string) => new Set([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name = '']) => name));

function giveSources(): void {
  rest.services.metricSources.setSchedules({
    tasks: () => [
      { id: 's1', name: 'nightly', nextRun: DUE, lastSuccess: DUE - 86_400_000, lastDurationMs: 1500 },
      { id: 's2', name: 'never "again"', nextRun: null, lastSuccess: null, lastDurationMs: null },
    ],
    queue: () => ({ length: 2, oldest: DUE }),
  });
  rest.services.metricSources.setNotifications({ deadLetters: async () => 3 });
}

test('of scheduled tasks there are none at first, and the queue is empty', async () => {
  const text = await metrics();
  expect(namesOf(text)).toContain('virtkeep_protection_vms');
  expect(text).not.toMatch(/^virtkeep_schedule_\w+\{/m);
  expect(text).toMatch(/^virtkeep_\w*queue\w* 0$/m);
});

test('a VM, its node, its pool and its last backup are told, and failures are counted by their keys', async () => {
  const { agent } = node;
  const pool = agent.setPool({ name: 'bulk' });
  const domain = agent.setDomain({ name: 'we"b' });
  await until(async () => (await rest.call('GET', `/api/domains/${domain.id}/`)).status === 200);
  const begin = async () => {
    const body = { domain: domain.id, datapool: pool.id };
    return (await rest.call('POST', '/api/domains/backup/?async=1', { body })).body;
  };
  const { entity, _task: task } = await begin();
  agent.progress(task.id, 'copy', 4096n, 4096n);
  const states = [{ name: '1', created: CREATED, memory: false, consistency: 'quiesced' }] as never;
  const about = { domainId: domain.id, domainName: domain.name, poolId: pool.id, size: 5000n, states };
  agent.succeed(task.id, { file: agent.setFile({ id: entity, ...about }) });
  await ended(rest, task.id);
  const failing = await begin();
  agent.fail(failing._task.id, new VirtkeepError('disk_full', { path: '/x' }));
  await ended(rest, failing._task.id, 'FAILED');
  const text = await metrics();
  const vm = `id="${domain.id}",vm="we\\"b"`;
  const lines = (name: string) => linesOf(text, `virtkeep_${name}`);
  // the backup is of long ago: late by its age
  expect(lines('vm_protection_state')).toEqual([`{${vm},node="n1",state="late"} 1`]);
  expect(lines('protection_vms')).toContain('{state="late"} 1');
  expect(lines('vm_last_good_backup_timestamp_seconds')).toEqual([`{${vm}} ${CREATED.getTime() / 1000}`]);
  expect(lines('vm_last_backup_read_bytes')).toEqual([`{${vm}} 4096`]);
  expect(lines('vm_last_backup_written_bytes')).toEqual([`{${vm}} 5000`]);
  expect(lines('vm_last_backup_duration_seconds')).toEqual([expect.stringMatching(/\} \d+(\.\d+)?$/)]);
  expect(lines('task_failures_total')).toEqual(['{task="domain_backup",error="disk_full"} 1']);
  expect(lines('tasks_ended_total')).toContain('{task="domain_backup",status="SUCCESS"} 1');
  expect(lines('pool_free_bytes')).toEqual([`{id="${pool.id}",pool="bulk",type="local"} 9000000000`]);
  expect(lines('pool_active')).toEqual([expect.stringMatching(/ 1$/)]);
  expect(lines('node_connected')).toEqual([`{id="${agent.id}",node="n1"} 1`]);
});

test('scheduled tasks, their queue and undelivered notifications are told through their sources', async () => {
  giveSources();
  const text = await metrics();
  const lines = (name: string) => linesOf(text, `virtkeep_${name}`);
  expect(lines('schedule_next_run_timestamp_seconds')).toEqual([
    `{id="s1",schedule="nightly"} ${DUE / 1000}`,
  ]);
  expect(lines('schedule_last_duration_seconds')).toEqual(['{id="s1",schedule="nightly"} 1.5']);
  expect(lines('queue_length')).toEqual(['2']);
  expect(lines('queue_oldest_timestamp_seconds')).toEqual([`${DUE / 1000}`]);
  expect(lines('notification_dead_letters')).toEqual(['3']);
});

test('Prometheus itself finds nothing to say of the text', async () => {
  giveSources();
  const input = await metrics();
  const found = await run([promtool, 'check', 'metrics'], { input }).catch((error: unknown) => {
    if (!(error instanceof CommandFailed)) throw error;
    return error;
  });
  // those of the process have the names that prom-client gives them
  const lines = `${found.stdout}${found.stderr}`.split('\n').filter(Boolean);
  expect(lines.filter(line => !line.startsWith('virtkeep_controller_nodejs_'))).toEqual([]);
});

test('the alerts are sound, and each fires when it should', async () => {
  await run([promtool, 'check', 'rules', join(DOCS, 'virtkeep.rules.yml')]);
  const { stdout, stderr } = await run([promtool, 'test', 'rules', join(DOCS, 'virtkeep.rules.test.yml')]);
  expect(`${stdout}${stderr}`).toContain('SUCCESS');
  const alerts = [...read('virtkeep.rules.yml').matchAll(/alert: (\w+)/g)].map(([, name]) => name);
  const tested = read('virtkeep.rules.test.yml');
  expect(alerts.filter(name => !tested.includes(`alertname: ${name}\n`))).toEqual([]);
});

test('alerts and dashboard go by metrics that there are, and the table names all of ours', async () => {
  giveSources();
  const names = namesOf(await metrics());
  const unknown = (text: string) =>
    [...text.matchAll(/\bvirtkeep_\w+/g)]
      .map(([name]) => name.replace(/_(bucket|sum|count)$/, ''))
      .filter(name => !names.has(name));
  const dashboard = JSON.parse(read('virtkeep.dashboard.json')) as {
    panels: { title: string; targets: { expr: string }[] }[];
  };
  const queries = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  expect(queries.length).toBeGreaterThan(15);
  expect(queries.flatMap(unknown)).toEqual([]);
  expect(queries.filter(query => !query.includes('virtkeep_'))).toEqual([]);
  const expressions = [...read('virtkeep.rules.yml').matchAll(/expr: (.*)/g)].map(([, expr = '']) => expr);
  expect(expressions.flatMap(unknown)).toEqual([]);
  const table = read('README.md');
  const stem = (name: string) => name.replace(/^virtkeep_(pool|schedule|controller)_.*/, 'virtkeep_$1_');
  expect([...names].filter(name => !table.includes(stem(name)))).toEqual([]);
});
