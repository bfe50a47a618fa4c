import { expect, test } from '@jest/globals';
import { type Mail, type MailRequest, mailOf, type WebhookRequest, webhookOf } from './target-settings.ts';

const MAIL: MailRequest = { host: 'mx.example.org', from: 'virtkeep@example.org', to: ['admin@example.org'] };
const LOGIN: MailRequest = { ...MAIL, username: 'virtkeep', password: 'opensesame' };
const HOOK: WebhookRequest = {
  url: 'https://hooks.example.org/x?y=1',
  secret: 'correct horse battery staple',
};

const refusal = (work: () => unknown): string => {
  try {
    work();
  } catch (error) {
    return (error as Error).message;
  }
  return '';
};

test('a mail goes by STARTTLS to its port, unless another is said', () => {
  expect(mailOf(MAIL).settings).toEqual({ ...MAIL, port: 587, security: 'starttls', username: '', ca: '' });
  expect(mailOf({ ...MAIL, security: 'tls' }).settings.port).toBe(465);
  expect(mailOf({ ...MAIL, security: 'none' }).settings.port).toBe(25);
  expect(mailOf({ ...MAIL, security: 'tls', port: 1465 }).settings.port).toBe(1465);
});

test.each(['host', 'from', 'to'])('a new one needs %s', field => {
  const { [field as 'host']: _gone, ...rest } = MAIL;
  expect(refusal(() => mailOf(rest))).toContain(`"mail.${field}" is required`);
});

test('a change keeps what it does not name, the password too', () => {
  const before = mailOf(LOGIN);
  expect(mailOf({ to: ['other@example.org'] }, before)).toEqual({
    ...before,
    settings: { ...before.settings, to: ['other@example.org'] },
  });
  expect(mailOf({ password: 'another' }, before).secrets).toEqual({ password: 'another' });
  expect(mailOf({ username: '' }, before)).toMatchObject({
    settings: { username: '' },
    secrets: { password: '' },
  });
});

test.each<[MailRequest, string]>([
  [{ host: 'evil.example.org' }, 'host'],
  [{ port: 2525 }, 'port'],
  [{ security: 'tls' }, 'port'],
  [{ username: 'other' }, 'username'],
])('the password of before goes nowhere else: %j', (change, field) => {
  const before = mailOf(LOGIN);
  expect(refusal(() => mailOf(change, before))).toContain(`must be given again, as "mail.${field}"`);
  expect(mailOf({ ...change, password: 'given again' }, before).secrets.password).toBe('given again');
});

test('a login has a name and a password', () => {
  expect(refusal(() => mailOf({ ...MAIL, username: 'x' }))).toContain('"mail.password" is required');
  expect(refusal(() => mailOf({ ...MAIL, username: 'x', password: '' }))).toContain(
    '"mail.password" is required',
  );
  expect(refusal(() => mailOf({ ...MAIL, password: 'x' }))).toContain('give "mail.username"');
  const lost: Mail = { ...mailOf(LOGIN), secrets: { password: '' } };
  expect(refusal(() => mailOf({}, lost))).toContain('"mail.password" is required');
});

test('a password is sent in plain to this machine only', () => {
  expect(refusal(() => mailOf({ ...LOGIN, security: 'none' }))).toContain('password in plain');
  for (const host of ['localhost', '127.0.0.1', '127.1.2.3', '::1'])
    expect(mailOf({ ...LOGIN, host, security: 'none' }).settings.host).toBe(host);
  for (const host of ['127.example.org', 'localhost.example.org', '10.0.0.1'])
    expect(refusal(() => mailOf({ ...LOGIN, host, security: 'none' }))).toContain('password in plain');
});

test('a webhook is https, or on this machine', () => {
  expect(webhookOf(HOOK)).toEqual({
    kind: 'webhook',
    settings: { origin: 'https://hooks.example.org', ca: '' },
    secrets: { url: 'https://hooks.example.org/x?y=1', secret: 'correct horse battery staple' },
  });
  const urlRefusal = (url: string) => refusal(() => webhookOf({ ...HOOK, url }));
  for (const url of ['http://localhost:8080/x', 'http://127.0.0.1/', 'http://[::1]:80/'])
    expect(urlRefusal(url)).toBe('');
  for (const url of ['http://hooks.example.org/', 'http://10.0.0.1/', 'http://127.0.0.1.example.org/'])
    expect(urlRefusal(url)).toContain('plain http:// is for this machine');
  for (const url of ['file:///etc/passwd', 'ftp://x/', 'unix:/run/x', 'data:,x'])
    expect(urlRefusal(url)).toContain('must begin with https://');
  expect(urlRefusal('https://me:secret@hooks.example.org/')).toContain('must not hold');
  expect(urlRefusal('hooks')).toContain('is no URL');
  expect(webhookOf({ ...HOOK, url: 'https://h.example.org/a#b' }).secrets.url).toBe(
    'https://h.example.org/a',
  );
});

test('the secret of a webhook is long enough to be one', () => {
  const secretRefusal = (secret: string) => refusal(() => webhookOf({ ...HOOK, secret }));
  for (const secret of ['short', 'whsec_', 'whsec_????????????????????????', 'whsec_AAAAAAAAAAAAAAAA'])
    expect(secretRefusal(secret)).toContain('at least 16 bytes');
  expect(secretRefusal(`whsec_${Buffer.alloc(24).toString('base64')}`)).toBe('');
});

test('a change of a webhook keeps its secret and its URL', () => {
  const before = webhookOf(HOOK);
  expect(webhookOf({ ca: '' }, before)).toEqual(before);
  expect(webhookOf({ url: 'https://b.example.org/' }, before)).toMatchObject({
    settings: { origin: 'https://b.example.org' },
    secrets: { secret: HOOK.secret },
  });
  expect(refusal(() => webhookOf({ url: HOOK.url! }))).toContain('"webhook.secret" is required');
});

test('of a CA file only certificates that can be read are kept', () => {
  for (const ca of ['nonsense', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----'])
    expect(refusal(() => mailOf({ ...MAIL, ca }))).toMatch(/mail\.ca" holds/);
});
