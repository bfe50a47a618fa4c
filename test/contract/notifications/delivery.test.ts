/** Notifications on their way to real receivers, and what becomes of them when these fail. */

import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { EXAMPLE_DATA } from '../../../controller/src/services/notifications/events.ts';
import { waitFor } from '../../lab/run.ts';
import { python } from '../clients/python.ts';
import {
  type Certificate,
  isSigned,
  MailServer,
  type MailServerOptions,
  newCertificate,
  WebhookReceiver,
} from './receivers.ts';
import { PASSWORD, RUN_FAILED, SECRET, World } from './world.ts';

const LOGIN = { user: 'virtkeep', password: PASSWORD };

let certificate: Certificate;
let foreign: Certificate;
let world: World;
const stops: (() => Promise<void>)[] = [];

beforeAll(async () => {
  certificate = await newCertificate();
  foreign = await newCertificate();
});
beforeEach(async () => {
  world = await new World().open();
});
afterEach(async () => {
  await world.close();
  for (const stop of stops.splice(0)) await stop();
});

async function mailServer(options: Partial<MailServerOptions> = {}): Promise<MailServer> {
  const server = await new MailServer({ certificate, login: LOGIN, ...options }).start();
  stops.push(() => server.stop());
  return server;
}

async function receiver(): Promise<WebhookReceiver> {
  const server = await new WebhookReceiver(certificate).start();
  stops.push(() => server.stop());
  return server;
}

/** A server that does as it likes with who connects. */
async function tcpServer(onSocket: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server: Server = createServer(socket => {
    sockets.add(socket);
    socket.on('error', () => {});
    onSocket(socket);
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  stops.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise(resolve => server.close(() => resolve()));
  });
  return (server.address() as AddressInfo).port;
}

/** The Python of docs/notifications.md. */
function documentedCheck(): string {
  const text = readFileSync(new URL('../../../docs/notifications.md', import.meta.url), 'utf8');
  return /```python\n(.*?)```/s.exec(text)![1]!;
}

const idsOf = ({ requests }: WebhookReceiver) => requests.map(({ headers }) => headers['webhook-id']);

