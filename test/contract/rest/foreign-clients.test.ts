/** The main job by small clients that behave as those of the API family do, with a scripted agent behind the server. */
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { type ClientWorld, clientWorld, type Job } from '../clients/honest-agent.ts';
import { integer, object, text } from '../clients/kinds.ts';
import { python } from '../clients/python.ts';
import { StrictClient } from '../clients/strict-client.ts';
import { PASSWORD, type RestApp } from './app.ts';
import { stopAll } from './nodes-world.ts';

const PYTHON_CLIENT = fileURLToPath(new URL('../clients/main_job.py', import.meta.url));

let rest: RestApp;
let world: ClientWorld;
let url: string;
let job: Job;

beforeAll(async () => {
  world = await clientWorld();
  ({ rest, url } = world);
});
beforeEach(async () => {
  job = await world.job();
});
afterAll(() => stopAll(rest));

test('one in Python that sends async, an idempotency key and headers of its own with everything', async () => {
  const { domain, borrower, vdisk, datapool } = job;
  const parameters = [url, 'the-administrator', PASSWORD, domain, borrower, vdisk, datapool];
  const { stdout } = await python([PYTHON_CLIENT, ...parameters]);
  const made = JSON.parse(stdout) as { file: string; restored: string };
  expect((await rest.call('GET', `/api/library/${made.file}/`)).body.status).toBe('ACTIVE');
  expect((await rest.call('GET', `/api/domains/${made.restored}/`)).body.tags).toMatchObject([
    { verbose_name: `of ${made.restored}` },
  ]);
});

test('one whose types are strict', async () => {
  const client = new StrictClient(url);
  await client.login('the-administrator', PASSWORD);
  const { restored, lent, tags } = await client.mainJob(job);
  expect(lent).toEqual([job.vdisk]);
  expect(tags).toEqual([`of ${restored}`]);
});

test('strict types refuse a wrong kind, and say where', () => {
  const user = object({ user: object({ id: integer, username: text }) });
  expect(() => user({ user: { id: '7', username: 'x' } }, 'task')).toThrow(
    'task.user.id is "7", not an integer',
  );
});
