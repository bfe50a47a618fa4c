/** Targets and the outbox over REST, and where their secrets do not appear. */
import { Writable } from 'node:stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { logLine } from '@virtkeep/shared/log';
import winston from 'winston';
import { EXAMPLE_DATA } from '../../../controller/src/services/notifications/events.ts';
import {
  type Certificate,
  isSigned,
  MailServer,
  newCertificate,
  WebhookReceiver,
} from '../notifications/receivers.ts';
import { makeRestApp, type RestApp } from './app.ts';

const TARGETS = '/api/notification-targets/';
const SECRET = 'rest-webhook-secret-91c2';
const PASSWORD = 'rest-mail-password-44d0';
const PATH_SECRET = 'T0K3N-in-the-path';

let rest: RestApp;
let certificate: Certificate;
let hook: WebhookReceiver;
const logged: string[] = [];

beforeAll(async () => {
  certificate = await newCertificate();
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      logged.push(String(chunk));
      done();
    },
  });
  const log = winston.createLogger({
    level: 'debug',
    format: winston.format.printf(info => logLine(info)),
    transports: [new winston.transports.Stream({ stream })],
  });
  rest = await makeRestApp({}, undefined, { log });
});
afterAll(() => rest.close());
beforeEach(async () => {
  hook = await new WebhookReceiver(certificate).start();
});
afterEach(async () => {
  await hook.stop();
  for (const { id } of (await rest.call('GET', TARGETS)).body.results) await post(`${TARGETS}${id}/remove/`);
});

const post = (path: string, body: object = {}) => rest.call('POST', path, { body });
const put = (path: string, body: object) => rest.call('PUT', path, { body });
const mail = (fields: object = {}) => ({
  verbose_name: 'administrators',
  events: ['run_failed'],
  mail: { host: 'localhost', port: 9, from: 'virtkeep@example.org', to: ['a@example.org'], ...fields },
});
const webhook = (fields: object = {}) => ({
  verbose_name: 'chat',
  events: ['run_failed', 'summary'],
  webhook: {
    url: `https://localhost:${hook.port}/${PATH_SECRET}`,
    secret: SECRET,
    ca: certificate.ca,
    ...fields,
  },
});
const raise = (key: string, now = new Date()) =>
  rest.services.notifications.raise({ event: 'run_failed', data: EXAMPLE_DATA.run_failed }, { key, now });
const reasons = ({ body }: { body: { errors: { msg_key: string; field?: string }[] } }) =>
  body.errors.map(({ msg_key, field }) => `${msg_key} ${field ?? ''}`.trim());