describe('a mail', () => {
  test.each([false, true])('arrives over TLS after a login (TLS from the first byte: %s)', async implicit => {
    const server = await mailServer({ implicit });
    await world.addMail(server);
    expect(await world.raise('run 1')).toBe(1);
    await world.deliver();
    const { id, status } = await world.single();
    expect(status).toBe('sent');
    expect(server.mails).toHaveLength(1);
    const { headers, text, ...envelope } = server.mails[0]!;
    expect(envelope).toEqual({
      from: 'virtkeep@example.org',
      to: ['one@example.org', 'two@example.org'],
      secure: true,
      user: 'virtkeep',
    });
    expect(headers).toMatchObject({
      from: ['virtkeep <virtkeep@example.org>'],
      to: ['one@example.org, two@example.org'],
      subject: ['Backup "nightly" failed'],
      'message-id': [`<${id}@example.org>`],
      'auto-submitted': ['auto-generated'],
      'x-virtkeep-event': ['run_failed'],
    });
    expect(text).toContain('db-1: failed\n    No space left on the device');
    expect(text).toContain('https://backup.example.org');
  });

  test('that cannot be delivered since nobody listens, or nobody has that name, says so', async () => {
    const server = await mailServer();
    await server.stop();
    const { id } = await world.addMail(server);
    const test = async () => (await world.service.test(id, 'admin', world.now)).reason;
    expect(await test()).toMatch(/ECONNREFUSED/);
    const mail = { host: 'no-such-host.invalid', password: PASSWORD };
    await world.service.targets.update(id, { mail }, world.now);
    expect(await test()).toMatch(/ENOTFOUND|EAI_AGAIN/);
  });

  test('has one subject and the recipients that it should, whatever a task is called', async () => {
    const server = await mailServer();
    await world.addMail(server);
    const task = { id: '', verbose_name: 'x\r\nBcc: eve@example.org\r\nSubject: y\r\n\r\nbody' };
    await world.raise('run 1', { event: 'run_failed', data: { ...EXAMPLE_DATA.run_failed, task } });
    await world.deliver();
    const { headers, to } = server.mails[0]!;
    expect(to).toEqual(['one@example.org', 'two@example.org']);
    expect(headers.bcc).toBeUndefined();
    expect(headers.subject).toEqual(['Backup "x Bcc: eve@example.org Subject: y body" failed']);
  });

  test('with a wrong password waits for the right one, and the password is told to nobody', async () => {
    const server = await mailServer();
    const { id } = await world.addMail(server, { password: 'wrong-password-1b2c' });
    await world.raise('run 1');
    await world.deliver();
    const { status, reason, attempts } = await world.single();
    expect({ status, attempts }).toEqual({ status: 'pending', attempts: 1 });
    // the server told it in its answer
    expect(reason).toContain('Authentication failed for [redacted]');
    expect(JSON.stringify(await world.outbox())).not.toContain('wrong-password');
    await world.service.targets.update(id, { mail: { password: PASSWORD } }, world.now);
    await world.pass(1);
    expect(server.mails).toHaveLength(1);
    expect(await world.single()).toMatchObject({ status: 'sent', attempts: 2, reason: '' });
  });

  test.each([
    ['the system trusts nobody who signed it', ''],
    ['it is signed by another than the one that is pinned', 'foreign'],
  ])('is not sent to a server whose certificate is not trusted: %s', async (_why, ca) => {
    const server = await mailServer();
    await world.addMail(server, { ca: ca === '' ? '' : foreign.ca });
    await world.raise('run 1');
    await world.deliver();
    expect((await world.single()).reason).toMatch(/certificate/i);
    expect(server.mails).toEqual([]);
    expect(server.passwords).toEqual([]);
  });

  test('is sent to a server whose own certificate is the one that is trusted', async () => {
    const [server, hook] = [await mailServer(), await receiver()];
    await world.addMail(server, { ca: certificate.leaf });
    await world.addWebhook(hook, certificate.leaf);
    await world.raise('run 1');
    await world.deliver();
    expect([server.mails.length, hook.requests.length]).toEqual([1, 1]);
  });

  test('is not sent in plain to a server that offers no TLS, nor without the login that was set', async () => {
    const poor = await mailServer({ poor: true });
    await world.addMail(poor);
    await world.raise('run 1');
    await world.deliver();
    expect((await world.single()).reason).toMatch(/TLS/);
    const target = (await world.service.targets.list())[0]!;
    await world.service.targets.update(
      target.id,
      { mail: { security: 'none', port: poor.port, password: PASSWORD } },
      world.now,
    );
    await world.pass(1);
    expect(await world.single()).toMatchObject({ status: 'pending', attempts: 2 });
    expect(poor.mails).toEqual([]);
  });

  test('goes to a server without TLS and logins when that is what was set', async () => {
    const poor = await mailServer({ poor: true, login: undefined as never });
    await world.addMail(poor, { security: 'none' });
    await world.raise('run 1');
    await world.deliver();
    expect(poor.mails).toMatchObject([{ secure: false }]);
  });

  test('that one of its recipients is refused is sent once, and says so', async () => {
    const server = await mailServer({
      refused: { 'two@example.org': { code: 550, text: 'no such user' } },
    });
    await world.addMail(server);
    await world.raise('run 1');
    await world.deliver();
    expect(await world.single()).toMatchObject({
      status: 'sent',
      reason: 'the server refused two@example.org',
    });
    expect(server.mails[0]!.to).toEqual(['one@example.org']);
  });

  describe('that the server puts off for one of its recipients', () => {
    const [ONE, TWO, THREE] = ['one@example.org', 'two@example.org', 'three@example.org'];
    const putOff = { code: 450, text: 'greylisted' };
    const noSuchUser = { code: 550, text: 'no such user' };
    let server: MailServer;

    const sendTo = async (refused: NonNullable<MailServerOptions['refused']>, to = [ONE, TWO]) => {
      server = await mailServer({ refused });
      const { id } = await world.addMail(server, { to });
      await world.raise('run 1');
      await world.deliver();
      return id;
    };
    const recipients = () => server.mails.map(({ to }) => to);

    test('reaches that one later, and nobody twice, also over a restart', async () => {
      await sendTo({ [TWO]: putOff });
      expect(await world.single()).toMatchObject({
        status: 'pending',
        attempts: 1,
        reason: 'the server put off two@example.org: 450 greylisted',
      });
      await world.pass(1);
      await world.restart();
      await world.pass(1);
      expect(await world.single()).toMatchObject({ status: 'pending', attempts: 2 });
      server.options.refused = {};
      await world.pass(60);
      expect(await world.single()).toMatchObject({ status: 'sent', attempts: 3, reason: '' });
      expect(recipients()).toEqual([[ONE], [TWO]]);
      const [first, second] = server.mails;
      expect(second!.headers).toEqual(first!.headers);
    });

    test('is written to an address as it was given, and recognised in the form that the server is told', async () => {
      await sendTo({ [TWO]: putOff }, ['One.O@Example.ORG', TWO]);
      server.options.refused = {};
      await world.pass(2);
      expect(recipients()).toEqual([['One.O@example.org'], [TWO]]);
    });

    test('is not written again to an address that the server was told in quotes', async () => {
      await sendTo({ [TWO]: putOff }, ['one..o.@example.org', TWO]);
      // as the library says that it was accepted; the server of these tests takes none in quotes
      await world.db
        .updateTable('notifications')
        .set({ reached_json: JSON.stringify(['"one..o."@example.org']) })
        .execute();
      server.options.refused = {};
      await world.pass(2);
      expect(recipients()).toEqual([[TWO]]);
      expect(await world.single()).toMatchObject({ status: 'sent', reason: '' });
    });

    test('does not keep another message waiting, is given up after three days, and is tried for that one when asked', async () => {
      await sendTo({ [TWO]: putOff });
      await world.raise('run 2');
      await world.deliver();
      expect(recipients()).toEqual([[ONE], [ONE]]);
      const waiting = async () => (await world.outbox()).find(({ status }) => status === 'pending');
      for (let next = await waiting(); next !== undefined; next = await waiting()) {
        world.now = new Date(next.next_attempt!);
        await world.deliver();
      }
      const dead = await world.outbox();
      expect(dead.map(({ status, attempts }) => [status, attempts])).toEqual([
        ['dead', 78],
        ['dead', 78],
      ]);
      server.options.refused = {};
      await world.service.outbox.retry(dead[0]!.id, world.now);
      await world.deliver();
      expect(recipients()).toEqual([[ONE], [ONE], [TWO]]);
    });

    test('is sent when all others have it, whom it is put off for is refused in the end, and says so', async () => {
      await sendTo({ [TWO]: putOff, [THREE]: noSuchUser }, [ONE, TWO, THREE]);
      expect(await world.single()).toMatchObject({
        status: 'pending',
        reason: 'the server refused three@example.org; the server put off two@example.org: 450 greylisted',
      });
      server.options.refused = { [TWO]: noSuchUser, [THREE]: noSuchUser };
      await world.pass(2);
      expect(await world.single()).toMatchObject({
        status: 'sent',
        reason: 'the server refused two@example.org, three@example.org',
      });
      expect(recipients()).toEqual([[ONE]]);
    });

    test('is sent when that one is to be told no more', async () => {
      const id = await sendTo({ [TWO]: putOff });
      const mail = { to: [ONE], password: PASSWORD };
      await world.service.targets.update(id, { mail }, world.now);
      await world.pass(2);
      expect(await world.single()).toMatchObject({ status: 'sent', reason: '' });
      expect(recipients()).toEqual([[ONE]]);
    });

    test('is sent to nobody when all are put off, and to all later', async () => {
      await sendTo({ [ONE]: putOff, [TWO]: noSuchUser });
      expect(await world.single()).toMatchObject({ status: 'pending', attempts: 1 });
      server.options.refused = {};
      await world.pass(2);
      expect(recipients()).toEqual([[ONE, TWO]]);
    });

    test('has arrived where it was a test, which is not sent again, and says so', async () => {
      const id = await sendTo({ [TWO]: putOff });
      expect(await world.service.test(id, 'admin', world.now)).toEqual({
        delivered: true,
        reason: 'the server put off two@example.org: 450 greylisted',
      });
      server.options.refused = { [ONE]: putOff, [TWO]: putOff };
      expect(await world.service.test(id, 'admin', world.now)).toMatchObject({ delivered: false });
    });
  });

  test.each<[string, (socket: Socket) => void]>([
    ['says nothing', () => {}],
    [
      'never ends its greeting',
      socket => void setInterval(() => socket.write('220-still here\r\n'), 20).unref(),
    ],
    [
      'sends megabytes without an end',
      socket => {
        const more = () => {
          while (!socket.destroyed && socket.write('x'.repeat(65_536)));
          if (!socket.destroyed) socket.once('drain', more);
        };
        more();
      },
    ],
  ])('to a server that %s fails in time and is tried again', async (_what, onSocket) => {
    world.sendTimeoutMs = 500;
    await world.restart();
    const server = new MailServer({ certificate });
    server.port = await tcpServer(onSocket);
    await world.addMail(server);
    await world.raise('run 1');
    await world.deliver();
    expect(await world.single()).toMatchObject({ status: 'pending', attempts: 1 });
    expect((await world.single()).reason).not.toBe('');
  });
});

