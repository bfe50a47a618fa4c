/** How targets are reached: what administrators give, checked, and split into what may be shown and what is sealed. Pure. */
import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { signingKey } from './signature.ts';

/** starttls: TLS before anything else is said; tls: from the first byte; none: plain. */
export const MAIL_SECURITIES = ['starttls', 'tls', 'none'] as const;
export type MailSecurity = (typeof MAIL_SECURITIES)[number];

export interface MailFields {
  host: string;
  port: number;
  security: MailSecurity;
  /** Empty: no login. */
  username: string;
  from: string;
  to: string[];
  /** PEM, trusted in place of the system's authorities; empty: the system's. */
  ca: string;
}

export interface Mail {
  kind: 'mail';
  settings: MailFields;
  secrets: { password: string };
}

export interface Webhook {
  kind: 'webhook';
  settings: {
    /** Of the URL, which is sealed: some are a secret by themselves. */
    origin: string;
    ca: string;
  };
  secrets: { url: string; secret: string };
}

export type TargetKind = Mail['kind'] | Webhook['kind'];

/** As a request has them: what is left out stays as it is, or is the default. */
export type MailRequest = Partial<MailFields & Mail['secrets']>;
export type WebhookRequest = Partial<Webhook['secrets'] & { ca: string }>;

const PORTS: Readonly<Record<MailSecurity, number>> = { starttls: 587, tls: 465, none: 25 };
const MIN_KEY_BYTES = 16;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;
/** Where the password goes, and who else could read it. A new place must not get the password of before. */
const PLACE_OF_PASSWORD = ['host', 'port', 'security', 'username', 'ca'] as const;

/** @param before undefined for a new target. @throws missing_field, invalid_field, as `mail.…` */
export function mailOf(given: MailRequest, before?: Mail): Mail {
  const former = before?.settings;
  const { security = former?.security ?? 'starttls', host = former?.host } = given;
  const { from = former?.from, to = former?.to } = given;
  const isOtherSecurity = former !== undefined && security !== former.security;
  const settings: MailFields = {
    host: required('mail.host', host),
    port: given.port ?? (isOtherSecurity ? PORTS[security] : (former?.port ?? PORTS[security])),
    security,
    username: given.username ?? former?.username ?? '',
    from: required('mail.from', from),
    to: required('mail.to', to),
    ca: certificates('mail.ca', given.ca ?? former?.ca ?? ''),
  };
  const mail: Mail = { kind: 'mail', settings, secrets: { password: passwordOf(settings, given, before) } };
  refusePlainLogin(settings);
  return mail;
}

function passwordOf(settings: MailFields, given: MailRequest, before: Mail | undefined): string {
  const field = 'mail.password';
  if (settings.username === '') {
    if (given.password) throw invalid(field, 'is for a login: give "mail.username", too');
    return '';
  }
  if (given.password) return given.password;
  if (given.password === '' || !before?.secrets.password) throw new VirtkeepError('missing_field', { field });
  const moved = PLACE_OF_PASSWORD.find(name => settings[name] !== before.settings[name]);
  if (moved !== undefined)
    throw invalid(
      field,
      `must be given again, as "mail.${moved}" is another one and the password would be sent there`,
    );
  return before.secrets.password;
}

function refusePlainLogin({ host, security, username }: MailFields): void {
  if (security === 'none' && username !== '' && !isLoopback(host))
    throw invalid(
      'mail.security',
      'would send the password in plain; only a server on this machine (localhost) may get it so',
    );
}

/** @param before undefined for a new target. @throws missing_field, invalid_field, as `webhook.…` */
export function webhookOf(given: WebhookRequest, before?: Webhook): Webhook {
  const url = webhookUrl(required('webhook.url', given.url ?? (before?.secrets.url || undefined)));
  const secret = required('webhook.secret', given.secret ?? (before?.secrets.secret || undefined));
  requireKey(secret);
  const ca = certificates('webhook.ca', given.ca ?? before?.settings.ca ?? '');
  return { kind: 'webhook', settings: { origin: url.origin, ca }, secrets: { url: url.href, secret } };
}

/** A secret with the prefix of the public convention has its key as base64. */
function requireKey(secret: string): void {
  const bytes = signingKey(secret).length;
  if (bytes < MIN_KEY_BYTES)
    throw invalid('webhook.secret', `must be at least ${MIN_KEY_BYTES} bytes; after "whsec_" as base64`);
}

function webhookUrl(text: string): URL {
  const field = 'webhook.url';
  if (!URL.canParse(text)) throw invalid(field, 'is no URL');
  const url = new URL(text);
  url.hash = '';
  if (url.username !== '' || url.password !== '')
    throw invalid(field, 'must not hold a user name or a password');
  const isPlain = url.protocol === 'http:';
  if (!isPlain && url.protocol !== 'https:') throw invalid(field, 'must begin with https://');
  if (isPlain && !isLoopback(url.hostname.replace(/^\[|\]$/g, '')))
    throw invalid(field, 'must begin with https://; plain http:// is for this machine (localhost) only');
  return url;
}

function isLoopback(host: string): boolean {
  return (
    host.toLowerCase() === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))
  );
}

function certificates(field: string, pem: string): string {
  const text = pem.trim();
  if (text === '') return '';
  const found = text.match(CERTIFICATE) ?? [];
  try {
    for (const one of found) new X509Certificate(one);
  } catch {
    throw invalid(field, 'holds a certificate that cannot be read');
  }
  if (found.length === 0)
    throw invalid(field, 'holds no certificate: give PEM text, "-----BEGIN CERTIFICATE-----" and so on');
  // and nothing besides: a private key may stand in the same file
  return `${found.join('\n')}\n`;
}

function required<T>(field: string, value: T | undefined): T {
  if (value === undefined) throw new VirtkeepError('missing_field', { field });
  return value;
}

function invalid(field: string, reason: string): VirtkeepError {
  return new VirtkeepError('invalid_field', { field, reason });
}
