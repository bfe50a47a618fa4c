/** What a copy of the database tells of the targets' secrets: nothing. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type Certificate, MailServer, newCertificate, WebhookReceiver } from './receivers.ts';
import { PASSWORD, SECRET, World } from './world.ts';

let world: World;
let certificate: Certificate;
let mail: MailServer;
let hook: WebhookReceiver;

beforeAll(async () => {
  certificate = await newCertificate();
  world = await new World().open();
  mail = await new MailServer({ certificate, login: { user: 'virtkeep', password: PASSWORD } }).start();
  hook = await new WebhookReceiver(certificate).start();
  await world.addMail(mail);
  await world.addWebhook(hook, certificate.ca);
  await world.raise('run 1');
  await world.deliver();
});
afterAll(async () => {
  await world.close();
  await mail.stop();
  await hook.stop();
});

test('neither password nor secret nor address stand in its files', async () => {
  expect(mail.mails).toHaveLength(1);
  expect(hook.requests).toHaveLength(1);
  const all = await world.database!.contents();
  expect(all).toContain('virtkeep@example.org');
  for (const secret of [PASSWORD, SECRET, '/hook?x=1'])
    for (const form of [secret, Buffer.from(secret).toString('base64'), Buffer.from(secret).toString('hex')])
      expect(all).not.toContain(form);
});

test('with another key of the controller they do not open; targets say so, and can be set anew', async () => {
  world.key = Buffer.alloc(32, 6);
  await world.restart();
  const [target] = (await world.service.targets.list()).filter(({ kind }) => kind === 'webhook');
  expect(target!.webhook).toEqual({ url: new URL(hook.url).origin, has_secret: false, ca: certificate.ca });
  expect(await world.service.test(target!.id, 'admin', world.now)).toMatchObject({
    delivered: false,
    reason: expect.stringContaining('sealed with another key'),
  });
  await expect(
    world.service.targets.update(target!.id, { webhook: { secret: SECRET } }, world.now),
  ).rejects.toThrow('"webhook.url" is required');
  await world.service.targets.update(target!.id, { webhook: { url: hook.url, secret: SECRET } }, world.now);
  expect(await world.service.test(target!.id, 'admin', world.now)).toEqual({ delivered: true, reason: '' });
  const [letters] = (await world.service.targets.list()).filter(({ kind }) => kind === 'mail');
  await expect(
    world.service.targets.update(letters!.id, { mail: { to: ['x@example.org'] } }, world.now),
  ).rejects.toThrow('"mail.password" is required');
});