describe('a webhook', () => {
  test('arrives signed, with all that is to be known', async () => {
    const hook = await receiver();
    await world.addWebhook(hook, certificate.ca);
    await world.raise('run 1');
    await world.deliver();
    const { id, created } = await world.single();
    const [request, ...others] = hook.requests;
    expect(others).toEqual([]);
    expect(request).toMatchObject({
      path: '/hook?x=1',
      headers: {
        'content-type': 'application/json',
        'user-agent': 'virtkeep',
        'webhook-id': id,
        'webhook-timestamp': String(world.now.getTime() / 1000),
      },
    });
    expect(isSigned(request!, SECRET)).toBe(true);
    expect(isSigned(request!, 'another secret')).toBe(false);
    expect(JSON.parse(request!.body)).toEqual({
      id,
      event: 'run_failed',
      created,
      controller: 'https://backup.example.org',
      subject: 'Backup "nightly" failed',
      text: expect.stringContaining('db-1: failed'),
      data: EXAMPLE_DATA.run_failed,
    });
    expect(request!.body).not.toContain(SECRET);
  });

  test('is recognised by the check that the documentation gives', async () => {
    const hook = await receiver();
    for (const secret of [SECRET, `whsec_${Buffer.from(SECRET).toString('base64')}`])
      await world.addWebhook(hook, certificate.ca, { secret }, secret);
    await world.raise('run 1');
    await world.deliver();
    for (const { headers, body } of hook.requests) {
      const check = `print(is_ours(headers, body.encode(), secret, lambda: ${world.now.getTime() / 1000}))`;
      const given = (values: object) =>
        `import json; globals().update(json.loads(${JSON.stringify(JSON.stringify(values))}))`;
      const secrets = [
        SECRET,
        `whsec_${Buffer.from(SECRET).toString('base64')}`,
        'another secret, which is wrong',
      ];
      const answers = await Promise.all(
        secrets.map(secret =>
          python(['-c', [documentedCheck(), given({ headers, body, secret }), check].join('\n')]),
        ),
      );
      expect(answers.map(({ stdout }) => stdout.trim())).toEqual(['True', 'True', 'False']);
    }
    expect(hook.requests).toHaveLength(2);
  });

  test('is not sent to a receiver whose certificate is not trusted', async () => {
    const hook = await receiver();
    await world.addWebhook(hook, '');
    await world.raise('run 1');
    await world.deliver();
    expect(await world.single()).toMatchObject({
      status: 'pending',
      reason: expect.stringMatching(/certificate/),
    });
    expect(hook.requests).toEqual([]);
  });

  test('follows no redirect', async () => {
    const hook = await receiver();
    hook.answer = (_request, response) => response.writeHead(307, { location: hook.url }).end();
    await world.addWebhook(hook, certificate.ca);
    await world.raise('run 1');
    await world.deliver();
    expect(hook.requests).toHaveLength(1);
    expect((await world.single()).reason).toBe('the receiver answered 307; redirects are not followed');
  });

  test('does not wait for a receiver that hangs, nor is another target kept waiting by it', async () => {
    const late = new AbortController();
    const time = jest.spyOn(AbortSignal, 'timeout').mockReturnValue(late.signal);
    const [hanging, other] = [await receiver(), await receiver()];
    hanging.answer = () => {};
    const target = await world.addWebhook(hanging, certificate.ca);
    await world.addWebhook(other, certificate.ca);
    for (const number of [1, 2, 3]) await world.raise(`run ${number}`);
    const round = world.deliver();
    const sent = async () => (await world.outbox()).filter(({ status }) => status === 'sent').length;
    await waitFor('what the other one gets', async () => (await sent()) === 3, 120_000);
    // its time is over when the others have had theirs, however slow the machine is
    late.abort();
    await round;
    time.mockRestore();
    expect(other.requests).toHaveLength(3);
    // one attempt a round finds that a target cannot be reached, and counts for all that waits for it
    expect(hanging.requests).toHaveLength(1);
    const waiting = (await world.outbox()).filter(({ target: { id } }) => id === target.id);
    expect(waiting.map(({ attempts, reason }) => [attempts, reason])).toEqual(
      Array(3).fill([1, 'it took longer than 20 s']),
    );
  });

  test('many for a receiver that refuses them slowly keep no other target waiting, and each is signed when it is sent', async () => {
    const [slow, other] = [await receiver(), await receiver()];
    const held: (() => void)[] = [];
    let next = Promise.withResolvers<void>();
    slow.answer = (_request, response) => {
      held.push(() => response.writeHead(503).end());
      next.resolve();
    };
    const began = Math.trunc(world.now.getTime() / 1000);
    await world.addWebhook(slow, certificate.ca);
    for (const number of [1, 2, 3]) await world.raise(`run ${number}`);
    const round = world.deliver();
    await next.promise;
    const arrived = new Promise<void>(resolve => {
      other.answer = (_request, response) => {
        response.writeHead(204).end();
        resolve();
      };
    });
    await world.addWebhook(other, certificate.ca);
    world.now = new Date((began + 1) * 1000);
    await world.raise('run 4');
    const another = world.deliver();
    await arrived;
    expect(slow.requests).toHaveLength(1);
    for (const minute of [1, 2]) {
      next = Promise.withResolvers();
      world.now = new Date((began + minute * 60) * 1000);
      held.pop()!();
      await next.promise;
    }
    held.pop()!();
    await Promise.all([round, another]);
    const times = slow.requests.map(({ headers }) => Number(headers['webhook-timestamp']) - began);
    // what was raised meanwhile waits for another round, and so does what was refused
    expect(times).toEqual([0, 60, 120]);
    expect(slow.requests.every(request => isSigned(request, SECRET))).toBe(true);
    const refused = (await world.outbox()).filter(({ reason }) => reason !== '');
    expect(refused.map(({ next_attempt }) => Date.parse(next_attempt!) / 1000 - began)).toEqual([
      120, 180, 180,
    ]);
  });

  test('takes nothing of an answer of megabytes', async () => {
    const hook = await receiver();
    const closed = new Promise<void>(resolve => {
      hook.answer = (_request, response) => {
        response.on('close', resolve).writeHead(200);
        const more = () => {
          while (!response.destroyed && response.write('x'.repeat(65_536)));
          if (!response.destroyed) response.once('drain', more);
        };
        more();
      };
    });
    await world.addWebhook(hook, certificate.ca);
    await world.raise('run 1');
    await world.deliver();
    expect((await world.single()).status).toBe('sent');
    await closed;
  });

  test('one that a receiver refuses does not keep the next ones waiting', async () => {
    const hook = await receiver();
    hook.answer = ({ body }, response) => response.writeHead(body.includes('"poison"') ? 400 : 200).end();
    await world.addWebhook(hook, certificate.ca);
    const data = { ...EXAMPLE_DATA.run_failed, reason: 'poison' };
    await world.raise('run 1', { event: 'run_failed', data });
    await world.raise('run 2');
    await world.deliver();
    expect((await world.outbox()).map(({ status, reason }) => [status, reason])).toEqual([
      ['pending', 'the receiver answered 400'],
      ['sent', ''],
    ]);
  });
});