describe('a target', () => {
  test('is made, shown, listed, changed and removed', async () => {
    const made = await post(TARGETS, mail({ username: 'virtkeep', password: PASSWORD }));
    expect(made.status).toBe(200);
    expect(made.body).toMatchObject({
      verbose_name: 'administrators',
      kind: 'mail',
      enabled: true,
      events: ['run_failed'],
      templates: {},
      mail: {
        host: 'localhost',
        port: 9,
        security: 'starttls',
        username: 'virtkeep',
        has_password: true,
        ca: '',
      },
      webhook: null,
      pending: 0,
      dead: 0,
      permissions: ['update', 'remove', 'test'],
    });
    const path = `${TARGETS}${made.body.id}/`;
    expect((await rest.call('GET', path)).body).toEqual(made.body);
    const templates = { run_failed: { subject: '{{task.verbose_name}}!' } };
    const changed = await put(path, {
      enabled: false,
      events: ['summary'],
      templates,
      mail: { to: ['b@example.org'] },
    });
    expect(changed.body).toMatchObject({
      enabled: false,
      events: ['summary'],
      templates,
      mail: { to: ['b@example.org'], username: 'virtkeep', has_password: true },
    });
    await post(TARGETS, webhook());
    const { body } = await rest.call('GET', `${TARGETS}?ordering=-verbose_name&fields=verbose_name,kind`);
    expect(body.results).toEqual([
      { verbose_name: 'chat', kind: 'webhook' },
      { verbose_name: 'administrators', kind: 'mail' },
    ]);
    expect((await post(`${path}remove/`)).body).toEqual({});
    expect(reasons(await rest.call('GET', path))).toEqual(['notification_target_not_found']);
  });

  test('has a name of its own, and is one thing or the other', async () => {
    const { id } = (await post(TARGETS, mail())).body;
    expect(reasons(await post(TARGETS, { ...webhook(), verbose_name: 'administrators' }))).toEqual([
      'name_taken verbose_name',
    ]);
    expect(reasons(await post(TARGETS, { ...mail(), ...webhook() }))).toEqual(['conflicting_fields']);
    expect(reasons(await post(TARGETS, { verbose_name: 'x' }))).toEqual(['missing_field mail']);
    expect(reasons(await put(`${TARGETS}${id}/`, { webhook: { secret: SECRET } }))).toEqual([
      'invalid_field webhook',
    ]);
  });

  test.each([
    'a@example.org\r\nBcc: eve@example.org',
    'a@example.org, eve@example.org',
    'Eve <eve@example.org>',
    '"a"@example.org',
    'a@[10.0.0.1]',
    'a b@example.org',
    'a@b@example.org',
    'nobody',
    '',
  ])('takes no recipient or sender like %j', async address => {
    expect(reasons(await post(TARGETS, mail({ to: ['a@example.org', address] })))).toEqual([
      'invalid_field mail.to.1',
    ]);
    expect(reasons(await post(TARGETS, mail({ from: address })))).toEqual(['invalid_field mail.from']);
  });

  test('takes no host with anything else in it', async () => {
    for (const host of ['a b', 'a\r\nb', 'http://a', 'a/b', ''])
      expect(reasons(await post(TARGETS, mail({ host })))).toEqual(['invalid_field mail.host']);
  });

  test('says what is wrong with a template, and where', async () => {
    const answer = await post(TARGETS, {
      ...mail(),
      templates: { summary: { text: '{{task.verbose_name}}' } },
    });
    expect(reasons(answer)).toEqual(['invalid_field templates.summary.text']);
    expect(answer.body.detail).toContain('names "task"');
    expect(reasons(await post(TARGETS, { ...mail(), templates: { other: {} } }))).toEqual([
      'unknown_field templates.other',
    ]);
  });

  test('in plain is refused, but on this machine', async () => {
    const plain = await post(TARGETS, webhook({ url: 'http://hooks.example.org/' }));
    expect(reasons(plain)).toEqual(['invalid_field webhook.url']);
    expect((await post(TARGETS, webhook({ url: 'http://127.0.0.1:9/' }))).status).toBe(200);
    const login = { username: 'virtkeep', password: PASSWORD, security: 'none' };
    expect(reasons(await post(TARGETS, mail({ ...login, host: 'mail.example.org' })))).toEqual([
      'invalid_field mail.security',
    ]);
  });

  test('there are at most a hundred', async () => {
    for (let number = 0; number < 100; number += 1)
      await post(TARGETS, { ...mail(), verbose_name: `t${number}` });
    expect(reasons(await post(TARGETS, mail()))).toEqual(['too_many_notification_targets']);
  });
});

describe('a test', () => {
  test('of a webhook arrives, signed, by who asked for it', async () => {
    const { id } = (await post(TARGETS, webhook())).body;
    expect((await post(`${TARGETS}${id}/test/`)).body).toEqual({ delivered: true, reason: '' });
    const [request] = hook.requests;
    expect(isSigned(request!, SECRET)).toBe(true);
    expect(JSON.parse(request!.body)).toMatchObject({ event: 'test', data: { user: 'the-administrator' } });
    expect((await rest.call('GET', '/api/notifications/')).body.count).toBe(0);
  });

  test('of a mail with a wrong password says so, without the password', async () => {
    const server = await new MailServer({
      certificate,
      login: { user: 'virtkeep', password: 'other' },
    }).start();
    try {
      const fields = { port: server.port, ca: certificate.ca, username: 'virtkeep', password: PASSWORD };
      const { id } = (await post(TARGETS, mail(fields))).body;
      const { status, body } = await post(`${TARGETS}${id}/test/`);
      expect([status, body.delivered]).toEqual([200, false]);
      expect(body.reason).toContain('535');
      expect(server.passwords).toEqual([PASSWORD]);
    } finally {
      await server.stop();
    }
  });
});