describe('the outbox', () => {
  test('a mail and a webhook arrive, once, after both were down for an hour and the controller was restarted in between', async () => {
    const [server, hook] = [await mailServer(), await receiver()];
    await world.addMail(server);
    await world.addWebhook(hook, certificate.ca);
    await Promise.all([server.stop(), hook.stop()]);
    await world.raise('run 1');
    await world.pass(30);
    await world.restart();
    await world.pass(30);
    expect((await world.outbox()).map(({ status, attempts }) => [status, attempts])).toEqual([
      ['pending', 6],
      ['pending', 6],
    ]);
    await Promise.all([server.start(), hook.start()]);
    await world.pass(60);
    const sent = await world.outbox();
    expect(sent.map(({ status, attempts, reason }) => [status, attempts, reason])).toEqual([
      ['sent', 7, ''],
      ['sent', 7, ''],
    ]);
    expect(server.mails).toHaveLength(1);
    expect(hook.requests).toHaveLength(1);
    expect(isSigned(hook.requests[0]!, SECRET)).toBe(true);
    await world.pass(24 * 60);
    expect([server.mails.length, hook.requests.length]).toEqual([1, 1]);
  });

  test('what a stop breaks off is sent again after the start, under the same id, and counts as no attempt', async () => {
    const hook = await receiver();
    const asked = new Promise<void>(resolve => {
      hook.answer = () => resolve();
    });
    await world.addWebhook(hook, certificate.ca);
    await world.raise('run 1');
    const round = world.deliver();
    await asked;
    await world.restart();
    await round;
    expect(await world.single()).toMatchObject({ status: 'pending', attempts: 0 });
    hook.answer = (_request, response) => response.writeHead(200).end();
    await world.deliver();
    const { id, status } = await world.single();
    expect(status).toBe('sent');
    expect(idsOf(hook)).toEqual([id, id]);
  });

  test('what was received, but whose answer was lost, is sent again under the same id', async () => {
    const hook = await receiver();
    await world.addWebhook(hook, certificate.ca);
    hook.answer = (_request, response) => void response.destroy();
    await world.raise('run 1');
    await world.deliver();
    hook.answer = (_request, response) => response.writeHead(200).end();
    await world.pass(2);
    const { id } = await world.single();
    expect(idsOf(hook)).toEqual([id, id]);
    expect(new Set(hook.requests.map(({ headers }) => headers['webhook-timestamp'])).size).toBe(2);
  });

  test('a target is told once under a key, and only of what it wants', async () => {
    const hook = await receiver();
    const { id } = await world.addWebhook(hook, certificate.ca);
    expect([await world.raise('run 1'), await world.raise('run 1'), await world.raise('run 2')]).toEqual([
      1, 0, 1,
    ]);
    await world.deliver();
    expect(await world.raise('run 1')).toBe(0);
    await world.service.targets.update(id, { events: ['summary'] }, world.now);
    expect(await world.raise('run 3')).toBe(0);
    expect(await world.raise('day', { event: 'summary', data: EXAMPLE_DATA.summary })).toBe(1);
    await world.deliver();
    expect(hook.requests.map(({ body }) => JSON.parse(body).event)).toEqual([
      'run_failed',
      'run_failed',
      'summary',
    ]);
  });

  test('what is raised in a transaction is there when it is, and not otherwise', async () => {
    await world.addWebhook(await receiver(), certificate.ca);
    const during = (key: string, end: () => void) =>
      world.db.transaction().execute(async trx => {
        expect(await world.service.raise(RUN_FAILED, { key, now: world.now }, trx)).toBe(1);
        end();
      });
    await expect(
      during('run 1', () => {
        throw new Error('taken back');
      }),
    ).rejects.toThrow('taken back');
    expect(await world.outbox()).toEqual([]);
    await during('run 2', () => {});
    expect((await world.single()).key).toBe('run 2');
  });

  test('it gives up after three days, says so, and tries again when asked', async () => {
    const hook = await receiver();
    const { id: target } = await world.addWebhook(hook, certificate.ca);
    hook.answer = (_request, response) => response.writeHead(503).end();
    await world.raise('run 1');
    const began = world.now.getTime();
    await world.deliver();
    for (
      let next = (await world.single()).next_attempt;
      next !== null;
      next = (await world.single()).next_attempt
    ) {
      world.now = new Date(next);
      await world.deliver();
    }
    const dead = await world.single();
    expect(dead).toMatchObject({ status: 'dead', attempts: 78, reason: 'the receiver answered 503' });
    expect((world.now.getTime() - began) / 3_600_000).toBeCloseTo(72, -1);
    expect(await world.service.targets.get(target)).toMatchObject({ pending: 0, dead: 1 });
    expect(await world.service.outbox.deadLetters()).toBe(1);
    const page = { ordering: { field: 'created', descending: true }, limit: 10, offset: 0 } as const;
    const { events } = await world.events.list({ ...page, entity: target });
    expect(events).toMatchObject([{ type: 'error', message: expect.stringContaining('was given up') }]);
    hook.answer = (_request, response) => response.writeHead(200).end();
    await world.pass(120);
    expect((await world.single()).status).toBe('dead');
    await world.service.outbox.retry(dead.id, world.now);
    await world.deliver();
    expect(await world.single()).toMatchObject({ status: 'sent', attempts: 1 });
    await expect(world.service.outbox.retry(dead.id, world.now)).rejects.toThrow('was delivered');
    expect(new Set(idsOf(hook)).size).toBe(1);
  });

  test('a target that is switched off is told later, and one that is removed never', async () => {
    const hook = await receiver();
    const { id } = await world.addWebhook(hook, certificate.ca);
    await world.raise('run 1');
    await world.service.targets.update(id, { enabled: false }, world.now);
    expect(await world.raise('run 2')).toBe(0);
    await world.pass(5);
    expect(hook.requests).toEqual([]);
    expect(await world.service.test(id, 'admin', world.now)).toEqual({ delivered: true, reason: '' });
    await world.service.targets.update(id, { enabled: true }, world.now);
    await world.pass(1);
    expect(hook.requests.map(({ body }) => JSON.parse(body).event)).toEqual(['test', 'run_failed']);
    await world.raise('run 3');
    await world.service.targets.remove(id);
    expect(await world.outbox()).toEqual([]);
    await world.pass(5);
    expect(hook.requests).toHaveLength(2);
  });

  test('many for one target are all sent in one round, in their order', async () => {
    const hook = await receiver();
    await world.addWebhook(hook, certificate.ca);
    for (let number = 0; number < 120; number += 1) await world.raise(`run ${number}`);
    await Promise.all([world.deliver(), world.deliver()]);
    expect(idsOf(hook)).toEqual((await world.outbox()).map(({ id }) => id));
  });

  test('old ones are forgotten', async () => {
    await world.addWebhook(await receiver(), certificate.ca);
    await world.raise('run 1');
    await world.deliver();
    world.now = new Date(world.now.getTime() + 1000);
    await world.raise('run 2');
    expect(await world.service.prune(world.now)).toBe(1);
    expect((await world.single()).key).toBe('run 2');
  });
});