describe('the outbox', () => {
  test('is listed by status, target and event, shown with its data, and tried again', async () => {
    hook.answer = (_request, response) => response.writeHead(500).end();
    const { id } = (await post(TARGETS, webhook())).body;
    const other = (await post(TARGETS, mail())).body.id;
    await raise('run 1');
    await rest.services.notifications.deliver(() => new Date());
    const count = async (query: string) =>
      (await rest.call('GET', `/api/notifications/?${query}`)).body.count;
    expect(await Promise.all(['', 'status=pending', 'status=sent', 'status=dead'].map(count))).toEqual([
      2, 2, 0, 0,
    ]);
    expect(
      await Promise.all(
        [`target=${id}`, `target=${newId()}`, 'event=run_failed', 'event=summary', 'name=failed'].map(count),
      ),
    ).toEqual([1, 0, 2, 0, 2]);
    const short = (await rest.call('GET', `/api/notifications/?target=${id}`)).body.results[0];
    expect(short).toMatchObject({
      target: { id, verbose_name: 'chat' },
      event: 'run_failed',
      key: 'run 1',
      status: 'pending',
      attempts: 1,
      reason: 'the receiver answered 500',
      permissions: ['retry', 'remove'],
    });
    expect(short.data).toBeUndefined();
    const path = `/api/notifications/${short.id}/`;
    expect((await rest.call('GET', path)).body).toEqual({ ...short, data: EXAMPLE_DATA.run_failed });
    expect(
      (await rest.call('GET', `/api/notifications/?target=${id}&all_content=1`)).body.results[0].data,
    ).toEqual(EXAMPLE_DATA.run_failed);
    hook.answer = (_request, response) => response.writeHead(200).end();
    const again = await post(`${path}retry/`);
    expect(again.body).toMatchObject({ status: 'pending', attempts: 0 });
    await rest.services.notifications.deliver(() => new Date());
    expect((await rest.call('GET', path)).body).toMatchObject({ status: 'sent', permissions: ['remove'] });
    expect(reasons(await post(`${path}retry/`))).toEqual(['notification_sent']);
    expect(reasons(await post(`/api/notifications/${newId()}/retry/`))).toEqual(['notification_not_found']);
    expect((await rest.call('GET', `${TARGETS}${other}/`)).body).toMatchObject({ pending: 1, dead: 0 });
  });
});

test('secrets are in no answer, audit record, stored key, event or line of the log', async () => {
  const idempotency_key = newId();
  const bodies = [
    { ...mail({ username: 'virtkeep', password: PASSWORD }), idempotency_key },
    { ...webhook(), idempotency_key: newId() },
  ];
  const made = [];
  for (const body of bodies) made.push(await post(TARGETS, body));
  // the same again, from memory
  expect((await post(TARGETS, bodies[0]!)).body).toEqual(made[0]!.body);
  const [mailId, hookId] = made.map(({ body }) => body.id);
  const answers = [
    ...made,
    await put(`${TARGETS}${mailId}/`, { mail: { password: `${PASSWORD}-2` } }),
    await put(`${TARGETS}${hookId}/`, { webhook: { secret: `${SECRET}-2` } }),
    await put(`${TARGETS}${hookId}/`, { webhook: { secret: SECRET, colour: SECRET } }),
    await put(`${TARGETS}${mailId}/`, { mail: { host: 'elsewhere.example.org' } }),
    await post(`${TARGETS}${mailId}/test/`),
    await rest.call('GET', TARGETS),
    await rest.call('GET', '/api/audit/?limit=1000'),
    await rest.call('GET', '/api/events/?limit=1000'),
    await rest.call('GET', '/api/notifications/?all_content=1'),
  ];
  hook.answer = (_request, response) => response.writeHead(500).end();
  await raise('secrets');
  await rest.services.notifications.deliver(() => new Date());
  expect(reasons(answers[4]!)).toEqual(['unknown_field webhook.colour']);
  const { db } = rest.services;
  const rows = JSON.stringify([
    await db.selectFrom('idempotency').selectAll().execute(),
    await db.selectFrom('audit').selectAll().execute(),
    await db.selectFrom('notification_targets').selectAll().execute(),
    await db.selectFrom('notifications').selectAll().execute(),
  ]);
  const all = [...answers.map(({ text }) => text), rows, ...logged].join('\n');
  expect(logged.join('')).toContain('notification not delivered');
  for (const secret of [PASSWORD, SECRET]) expect(all).not.toContain(secret);
  // an address may be a secret, too: administrators see it in a target, nobody in the audit
  expect(made[1]!.text).toContain(PATH_SECRET);
  expect([rows, ...logged, answers.at(-3)!.text].join('\n')).not.toContain(PATH_SECRET);
  expect(rows).toContain('[redacted]');
});
